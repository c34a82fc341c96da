#include "kernels/cpu/linear.h"

#include <gtest/gtest.h>

#include <random>

#include "base/check.h"
#include "kernels/cpu/blas.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel {
namespace {

constexpr double kTolerance = 2e-6;  // of fp32 sums of up to 200 products

struct Shape {
  int64_t rows, in, out;
};

Doubles Transposed(const Doubles& a, int64_t rows, int64_t cols) {
  Doubles t(a.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) t[j * rows + i] = a[i * cols + j];
  }
  return t;
}

class Linear : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { cpu::UseOneBlasThread(); }

  std::mt19937 random_{41};
  Shape s_ = GetParam();
  Strided x_{s_.rows, s_.in, &random_};
  Strided w_{s_.in, s_.out, &random_};
  Strided dy_{s_.rows, s_.out, &random_};
};

TEST_P(Linear, ForwardIsTheProductInFloat64) {
  Strided y(s_.rows, s_.out, 7.0f);  // to be overwritten
  cpu::LinearForward(x_.view(), w_.view(), nullptr, y.view());
  EXPECT_LT(RelativeError(y.values(), Product(x_.values(), w_.values(), s_.rows, s_.out, s_.in)),
            kTolerance);
  EXPECT_TRUE(y.GapsAreUntouched());
}

TEST_P(Linear, TheBiasIsAddedToEachRow) {
  const std::vector<float> bias = Floats(RandomDoubles(static_cast<size_t>(s_.out), &random_));
  Strided y(s_.rows, s_.out, 7.0f);
  cpu::LinearForward(x_.view(), w_.view(), bias.data(), y.view());
  Doubles expected = Product(x_.values(), w_.values(), s_.rows, s_.out, s_.in);
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] += static_cast<double>(bias[i % static_cast<size_t>(s_.out)]);
  }
  EXPECT_LT(RelativeError(y.values(), expected), kTolerance);
}

TEST_P(Linear, GradientsAreTheProductsInFloat64) {
  Strided dx(s_.rows, s_.in, 7.0f);
  Strided dw(s_.in, s_.out, 0.0f);
  std::vector<float> db(static_cast<size_t>(s_.out), 0.0f);
  cpu::LinearInputGrad(dy_.view(), w_.view(), dx.view());
  cpu::LinearWeightGrad(x_.view(), dy_.view(), dw.view(), db.data());
  const Doubles wt = Transposed(w_.values(), s_.in, s_.out);
  const Doubles xt = Transposed(x_.values(), s_.rows, s_.in);
  const Doubles ones(static_cast<size_t>(s_.rows), 1.0);
  EXPECT_LT(RelativeError(dx.values(), Product(dy_.values(), wt, s_.rows, s_.in, s_.out)),
            kTolerance);
  EXPECT_LT(RelativeError(dw.values(), Product(xt, dy_.values(), s_.in, s_.out, s_.rows)),
            kTolerance);
  EXPECT_LT(RelativeError(AsDoubles(db), Product(ones, dy_.values(), 1, s_.out, s_.rows)),
            kTolerance);
  EXPECT_TRUE(dx.GapsAreUntouched() && dw.GapsAreUntouched());
}

// That those products are the gradients, differences say that know no derivative.
TEST(LinearGradients, AreThoseOfFiniteDifferences) {
  std::mt19937 random(43);
  Strided x(4, 5, &random);
  Strided w(5, 3, &random);
  Strided dy(4, 3, &random);
  Strided dx(4, 5, 0.0f);
  Strided dw(5, 3, 0.0f);
  cpu::LinearInputGrad(dy.view(), w.view(), dx.view());
  cpu::LinearWeightGrad(x.view(), dy.view(), dw.view(), nullptr);
  const auto of_x = [&](const Doubles& v) {
    return Dot(dy.values(), Product(v, w.values(), 4, 3, 5));
  };
  const auto of_w = [&](const Doubles& v) {
    return Dot(dy.values(), Product(x.values(), v, 4, 3, 5));
  };
  EXPECT_LT(RelativeError(dx.values(), Gradient(of_x, x.values())), 1e-6);
  EXPECT_LT(RelativeError(dw.values(), Gradient(of_w, w.values())), 1e-6);
}

// W of several micro-batches adds up in one gradient.
TEST_P(Linear, WeightGradientsAccumulate) {
  Strided once(s_.in, s_.out, 0.0f);
  cpu::LinearWeightGrad(x_.view(), dy_.view(), once.view(), nullptr);
  Strided thrice(s_.in, s_.out, 1.0f);
  std::vector<float> db(static_cast<size_t>(s_.out), 1.0f);
  for (int i = 0; i < 3; ++i) {
    cpu::LinearWeightGrad(x_.view(), dy_.view(), thrice.view(), db.data());
  }
  Doubles expected = once.values();
  for (double& value : expected) value = 1 + 3 * value;
  EXPECT_LT(RelativeError(thrice.values(), expected), kTolerance);
  Doubles sums(static_cast<size_t>(s_.out), 1.0);
  const Doubles dy = dy_.values();
  for (size_t i = 0; i < dy.size(); ++i) sums[i % sums.size()] += 3 * dy[i];
  EXPECT_LT(RelativeError(AsDoubles(db), sums), kTolerance);
}

// A pipeline may run W long after B: the same calls give the same bits.
TEST_P(Linear, ALaterWGivesTheSameBits) {
  Strided first(s_.in, s_.out, 0.0f);
  Strided later(s_.in, s_.out, 0.0f);
  Strided dx(s_.rows, s_.in, 0.0f);
  cpu::LinearInputGrad(dy_.view(), w_.view(), dx.view());
  cpu::LinearWeightGrad(x_.view(), dy_.view(), first.view(), nullptr);
  Strided y(s_.rows, s_.out, 0.0f);
  cpu::LinearForward(x_.view(), w_.view(), nullptr, y.view());  // other work between
  Strided x = x_;                                               // kept elsewhere meanwhile
  Strided dy = dy_;
  cpu::LinearWeightGrad(x.view(), dy.view(), later.view(), nullptr);
  EXPECT_EQ(first.values(), later.values());
}

INSTANTIATE_TEST_SUITE_P(OddAndEvenSizes, Linear,
                         testing::Values(Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{16, 8, 12},
                                         Shape{1, 17, 33}, Shape{65, 129, 31}, Shape{128, 64, 96},
                                         Shape{200, 37, 150}));

TEST(LinearShapes, ThatDoNotFitAreOurFault) {
  Strided x(4, 5, 0.0f);
  Strided w(6, 7, 0.0f);
  Strided y(4, 7, 0.0f);
  EXPECT_THROW(cpu::LinearForward(x.view(), w.view(), nullptr, y.view()), InvariantError);
}

}  // namespace
}  // namespace spiritlevel
