// Each operator with parameters, its two gradients apart and in time, against both at once in one
// plain loop, which is another program, and that against differences of the forward in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm.h"
#include "tests/kernels/model/combined_backward.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel {
namespace {

using cpu::ConstMatrix;
using cpu::Matrix;

constexpr float kEpsilon = 1e-3f;

// Parameters are one vector: the weight, then the bias if there is one.
struct Operator {
  std::string name;
  int64_t rows, in, out, parameters;
  std::function<Doubles(const Doubles& x, const Doubles& p)> forward;  // in float64
  // Both gradients at once; those of parameters are added up.
  std::function<void(const Backward<double>&)> in_doubles;
  std::function<void(const Backward<float>&)> in_floats;
  // Null where there is none.
  std::function<void(ConstMatrix x, const float* p, ConstMatrix dy, Matrix dx)> input_grad;
  std::function<void(ConstMatrix x, const float* p, ConstMatrix dy, float* dp)> weight_grad;

  friend void PrintTo(const Operator& op, std::ostream* stream) { *stream << op.name; }
};

Operator LinearOperator(bool bias) {
  constexpr int64_t kRows = 9;
  constexpr int64_t kIn = 6;
  constexpr int64_t kOut = 5;
  return {.name = bias ? "LinearWithBias" : "Linear",
          .rows = kRows,
          .in = kIn,
          .out = kOut,
          .parameters = kIn * kOut + (bias ? kOut : 0),
          .forward =
              [bias](const Doubles& x, const Doubles& p) {
                Doubles y = Product(x, p, kRows, kOut, kIn);
                for (size_t i = 0; bias && i < y.size(); ++i) y[i] += p[kIn * kOut + i % kOut];
                return y;
              },
          .in_doubles = LinearBackward<double>,
          .in_floats = LinearBackward<float>,
          .input_grad = [](ConstMatrix, const float* p, ConstMatrix dy,
                           Matrix dx) { cpu::LinearInputGrad(dy, ConstMatrix(p, kIn, kOut), dx); },
          .weight_grad =
              [bias](ConstMatrix x, const float*, ConstMatrix dy, float* dp) {
                cpu::LinearWeightGrad(x, dy, Matrix(dp, kIn, kOut),
                                      bias ? dp + kIn * kOut : nullptr);
              }};
}

// The head: y = x p^T.
Operator HeadOperator() {
  constexpr int64_t kRows = 7;
  constexpr int64_t kIn = 4;
  constexpr int64_t kOut = 11;
  return {.name = "Head",
          .rows = kRows,
          .in = kIn,
          .out = kOut,
          .parameters = kIn * kOut,
          .forward =
              [](const Doubles& x, const Doubles& p) {
                Doubles y(kRows * kOut, 0.0);
                for (size_t i = 0; i < y.size(); ++i) {
                  for (size_t j = 0; j < kIn; ++j) {
                    y[i] += x[i / kOut * kIn + j] * p[i % kOut * kIn + j];
                  }
                }
                return y;
              },
          .in_doubles = HeadBackward<double>,
          .in_floats = HeadBackward<float>,
          .input_grad =
              [](ConstMatrix, const float* p, ConstMatrix dy, Matrix dx) {
                cpu::Gemm(1, dy, cpu::Transpose::kNo, ConstMatrix(p, kOut, kIn),
                          cpu::Transpose::kNo, 0, dx);
              },
          .weight_grad =
              [](ConstMatrix x, const float*, ConstMatrix dy, float* dp) {
                cpu::Gemm(1, dy, cpu::Transpose::kYes, x, cpu::Transpose::kNo, 1,
                          Matrix(dp, kOut, kIn));
              }};
}

Doubles NormForward(const Doubles& x, const Doubles& p, int64_t rows, int64_t cols, bool centred) {
  Doubles y;
  for (int64_t i = 0; i < rows; ++i) {
    const Doubles row(x.begin() + i * cols, x.begin() + (i + 1) * cols);
    double mean = 0;
    for (const double value : row) mean += centred ? value / static_cast<double>(cols) : 0;
    double square = 0;
    for (const double value : row) square += (value - mean) * (value - mean);
    const double scale = 1 / std::sqrt(square / static_cast<double>(cols) + double{kEpsilon});
    for (size_t j = 0; j < row.size(); ++j) {
      y.push_back(p[j] * (row[j] - mean) * scale + (centred ? p[row.size() + j] : 0));
    }
  }
  return y;
}

struct Statistics {
  std::vector<float> inverse;
  std::vector<float> mean;
};

Statistics StatisticsOf(ConstMatrix x, const float* p, bool centred) {
  Statistics s{std::vector<float>(static_cast<size_t>(x.rows())),
               std::vector<float>(static_cast<size_t>(x.rows()))};
  std::vector<float> y(static_cast<size_t>(x.rows() * x.cols()));
  const Matrix out(y.data(), x.rows(), x.cols());
  if (centred) {
    cpu::LayerNormForward(x, p, p + x.cols(), kEpsilon, out, s.mean.data(), s.inverse.data());
  } else {
    cpu::RmsNormForward(x, p, kEpsilon, out, s.inverse.data());
  }
  return s;
}

Operator NormOperator(bool centred) {
  constexpr int64_t kRows = 8;
  constexpr int64_t kCols = 13;
  return {
      .name = centred ? "LayerNorm" : "RmsNorm",
      .rows = kRows,
      .in = kCols,
      .out = kCols,
      .parameters = centred ? 2 * kCols : kCols,
      .forward = [centred](const Doubles& x,
                           const Doubles& p) { return NormForward(x, p, kRows, kCols, centred); },
      .in_doubles = centred ? LayerNormBackward<double> : RmsNormBackward<double>,
      .in_floats = centred ? LayerNormBackward<float> : RmsNormBackward<float>,
      .input_grad =
          [centred](ConstMatrix x, const float* p, ConstMatrix dy, Matrix dx) {
            const Statistics s = StatisticsOf(x, p, centred);
            if (centred) {
              cpu::LayerNormInputGrad(x, p, s.mean.data(), s.inverse.data(), dy, dx);
            } else {
              cpu::RmsNormInputGrad(x, p, s.inverse.data(), dy, dx);
            }
          },
      .weight_grad =
          [centred](ConstMatrix x, const float* p, ConstMatrix dy, float* dp) {
            const Statistics s = StatisticsOf(x, p, centred);
            if (centred) {
              cpu::LayerNormWeightGrad(x, s.mean.data(), s.inverse.data(), dy, dp, dp + kCols);
            } else {
              cpu::RmsNormWeightGrad(x, s.inverse.data(), dy, dp);
            }
          }};
}

Operator EmbeddingOperator() {
  constexpr int64_t kRows = 10;
  constexpr int64_t kVocabulary = 6;
  constexpr int64_t kCols = 5;
  static const std::vector<int32_t> tokens = {3, 0, 3, 5, 1, 3, 0, 2, 2, 5};
  return {.name = "Embedding",
          .rows = kRows,
          .in = 1,  // of no use
          .out = kCols,
          .parameters = kVocabulary * kCols,
          .forward =
              [](const Doubles&, const Doubles& p) {
                Doubles y;
                for (const int32_t token : tokens) {
                  y.insert(y.end(), p.begin() + token * kCols, p.begin() + (token + 1) * kCols);
                }
                return y;
              },
          .in_doubles = [](const Backward<double>& at) { EmbeddingBackward(tokens, at); },
          .in_floats = [](const Backward<float>& at) { EmbeddingBackward(tokens, at); },
          .input_grad = nullptr,
          .weight_grad =
              [](ConstMatrix, const float*, ConstMatrix dy, float* dp) {
                cpu::EmbeddingWeightGrad(tokens, dy, Matrix(dp, kVocabulary, kCols));
              }};
}

std::vector<Operator> Operators() {
  return {LinearOperator(false), LinearOperator(true), HeadOperator(),
          NormOperator(false),   NormOperator(true),   EmbeddingOperator()};
}

class SplitOperator : public testing::TestWithParam<Operator> {
 protected:
  void SetUp() override { cpu::UseOneBlasThread(); }

  const Operator& op_ = GetParam();
  std::mt19937 random_{97};
  // Rows lie apart in all of them.
  Strided x_{op_.rows, op_.in, &random_};
  Strided dy_{op_.rows, op_.out, &random_};
  const std::vector<float> parameters_ =
      Floats(RandomDoubles(static_cast<size_t>(op_.parameters), &random_));
  const std::vector<float> before_ =
      Floats(RandomDoubles(static_cast<size_t>(op_.parameters), &random_));

  // Loss dy . y, on top of a sum that was there before.
  Doubles ExpectedSum() {
    const Doubles dy = dy_.values();
    const Doubles x = x_.values();
    Doubles sum = Gradient([&](const Doubles& p) { return Dot(dy, op_.forward(x, p)); },
                           AsDoubles(parameters_));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(before_[i]);
    return sum;
  }
  Doubles ExpectedInputGrad() {
    const Doubles dy = dy_.values();
    const Doubles p = AsDoubles(parameters_);
    return Gradient([&](const Doubles& x) { return Dot(dy, op_.forward(x, p)); }, x_.values());
  }

  struct BothGradients {
    Doubles x;
    Doubles parameters;
  };
  // Strided where the operator's operands are, and on top of the sum that was there before.
  BothGradients CombinedInDoubles() {
    const Doubles x = x_.values();
    const Doubles dy = dy_.values();
    const Doubles p = AsDoubles(parameters_);
    BothGradients both{Doubles(x.size(), 0.0), AsDoubles(before_)};
    op_.in_doubles({.rows = op_.rows,
                    .in = op_.in,
                    .out = op_.out,
                    .x = x.data(),
                    .x_stride = op_.in,
                    .dy = dy.data(),
                    .dy_stride = op_.out,
                    .parameters = p,
                    .epsilon = double{kEpsilon},
                    .dx = both.x.data(),
                    .dparameters = both.parameters});
    return both;
  }
  BothGradients CombinedInFloats() {
    std::vector<float> dx(static_cast<size_t>(op_.rows * op_.in), 0.0f);
    std::vector<float> sum = before_;
    const Matrix x = x_.view();
    const Matrix dy = dy_.view();
    op_.in_floats({.rows = op_.rows,
                   .in = op_.in,
                   .out = op_.out,
                   .x = x.data(),
                   .x_stride = x.stride(),
                   .dy = dy.data(),
                   .dy_stride = dy.stride(),
                   .parameters = parameters_,
                   .epsilon = kEpsilon,
                   .dx = dx.data(),
                   .dparameters = sum});
    return {AsDoubles(dx), AsDoubles(sum)};
  }
};

TEST_P(SplitOperator, IsTheCombinedOneAlsoWhenItsOperandsHaveMovedMeanwhile) {
  Strided dx(op_.rows, op_.in, 0.0f);
  std::vector<float> sum = before_;
  if (op_.input_grad) op_.input_grad(x_.view(), parameters_.data(), dy_.view(), dx.view());
  // Until W other work was done, on the operands where they were; then they lie without gaps.
  std::vector<float> in_place = before_;
  op_.weight_grad(x_.view(), parameters_.data(), dy_.view(), in_place.data());
  const std::vector<float> x = Floats(x_.values());
  const std::vector<float> dy = Floats(dy_.values());
  op_.weight_grad(ConstMatrix(x.data(), op_.rows, op_.in), parameters_.data(),
                  ConstMatrix(dy.data(), op_.rows, op_.out), sum.data());
  EXPECT_EQ(sum, in_place) << "where rows lie is of no account, to the bit";

  const BothGradients exact = CombinedInDoubles();
  const BothGradients single = CombinedInFloats();
  EXPECT_LT(RelativeError(AsDoubles(sum), exact.parameters), 1e-6);
  EXPECT_LT(RelativeError(AsDoubles(sum), single.parameters), 2e-6);
  if (!op_.input_grad) return;
  EXPECT_LT(RelativeError(dx.values(), exact.x), 1e-6);
  EXPECT_LT(RelativeError(dx.values(), single.x), 2e-6);
  EXPECT_TRUE(dx.GapsAreUntouched());
}

// Twice as much of W is twice as much on top of what was there, and not of that.
TEST_P(SplitOperator, AddsUpOverMicroBatches) {
  std::vector<float> sum = before_;
  op_.weight_grad(x_.view(), parameters_.data(), dy_.view(), sum.data());
  op_.weight_grad(x_.view(), parameters_.data(), dy_.view(), sum.data());
  Doubles expected = CombinedInDoubles().parameters;
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] += expected[i] - static_cast<double>(before_[i]);
  }
  EXPECT_LT(RelativeError(AsDoubles(sum), expected), 1e-6);
}

TEST_P(SplitOperator, HasTheDifferencesOfItsForwardInFloat64AsItsCombinedGradients) {
  const BothGradients exact = CombinedInDoubles();
  EXPECT_LT(RelativeError(exact.parameters, ExpectedSum()), 1e-8);
  if (!op_.input_grad) return;
  EXPECT_LT(RelativeError(exact.x, ExpectedInputGrad()), 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SplitOperator, testing::ValuesIn(Operators()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace spiritlevel
