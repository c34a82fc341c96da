#include "kernels/cpu/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/kernels/numbers.h"

namespace spiritlevel {
namespace {

struct State {
  Doubles p, m, v;
};

// The algorithm as it stands in the paper, in float64.
void Step(const cpu::AdamW& o, int step, double clip, const Doubles& grads, State* s) {
  const double beta1 = static_cast<double>(o.beta1);
  const double beta2 = static_cast<double>(o.beta2);
  for (size_t i = 0; i < grads.size(); ++i) {
    const double g = clip * grads[i];
    s->m[i] = beta1 * s->m[i] + (1 - beta1) * g;
    s->v[i] = beta2 * s->v[i] + (1 - beta2) * g * g;
    const double m = s->m[i] / (1 - std::pow(beta1, step));
    const double v = s->v[i] / (1 - std::pow(beta2, step));
    s->p[i] -= static_cast<double>(o.rate) * (m / (std::sqrt(v) + static_cast<double>(o.epsilon)) +
                                              static_cast<double>(o.weight_decay) * s->p[i]);
  }
}

TEST(AdamW, FollowsFloat64OverManySteps) {
  for (const size_t size : {size_t{1}, size_t{15}, size_t{16}, size_t{1000}}) {
    std::mt19937 random(9);
    const cpu::AdamW options{.rate = 0.01f, .weight_decay = 0.1f};
    State expected{RandomDoubles(size, &random), Doubles(size), Doubles(size)};
    std::vector<float> p = Floats(expected.p);
    std::vector<float> m(size);
    std::vector<float> v(size);
    for (int step = 1; step <= 20; ++step) {
      const Doubles grads = RandomDoubles(size, &random);
      cpu::AdamWStep(options, step, 0.5f, Floats(grads), p, m, v);
      Step(options, step, 0.5, grads, &expected);
    }
    EXPECT_LT(RelativeError(AsDoubles(p), expected.p), 1e-5) << size;
    EXPECT_LT(RelativeError(AsDoubles(m), expected.m), 1e-5) << size;
    EXPECT_LT(RelativeError(AsDoubles(v), expected.v), 1e-5) << size;
  }
}

// m / sqrt(v) is then the sign of the gradient, whatever its size.
TEST(AdamW, TheFirstStepIsAsLongAsTheRate) {
  const cpu::AdamW options{.rate = 0.5f, .epsilon = 0, .weight_decay = 0};
  std::vector<float> p = {1, 1};
  std::vector<float> m(2);
  std::vector<float> v(2);
  const std::vector<float> grads = {100.0f, -0.001f};
  cpu::AdamWStep(options, 1, 1, grads, p, m, v);
  EXPECT_NEAR(static_cast<double>(p[0]), 0.5, 1e-4);
  EXPECT_NEAR(static_cast<double>(p[1]), 1.5, 1e-4);
}

TEST(Clipping, BringsTheNormToItsBoundAndLeavesSmallerOnesAlone) {
  const std::vector<float> grads = {3, 4, 12};
  EXPECT_EQ(cpu::SumOfSquares(grads), 169);
  EXPECT_EQ(cpu::ClipCoefficient(13, 13), 1.0f);
  EXPECT_EQ(cpu::ClipCoefficient(13, 26), 1.0f);
  EXPECT_EQ(cpu::ClipCoefficient(13, 6.5), 0.5f);
}

// In float, adding 1 to 2^24 changes nothing.
TEST(Clipping, TheSumOfManySquaresLosesNone) {
  const std::vector<float> grads((size_t{1} << 24) + 1000, 1.0f);
  EXPECT_EQ(cpu::SumOfSquares(grads), static_cast<double>(grads.size()));
}

}  // namespace
}  // namespace spiritlevel
