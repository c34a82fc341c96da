#include "kernels/cpu/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/largest.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel {
namespace {

double Silu(double a) { return a / (1 + std::exp(-a)); }

double Gelu(double a) {
  return a / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
}

// From -8 to 8: where the functions bend and where they are straight.
Strided Wide(int64_t rows, int64_t cols, std::mt19937* random) {
  Strided x(rows, cols, random);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) x.view()(i, j) *= 8;
  }
  return x;
}

TEST(Exponential, IsWithinThreeTenMillionthsOverItsRange) {
  double worst = 0;
  for (double x = -87; x <= 88; x += 0.0037) {
    const auto given = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(given));
    worst = std::max(worst,
                     std::abs(static_cast<double>(cpu::Exponential(given)) - expected) / expected);
  }
  EXPECT_LT(worst, 3e-7);
}

TEST(Exponential, StopsAtTheEndsAndKeepsNan) {
  EXPECT_EQ(cpu::Exponential(0.0f), 1.0f);
  EXPECT_EQ(cpu::Exponential(-1e30f), cpu::Exponential(-87.0f));
  EXPECT_EQ(cpu::Exponential(1e30f), cpu::Exponential(88.0f));
  EXPECT_TRUE(std::isnan(cpu::Exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Largest, IsFoundWhereverItStands) {
  for (int64_t size = 1; size <= 70; ++size) {
    for (int64_t at = 0; at < size; ++at) {
      std::vector<float> values(static_cast<size_t>(size), -3.0f);
      values[static_cast<size_t>(at)] = -2.0f;
      ASSERT_EQ(cpu::Largest(values.data(), size), -2.0f) << size << " at " << at;
    }
  }
}

TEST(Swiglu, AndItsGradientsAreThoseOfFloat64) {
  std::mt19937 random(3);
  Strided gate = Wide(5, 37, &random);
  Strided up(5, 37, &random);
  Strided dy(5, 37, &random);
  Strided y(5, 37, 7.0f);
  Strided dgate(5, 37, 7.0f);
  Strided dup(5, 37, 7.0f);
  cpu::SwigluForward(gate.view(), up.view(), y.view());
  cpu::SwigluBackward(gate.view(), up.view(), dy.view(), dgate.view(), dup.view());
  const auto forward = [](const Doubles& a, const Doubles& b) {
    Doubles out;
    for (size_t i = 0; i < a.size(); ++i) out.push_back(Silu(a[i]) * b[i]);
    return out;
  };
  const Doubles a = gate.values();
  const Doubles b = up.values();
  const auto of_gate = [&](const Doubles& v) { return Dot(dy.values(), forward(v, b)); };
  const auto of_up = [&](const Doubles& v) { return Dot(dy.values(), forward(a, v)); };
  EXPECT_LT(RelativeError(y.values(), forward(a, b)), 1e-6);
  EXPECT_LT(RelativeError(dgate.values(), Gradient(of_gate, a)), 1e-5);
  EXPECT_LT(RelativeError(dup.values(), Gradient(of_up, b)), 1e-5);
  EXPECT_TRUE(y.GapsAreUntouched() && dgate.GapsAreUntouched() && dup.GapsAreUntouched());
}

TEST(Swiglu, GradientsMayTakeThePlaceOfTheInputs) {
  std::mt19937 random(3);
  Strided gate(3, 21, &random);
  Strided up(3, 21, &random);
  Strided dy(3, 21, &random);
  Strided dgate(3, 21, 0.0f);
  Strided dup(3, 21, 0.0f);
  cpu::SwigluBackward(gate.view(), up.view(), dy.view(), dgate.view(), dup.view());
  cpu::SwigluBackward(gate.view(), up.view(), dy.view(), gate.view(), up.view());
  EXPECT_EQ(gate.values(), dgate.values());
  EXPECT_EQ(up.values(), dup.values());
}

TEST(Gelu, AndItsGradientAreThoseOfFloat64) {
  std::mt19937 random(4);
  Strided x = Wide(4, 41, &random);
  Strided dy(4, 41, &random);
  Strided y(4, 41, 7.0f);
  Strided dx(4, 41, 7.0f);
  cpu::GeluForward(x.view(), y.view());
  cpu::GeluBackward(x.view(), dy.view(), dx.view());
  const auto forward = [](const Doubles& values) {
    Doubles out;
    for (const double value : values) out.push_back(Gelu(value));
    return out;
  };
  const auto loss = [&](const Doubles& v) { return Dot(dy.values(), forward(v)); };
  EXPECT_LT(RelativeError(y.values(), forward(x.values())), 1e-6);
  EXPECT_LT(RelativeError(dx.values(), Gradient(loss, x.values())), 1e-5);
  EXPECT_TRUE(y.GapsAreUntouched() && dx.GapsAreUntouched());
}

}  // namespace
}  // namespace spiritlevel
