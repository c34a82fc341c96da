// What the kernels do at their edges: overflow, NaN, rows that do not count, tokens that do not
// exist, large sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/host_kernels.h"
#include "tests/kernels/cuda/cpu_results.h"
#include "tests/kernels/cuda/examples.h"

namespace spiritlevel {
namespace {

using cuda::ElementType;
using testing::Each;
using testing::IsNan;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One row of a view's numbers.
Doubles Row(const cuda::View& view, int64_t row) { return ValuesOf(view.Rows(row, 1)); }

class Loss : public testing::Test {
 protected:
  // Losses of rows that are all `logits`.
  Doubles LossesOf(const Doubles& logits, const Doubles& targets) {
    Example example("cross_entropy_forward", {.rows = static_cast<int64_t>(targets.size()),
                                              .cols = static_cast<int64_t>(logits.size()),
                                              .gap = 3});
    for (size_t i = 0; i < targets.size(); ++i) {
      SetValues(example.view("logits").Rows(static_cast<int64_t>(i), 1), logits);
    }
    SetValues(example.view("targets"), targets);
    RunOnHost(example.call());
    return example.values("losses");
  }
};

TEST_F(Loss, OfAnIgnoredTargetIsNothing) {
  EXPECT_EQ(LossesOf({1, 2, 3}, {-1, 2})[0], 0);
  EXPECT_GT(LossesOf({1, 2, 3}, {-1, 2})[1], 0);
}

TEST_F(Loss, OfATargetThatDoesNotExistIsNaN) {
  for (const double target : {-2.0, 3.0, 1e9}) {
    const Doubles losses = LossesOf({1, 2, 3}, {target, 1});
    EXPECT_TRUE(std::isnan(losses[0])) << target;
    EXPECT_FALSE(std::isnan(losses[1])) << target;
  }
}

TEST_F(Loss, SeesNaNAndInfinityWhereverTheyAre) {
  for (const size_t at : {size_t{0}, size_t{7}, size_t{300}, size_t{4999}}) {
    for (const double bad : {kNaN, kInfinity}) {
      Doubles logits(5000, 0.5);
      logits[at] = bad;
      EXPECT_THAT(LossesOf(logits, {3}), Each(IsNan())) << bad << " at " << at;
    }
  }
}

// A masked logit has the probability 0, also where a lane sees no other.
TEST_F(Loss, IsUsedToMaskedLogits) {
  Doubles logits(5000, -kInfinity);
  logits[4999] = 2;
  logits[3] = 2;
  EXPECT_NEAR(LossesOf(logits, {3})[0], std::log(2.0), 1e-6);
  EXPECT_EQ(LossesOf(logits, {4})[0], kInfinity);
}

TEST_F(Loss, OfLargeLogitsKeepsItsDigits) {
  EXPECT_NEAR(LossesOf({65536 + 8.0, 65536}, {0})[0], std::log1p(std::exp(-8.0)), 1e-7);
  EXPECT_NEAR(LossesOf({-1e30, -1e30}, {0})[0], std::log(2.0), 1e-6);
}

TEST(LossGradient, IsNothingForAnIgnoredTargetAndNaNForOneThatDoesNotExist) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    Example example("cross_entropy_backward", {type, 3, 9, 3});
    SetValues(example.view("targets"), {-1, 9, 0});
    RunOnHost(example.call());
    const cuda::View logits = example.view("logits");
    EXPECT_THAT(Row(logits, 0), Each(0.0));
    EXPECT_THAT(Row(logits, 1), Each(IsNan()));
    EXPECT_LT(Row(logits, 2)[0], 0);
    EXPECT_GT(Row(logits, 2)[1], 0);
  }
}

TEST(EmbeddingLimits, ATokenThatDoesNotExistMakesNaNAndLeavesTheTableAlone) {
  for (const double token : {-1.0, 17.0}) {
    Example forward("embedding_forward", {.rows = 3, .cols = 5});
    SetValues(forward.view("tokens"), {2, token, 2});
    RunOnHost(forward.call());
    EXPECT_THAT(Row(forward.view("x"), 1), Each(IsNan()));
    EXPECT_EQ(Row(forward.view("x"), 0), Row(forward.view("table"), 2));

    Example backward("embedding_weight_grad", {.rows = 1, .cols = 5});
    SetValues(backward.view("tokens"), {token});
    const Doubles before = backward.values("dtable");
    RunOnHost(backward.call());
    EXPECT_EQ(backward.values("dtable"), before);
  }
}

// More rows than a block notes at once, and more columns than it has lanes for.
TEST(EmbeddingLimits, OneTokenInAllRowsIsSummedInTheirOrder) {
  for (const ExampleShape& shape : {ExampleShape{ElementType::kFloat32, 8300, 3, 3},
                                    ExampleShape{ElementType::kBFloat16, 40, 4100, 0}}) {
    Example example("embedding_weight_grad", shape);
    SetValues(example.view("tokens"), Doubles(static_cast<size_t>(shape.rows), 5));
    const Doubles expected = CpuResults(example.call()).at("dtable");
    RunOnHost(example.call());
    EXPECT_EQ(example.values("dtable"), expected) << ToString(shape);
  }
}

TEST(NormLimits, ARowOfZerosStaysOneAndAnOverflowIsSeen) {
  for (const char* const kind : {"rms_norm_forward", "layer_norm_forward"}) {
    Example example(kind, {.rows = 2, .cols = 33, .gap = 3});
    SetValues(example.view("x").Rows(0, 1), Doubles(33));
    SetValues(example.view("x").Rows(1, 1).Columns(20, 1), {kInfinity});
    RunOnHost(example.call());
    for (const double value : Row(example.view("y"), 0)) EXPECT_TRUE(std::isfinite(value)) << kind;
    EXPECT_TRUE(std::isnan(Row(example.view("y"), 1)[20])) << kind;
  }
}

// mean(x^2) - mean(x)^2 has no digits left here.
TEST(NormLimits, ALargeMeanCostsNoDigits) {
  Example example("layer_norm_forward", {.rows = 1, .cols = 64});
  Doubles x(64, 4096);
  for (size_t j = 1; j < x.size(); j += 2) x[j] = 4097;
  SetValues(example.view("x"), x);
  SetValues(example.view("weight"), Doubles(64, 1));
  SetValues(example.view("bias"), Doubles(64, 0));
  std::get<cuda::LayerNormForward>(example.call()).epsilon = 0;
  RunOnHost(example.call());
  const Doubles y = example.values("y");
  for (size_t j = 0; j < y.size(); ++j) EXPECT_NEAR(y[j], j % 2 == 0 ? -1 : 1, 1e-6);
}

// In fp32, adding 4097^2 to 2^50 changes nothing that is right.
TEST(SumOfSquaresLimits, ManySquaresLoseNoneAndAnOverflowIsSeen) {
  constexpr int64_t kCount = (int64_t{1} << 20) + 3;
  Example example("sum_of_squares", {.rows = 1, .cols = kCount});
  Doubles x(kCount, 4097);
  SetValues(example.view("x"), x);
  RunOnHost(example.call());
  EXPECT_EQ(example.values("sum")[0], kCount * 4097.0 * 4097.0);
  for (const double bad : {kInfinity, kNaN}) {
    SetValues(example.view("x").Columns(kCount - 1, 1), {bad});
    RunOnHost(example.call());
    EXPECT_FALSE(std::isfinite(example.values("sum")[0]));
  }
}

TEST(ActivationLimits, AreReachedWithoutOverflow) {
  Example gelu("gelu_forward", {.rows = 1, .cols = 5});
  SetValues(gelu.view("x"), {-1000, -100, 100, 1000, kNaN});
  RunOnHost(gelu.call());
  const Doubles y = gelu.values("y");
  EXPECT_EQ(Doubles(y.begin(), y.begin() + 4), Doubles({0, 0, 100, 1000}));
  EXPECT_TRUE(std::isnan(y[4]));

  Example swiglu("swiglu_backward", {.rows = 1, .cols = 3});
  SetValues(swiglu.view("gate"), {-100, 100, kNaN});
  SetValues(swiglu.view("up"), {1, 1, 1});
  SetValues(swiglu.view("dy"), {2, 2, 2});
  RunOnHost(swiglu.call());
  const Doubles dgate = swiglu.values("dgate");
  const Doubles dup = swiglu.values("dup");
  EXPECT_NEAR(dgate[0], 0, 1e-30);
  EXPECT_EQ(dgate[1], 2);
  EXPECT_NEAR(dup[0], 0, 1e-30);
  EXPECT_EQ(dup[1], 200);
  EXPECT_TRUE(std::isnan(dgate[2]) && std::isnan(dup[2]));
}

TEST(Conversion, OverflowsToInfinityInBf16AndIsCutInFp8) {
  const Doubles from = {3.4e38, -3.4e38, 1e6, kInfinity, kNaN, 1};
  const auto converted = [&](ElementType type) {
    Example example("convert", {.type = type, .rows = 1, .cols = 6});
    SetValues(example.view("from"), from);
    RunOnHost(example.call());
    return example.values("to");
  };
  const Doubles bf16 = converted(ElementType::kBFloat16);
  EXPECT_EQ(Doubles(bf16.begin(), bf16.begin() + 2), Doubles({kInfinity, -kInfinity}));
  EXPECT_TRUE(bf16[3] == kInfinity && std::isnan(bf16[4]) && bf16[5] == 1);
  const Doubles e4m3 = converted(ElementType::kFloat8E4M3);
  EXPECT_EQ(Doubles(e4m3.begin(), e4m3.begin() + 3), Doubles({448, -448, 448}));
  EXPECT_TRUE(std::isnan(e4m3[3]) && std::isnan(e4m3[4]) && e4m3[5] == 1);
  const Doubles e5m2 = converted(ElementType::kFloat8E5M2);
  EXPECT_EQ(Doubles(e5m2.begin(), e5m2.begin() + 3), Doubles({57344, -57344, 57344}));
  EXPECT_TRUE(e5m2[3] == kInfinity && std::isnan(e5m2[4]) && e5m2[5] == 1);
}

TEST(Optimizer, AnOverflowOfTheGradientReachesParametersAndMoments) {
  for (const double bad : {kInfinity, kNaN}) {
    Example example("adamw_step", {ElementType::kBFloat16, 1, 9, 0});
    SetValues(example.view("gradient").Columns(8, 1), {bad});
    RunOnHost(example.call());
    for (const std::string& name : example.results()) {
      EXPECT_FALSE(std::isfinite(example.values(name)[8])) << name;
      EXPECT_TRUE(std::isfinite(example.values(name)[7])) << name;
    }
  }
}

TEST(Optimizer, UndoingAStepGivesBackWhatWasBefore) {
  for (const int64_t step : {1, 2, 1000}) {
    Example example("adamw_step", {ElementType::kBFloat16, 3, 33, 3});
    auto& call = std::get<cuda::AdamWStep>(example.call());
    call.step = step;
    if (step == 1) {
      SetValues(call.first_moment, Doubles(99));
      SetValues(call.second_moment, Doubles(99));
    }
    RunOnHost(cuda::Convert{call.exact, call.stored});
    std::map<std::string, Doubles> before;
    for (const std::string& name : example.results()) before[name] = example.values(name);
    RunOnHost(call);
    EXPECT_NE(example.values("exact"), before["exact"]);
    RunOnHost(cuda::AdamWUndo{call});
    EXPECT_LT(RelativeError(example.values("exact"), before["exact"]), 1e-6) << step;
    EXPECT_LT(RelativeError(example.values("first_moment"), before["first_moment"]), 1e-6) << step;
    EXPECT_LT(RelativeError(example.values("second_moment"), before["second_moment"]), 2e-4)
        << step;
    EXPECT_LT(RelativeError(example.values("stored"), before["stored"]), 1e-2) << step;
  }
}

TEST(ProductOnTheHost, DoesNotReadWhatItReplaces) {
  Example example("product", {.rows = 3, .cols = 4});
  auto& call = std::get<cuda::Product>(example.call());
  SetValues(call.c, Doubles(15, kNaN));
  call.beta = 0;
  RunOnHost(call);
  for (const double value : ValuesOf(call.c)) EXPECT_TRUE(std::isfinite(value));
}

TEST(ProductOnTheHost, TurnsAndScalesItsOperands) {
  const float scale_a = 0.25f;
  const float scale_b = 8;
  Example memory("fill", {.rows = 1, .cols = 1});
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      cuda::Product call{
          .a = memory.Random(ElementType::kFloat8E4M3, transpose_a ? 7 : 3, transpose_a ? 3 : 7),
          .transpose_a = transpose_a,
          .b = memory.Random(ElementType::kFloat8E5M2, transpose_b ? 5 : 7, transpose_b ? 7 : 5),
          .transpose_b = transpose_b,
          .c = memory.Random(ElementType::kFloat32, 3, 5)};
      const Doubles plain = CpuResults(call).at("c");
      call.scale_a = &scale_a;
      call.scale_b = &scale_b;
      RunOnHost(call);
      Doubles twice = ValuesOf(call.c);
      for (double& value : twice) value /= 2;
      EXPECT_LT(RelativeError(twice, plain), 1e-6) << transpose_a << transpose_b;
    }
  }
}

}  // namespace
}  // namespace spiritlevel
