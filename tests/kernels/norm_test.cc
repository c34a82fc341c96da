#include "kernels/cpu/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/kernels/numbers.h"

namespace spiritlevel {
namespace {

constexpr double kEpsilon = 1e-5;

struct Shape {
  int64_t rows, cols;
};

Doubles RmsNorm(const Doubles& x, const Doubles& w) {
  const size_t cols = w.size();
  Doubles y(x.size());
  for (size_t row = 0; row < x.size(); row += cols) {
    double squares = 0;
    for (size_t j = 0; j < cols; ++j) squares += x[row + j] * x[row + j];
    const double r = 1 / std::sqrt(squares / static_cast<double>(cols) + kEpsilon);
    for (size_t j = 0; j < cols; ++j) y[row + j] = w[j] * x[row + j] * r;
  }
  return y;
}

Doubles LayerNorm(const Doubles& x, const Doubles& w, const Doubles& b) {
  const size_t cols = w.size();
  const auto count = static_cast<double>(cols);
  Doubles y(x.size());
  for (size_t row = 0; row < x.size(); row += cols) {
    double mean = 0;
    double variance = 0;
    for (size_t j = 0; j < cols; ++j) mean += x[row + j] / count;
    for (size_t j = 0; j < cols; ++j) variance += std::pow(x[row + j] - mean, 2) / count;
    for (size_t j = 0; j < cols; ++j) {
      y[row + j] = w[j] * (x[row + j] - mean) / std::sqrt(variance + kEpsilon) + b[j];
    }
  }
  return y;
}

class Norms : public testing::TestWithParam<Shape> {
 protected:
  std::mt19937 random_{23};
  Shape s_ = GetParam();
  size_t cols_ = static_cast<size_t>(s_.cols);
  Strided x_{s_.rows, s_.cols, &random_};
  Strided dy_{s_.rows, s_.cols, &random_};
  std::vector<float> w_ = Floats(RandomDoubles(cols_, &random_));
  std::vector<float> b_ = Floats(RandomDoubles(cols_, &random_));
  Strided y_{s_.rows, s_.cols, 7.0f};
  Strided dx_{s_.rows, s_.cols, 7.0f};
  std::vector<float> mean_ = std::vector<float>(static_cast<size_t>(s_.rows));
  std::vector<float> r_ = std::vector<float>(static_cast<size_t>(s_.rows));
  std::vector<float> dw_ = std::vector<float>(cols_, 1.0f);  // gradients add to what is there
  std::vector<float> db_ = std::vector<float>(cols_, 1.0f);
};

Doubles LessOne(const std::vector<float>& sums) {
  Doubles values = AsDoubles(sums);
  for (double& value : values) value -= 1;
  return values;
}

TEST_P(Norms, RmsNormAndItsGradientsAreThoseOfFloat64) {
  const auto eps = static_cast<float>(kEpsilon);
  cpu::RmsNormForward(x_.view(), w_.data(), eps, y_.view(), r_.data());
  cpu::RmsNormInputGrad(x_.view(), w_.data(), r_.data(), dy_.view(), dx_.view());
  cpu::RmsNormWeightGrad(x_.view(), r_.data(), dy_.view(), dw_.data());
  const Doubles x = x_.values();
  const Doubles w = AsDoubles(w_);
  const auto of_x = [&](const Doubles& v) { return Dot(dy_.values(), RmsNorm(v, w)); };
  const auto of_w = [&](const Doubles& v) { return Dot(dy_.values(), RmsNorm(x, v)); };
  EXPECT_LT(RelativeError(y_.values(), RmsNorm(x, w)), 2e-6);
  EXPECT_LT(RelativeError(dx_.values(), Gradient(of_x, x)), 2e-5);
  EXPECT_LT(RelativeError(LessOne(dw_), Gradient(of_w, w)), 2e-5);
  EXPECT_TRUE(y_.GapsAreUntouched() && dx_.GapsAreUntouched());
}

TEST_P(Norms, LayerNormAndItsGradientsAreThoseOfFloat64) {
  const auto eps = static_cast<float>(kEpsilon);
  cpu::LayerNormForward(x_.view(), w_.data(), b_.data(), eps, y_.view(), mean_.data(), r_.data());
  cpu::LayerNormInputGrad(x_.view(), w_.data(), mean_.data(), r_.data(), dy_.view(), dx_.view());
  cpu::LayerNormWeightGrad(x_.view(), mean_.data(), r_.data(), dy_.view(), dw_.data(), db_.data());
  const Doubles x = x_.values();
  const Doubles w = AsDoubles(w_);
  const Doubles b = AsDoubles(b_);
  const auto of_x = [&](const Doubles& v) { return Dot(dy_.values(), LayerNorm(v, w, b)); };
  const auto of_w = [&](const Doubles& v) { return Dot(dy_.values(), LayerNorm(x, v, b)); };
  const auto of_b = [&](const Doubles& v) { return Dot(dy_.values(), LayerNorm(x, w, v)); };
  EXPECT_LT(RelativeError(y_.values(), LayerNorm(x, w, b)), 2e-6);
  EXPECT_LT(RelativeError(dx_.values(), Gradient(of_x, x)), 2e-5);
  EXPECT_LT(RelativeError(LessOne(dw_), Gradient(of_w, w)), 2e-5);
  EXPECT_LT(RelativeError(LessOne(db_), Gradient(of_b, b)), 2e-5);
}

// Of two columns LayerNorm makes +1 and -1 whatever they are: gradients of 0, which say nothing.
INSTANTIATE_TEST_SUITE_P(OddAndEvenSizes, Norms,
                         testing::Values(Shape{1, 3}, Shape{3, 5}, Shape{4, 16}, Shape{2, 33},
                                         Shape{7, 19}));

// mean(x^2) - mean(x)^2 has no digits left here.
TEST(LayerNormLimits, ALargeMeanCostsNoDigits) {
  Strided x(1, 64, 0.0f);
  for (int64_t j = 0; j < 64; ++j) x.view()(0, j) = 4096.0f + static_cast<float>(j % 2);
  const std::vector<float> ones(64, 1.0f);
  const std::vector<float> zeros(64, 0.0f);
  Strided y(1, 64, 0.0f);
  float mean = 0;
  float r = 0;
  cpu::LayerNormForward(x.view(), ones.data(), zeros.data(), 0.0f, y.view(), &mean, &r);
  EXPECT_FLOAT_EQ(mean, 4096.5f);
  for (int64_t j = 0; j < 64; ++j) EXPECT_FLOAT_EQ(y.view()(0, j), j % 2 == 0 ? -1.0f : 1.0f);
}

}  // namespace
}  // namespace spiritlevel
