// The narrow floating-point numbers as they are stored, and their conversion to and from fp32, in
// integer arithmetic so that host and device make the same bits.
//
//   bf16      the upper half of an fp32
//   fp8 E4M3  1 sign, 4 exponent (bias 7), 3 mantissa; no infinities, one NaN (all ones); most 448
//   fp8 E5M2  1 sign, 5 exponent (bias 15), 2 mantissa; infinities and NaN as in IEEE; most 57344
//                                                         (Micikevicius et al. 2022, section 3)
// All round to nearest, ties to even. What is beyond bf16 becomes infinite, as IEEE says. A finite
// number beyond fp8 becomes its largest: scaled tensors are cut there. Infinities and NaN do not
// become finite, so that an overflow somewhere before is seen behind: an infinity is NaN in E4M3.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/math/host_device.h"

namespace spiritlevel::cuda {

struct BFloat16 {
  uint16_t bits;
};
struct Float8E4M3 {
  uint8_t bits;
};
struct Float8E5M2 {
  uint8_t bits;
};

SPIRITLEVEL_HOST_DEVICE inline uint32_t BitsOf(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
SPIRITLEVEL_HOST_DEVICE inline float FloatOf(uint32_t bits) {
  float value = 0;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

SPIRITLEVEL_HOST_DEVICE inline float NotANumber() { return FloatOf(0x7FC00000); }

// What an fp8 format is made of.
template <typename T>
struct Float8Format;
template <>
struct Float8Format<Float8E4M3> {
  static constexpr int kMantissa = 3;
  static constexpr int kBias = 7;
  static constexpr uint32_t kLargest = 0x7E;
  static constexpr uint32_t kInfinity = 0x7F;  // there is none: NaN
  static constexpr uint32_t kNaN = 0x7F;
};
template <>
struct Float8Format<Float8E5M2> {
  static constexpr int kMantissa = 2;
  static constexpr int kBias = 15;
  static constexpr uint32_t kLargest = 0x7B;
  static constexpr uint32_t kInfinity = 0x7C;
  static constexpr uint32_t kNaN = 0x7E;
};

// --- To fp32; exact

SPIRITLEVEL_HOST_DEVICE inline float ToFloat(float value) { return value; }
SPIRITLEVEL_HOST_DEVICE inline float ToFloat(BFloat16 value) {
  return FloatOf(static_cast<uint32_t>(value.bits) << 16);
}

template <typename T>
SPIRITLEVEL_HOST_DEVICE inline float Float8ToFloat(T value) {
  using F = Float8Format<T>;
  const uint32_t sign = (value.bits & 0x80u) << 24;
  const uint32_t rest = value.bits & 0x7Fu;
  if (rest > F::kLargest) {
    return FloatOf(sign |
                   (rest == F::kInfinity && F::kInfinity != F::kNaN ? 0x7F800000u : 0x7FC00000u));
  }
  const uint32_t exponent = rest >> F::kMantissa;
  const uint32_t mantissa = rest & ((1u << F::kMantissa) - 1);
  if (exponent == 0) {  // mantissa * 2^(1 - bias - kMantissa)
    const float unit = FloatOf(static_cast<uint32_t>(127 + 1 - F::kBias - F::kMantissa) << 23);
    return FloatOf(sign | BitsOf(static_cast<float>(mantissa) * unit));
  }
  return FloatOf(sign | ((exponent + 127 - F::kBias) << 23) | (mantissa << (23 - F::kMantissa)));
}
SPIRITLEVEL_HOST_DEVICE inline float ToFloat(Float8E4M3 value) { return Float8ToFloat(value); }
SPIRITLEVEL_HOST_DEVICE inline float ToFloat(Float8E5M2 value) { return Float8ToFloat(value); }

// --- From fp32

// Shifts right, rounding to nearest, ties to even. 0 < shift < 32.
SPIRITLEVEL_HOST_DEVICE inline uint32_t RoundingShift(uint32_t bits, int shift) {
  const uint32_t half = (1u << (shift - 1)) - 1;
  return (bits + half + ((bits >> shift) & 1u)) >> shift;
}

template <typename T>
SPIRITLEVEL_HOST_DEVICE inline T FloatToFloat8(float value) {
  using F = Float8Format<T>;
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return T{static_cast<uint8_t>(sign | F::kNaN)};
  if (size == 0x7F800000u) return T{static_cast<uint8_t>(sign | F::kInfinity)};
  constexpr int kShift = 23 - F::kMantissa;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + 1 - F::kBias) << 23;
  uint32_t rounded = 0;
  if (size >= kSmallestNormal) {
    // The exponent is right behind the mantissa: what a mantissa carries over goes into it.
    rounded = RoundingShift(size - (static_cast<uint32_t>(127 - F::kBias) << 23), kShift);
  } else if (size > 0) {
    // In units of the smallest subnormal; one of 24 digits and more behind is below half of one.
    const int exponent = size >> 23 == 0 ? 1 : static_cast<int>(size >> 23);
    const uint32_t digits = (size & 0x7FFFFFu) | (size >> 23 == 0 ? 0u : 0x800000u);
    const int shift = kShift + (127 + 1 - F::kBias) - exponent;
    rounded = shift > 25 ? 0 : RoundingShift(digits, shift);
  }
  if (rounded > F::kLargest) rounded = F::kLargest;
  return T{static_cast<uint8_t>(sign | rounded)};
}

template <typename T>
SPIRITLEVEL_HOST_DEVICE inline T FromFloat(float value);
template <>
SPIRITLEVEL_HOST_DEVICE inline float FromFloat<float>(float value) {
  return value;
}
template <>
SPIRITLEVEL_HOST_DEVICE inline BFloat16 FromFloat<BFloat16>(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return {static_cast<uint16_t>((is_nan ? bits | 0x00400000u : rounded) >> 16)};
}
template <>
SPIRITLEVEL_HOST_DEVICE inline Float8E4M3 FromFloat<Float8E4M3>(float value) {
  return FloatToFloat8<Float8E4M3>(value);
}
template <>
SPIRITLEVEL_HOST_DEVICE inline Float8E5M2 FromFloat<Float8E5M2>(float value) {
  return FloatToFloat8<Float8E5M2>(value);
}

// --- Functions

// On the device by its special units. Their error, of 2 + 1.2 |x| units in the last place, is far
// below that of anything stored in bf16, and a polynomial would take longer than the memory does.
SPIRITLEVEL_HOST_DEVICE inline float Exponential(float x) {
#ifdef __CUDA_ARCH__
  return __expf(x);
#else
  return std::exp(x);
#endif
}

}  // namespace spiritlevel::cuda
