// exp() that a compiler can vectorise. Internal to kernels/cpu.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace spiritlevel::cpu {

// Within 3e-7 of exp(x), relatively, for -87 <= x <= 88; outside, the value at the nearer end.
// (So a probability that should be 0 is 1.6e-38.) NaN stays NaN.
//
// exp(x) = 2^n exp(r) with n = round(x / ln 2), |r| <= ln 2 / 2: the Taylor series to r^7, whose
// rest is below 6e-9. ln 2 is split in two, so that n ln 2 loses no digits.
inline float Exponential(float x) {
  // Adding 1.5 * 2^23 leaves no bits behind the point: rounding to nearest without a call.
  constexpr float kRounder = 12582912.0f;
  constexpr float kInverseLn2 = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  // This way round so that NaN is kept.
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float n = (x * kInverseLn2 + kRounder) - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 1.0f / 2;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // The bits of 2^n. The rounded sum has n in its lowest bits, NaN's have anything: p is NaN then.
  const auto bits = std::bit_cast<int32_t>(n + kRounder) - std::bit_cast<int32_t>(kRounder);
  return p * std::bit_cast<float>((bits + 127) << 23);
}

}  // namespace spiritlevel::cpu
