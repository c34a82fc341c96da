#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/model/bfloat16.h"
#include "kernels/cuda/math/numbers.h"

namespace spiritlevel {
namespace {

using cuda::BFloat16;
using cuda::Float8E4M3;
using cuda::Float8E5M2;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// What the bits of an fp8 number mean, from the formats' definition.
double Meaning(int bits, int mantissa_bits, int bias) {
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits & 0x7F) >> mantissa_bits;
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1 + fraction, exponent - bias));
}

TEST(BrainFloat, IsThatOfTheCpuKernels) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    const BFloat16 stored{static_cast<uint16_t>(upper)};
    EXPECT_EQ(cuda::BitsOf(ToFloat(stored)), cuda::BitsOf(cpu::Widen(stored.bits)));
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const float value = cuda::FloatOf(upper << 16 | lower);
      ASSERT_EQ(cuda::FromFloat<BFloat16>(value).bits, cpu::Round(value)) << upper << " " << lower;
    }
  }
}

template <typename T>
class Float8 : public testing::Test {};
using Formats = testing::Types<Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(Float8, Formats);

TYPED_TEST(Float8, MeansWhatItsFormatSaysAndGoesThereAndBack) {
  using F = cuda::Float8Format<TypeParam>;
  for (int bits = 0; bits < 256; ++bits) {
    const TypeParam stored{static_cast<uint8_t>(bits)};
    if ((bits & 0x7F) > static_cast<int>(F::kLargest)) continue;
    const float value = ToFloat(stored);
    EXPECT_EQ(static_cast<double>(value), Meaning(bits, F::kMantissa, F::kBias)) << bits;
    EXPECT_EQ(cuda::FromFloat<TypeParam>(value).bits, bits);
  }
}

TYPED_TEST(Float8, TakesTheNearerOfTwoAndInTheMiddleTheEvenOne) {
  using F = cuda::Float8Format<TypeParam>;
  for (int below = 0; below < static_cast<int>(F::kLargest); ++below) {
    for (const int sign : {0, 0x80}) {
      const auto of = [&](int bits) { return TypeParam{static_cast<uint8_t>(bits | sign)}; };
      const float low = ToFloat(of(below));
      const float high = ToFloat(of(below + 1));
      const float middle = low + (high - low) / 2;  // exact
      const float to_low = std::nextafter(middle, low);
      const float to_high = std::nextafter(middle, high);
      EXPECT_EQ(cuda::FromFloat<TypeParam>(to_low).bits, of(below).bits) << below;
      EXPECT_EQ(cuda::FromFloat<TypeParam>(to_high).bits, of(below + 1).bits) << below;
      EXPECT_EQ(cuda::FromFloat<TypeParam>(middle).bits, of(below + below % 2).bits) << below;
    }
  }
}

TYPED_TEST(Float8, CutsFiniteNumbersAndLosesTinyOnes) {
  const float largest = ToFloat(TypeParam{cuda::Float8Format<TypeParam>::kLargest});
  for (const float beyond : {largest * 1.01f, largest * 2, 3e38f}) {
    EXPECT_EQ(ToFloat(cuda::FromFloat<TypeParam>(beyond)), largest);
    EXPECT_EQ(ToFloat(cuda::FromFloat<TypeParam>(-beyond)), -largest);
  }
  for (const float tiny : {1e-8f, 1e-30f, 1e-44f, 0.0f}) {
    EXPECT_EQ(cuda::FromFloat<TypeParam>(tiny).bits, 0x00);
    EXPECT_EQ(cuda::FromFloat<TypeParam>(-tiny).bits, 0x80);
  }
}

// A gradient that has overflowed must not look like one that has not.
TYPED_TEST(Float8, DoesNotHideAnOverflow) {
  EXPECT_TRUE(std::isnan(ToFloat(cuda::FromFloat<TypeParam>(kNaN))));
  for (const float infinity : {kInfinity, -kInfinity}) {
    EXPECT_FALSE(std::isfinite(ToFloat(cuda::FromFloat<TypeParam>(infinity))));
  }
}

TEST(Float8Limits, AreThoseOfThePaper) {
  EXPECT_EQ(ToFloat(Float8E4M3{0x7E}), 448.0f);
  EXPECT_EQ(ToFloat(Float8E4M3{0x01}), 0x1p-9f);
  EXPECT_EQ(ToFloat(Float8E5M2{0x7B}), 57344.0f);
  EXPECT_EQ(ToFloat(Float8E5M2{0x01}), 0x1p-16f);
  EXPECT_EQ(ToFloat(Float8E5M2{0xFC}), -kInfinity);
  EXPECT_TRUE(std::isnan(ToFloat(Float8E4M3{0xFF})));
}

}  // namespace
}  // namespace spiritlevel
