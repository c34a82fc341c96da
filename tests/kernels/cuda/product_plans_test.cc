#include "kernels/cuda/product_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/kernels/cuda/fake_layer.h"

namespace spiritlevel::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

int NumberOf(const ProductAlgorithm& algorithm) { return static_cast<int>(algorithm.opaque.at(0)); }

class Plans : public testing::Test {
 protected:
  Plans() : Plans(FakeSettings{}) {}
  explicit Plans(const FakeSettings& settings)
      : layer_(settings), stream_(layer_.MakeStream(0, Partition{}, false)) {}

  View Matrix(int64_t rows, int64_t cols, ElementType type = ElementType::kFloat32) {
    return Dense(layer_.Allocate(0, rows * cols * SizeOf(type)), type, rows, cols);
  }
  // 4 x 6 by 6 x 8.
  Product Forward() { return {.a = Matrix(4, 6), .b = Matrix(6, 8), .c = Matrix(4, 8)}; }

  FakeLayer layer_;
  Stream stream_;
};

TEST_F(Plans, TheLibraryIsAskedOncePerKindOfProduct) {
  ProductPlans plans(&layer_, 0, {});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(NumberOf(plans.For(Forward())), 0);
  EXPECT_EQ(plans.questions(), 1);
  EXPECT_EQ(plans.size(), 1);
}

// Everything that an algorithm may be right or quick by makes another kind.
TEST_F(Plans, EachDifferenceIsAKindOfItsOwn) {
  ProductPlans plans(&layer_, 0, {});
  const Product base = Forward();
  const View wide = Matrix(8, 16);
  float* const scale = static_cast<float*>(layer_.Allocate(0, 4));
  const std::vector<std::function<void(Product*)>> changes = {
      [](Product*) {},
      [](Product* p) {
        p->a = p->a.Rows(0, 2);
        p->c = p->c.Rows(0, 2);
      },
      [&](Product* p) { p->a = wide.Rows(0, 4).Columns(0, 6); },
      [&](Product* p) { p->b = wide.Rows(0, 6).Columns(0, 8); },
      [&](Product* p) { p->c = wide.Rows(0, 4).Columns(0, 8); },
      [&](Product* p) {
        p->a = wide.Rows(0, 6).Columns(0, 4);
        p->transpose_a = true;
      },
      [&](Product* p) {
        p->b = wide.Rows(0, 8).Columns(0, 6);
        p->transpose_b = true;
      },
      [](Product* p) { p->beta = 1; },
      [&](Product* p) { p->a = wide.Rows(0, 4).Columns(1, 6); },  // begins 4 bytes on
      [&](Product* p) {
        p->a = Matrix(4, 6, ElementType::kBFloat16);
        p->b = Matrix(6, 8, ElementType::kBFloat16);
      },
      [&](Product* p) {
        p->a = Matrix(4, 6, ElementType::kFloat8E4M3);
        p->b = Matrix(6, 8, ElementType::kFloat8E4M3);
        p->scale_a = p->scale_b = scale;
      },
  };
  int kinds = 0;
  for (const auto& change : changes) {
    Product product = base;
    change(&product);
    plans.For(product);
    EXPECT_EQ(plans.questions(), ++kinds);
  }
  for (const auto& change : changes) {
    Product product = base;
    change(&product);
    plans.For(product);
  }
  EXPECT_EQ(plans.questions(), kinds) << "each of them is known by now";
}

TEST_F(Plans, AnAddressIsAsAlignedAsItsLowestBitAndNoMoreThan256) {
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1000)), 256);
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1100)), 256);
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1080)), 128);
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1002)), 2);
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1001)), 1);
}

TEST_F(Plans, NoAlgorithmWithinTheWorkspaceIsSaidWithTheShapes) {
  FakeSettings settings;
  settings.algorithms = 0;
  FakeLayer layer(settings);
  ProductPlans plans(&layer, 0, {.workspace = 2048});
  try {
    plans.For(Forward());
    FAIL();
  } catch (const GpuError& e) {
    EXPECT_EQ(e.kind(), GpuErrorKind::kUnsupported);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("product"), HasSubstr("workspace of 2 KiB")));
  }
  EXPECT_EQ(plans.size(), 0);
}

TEST_F(Plans, AFailedQuestionIsAskedAgain) {
  ProductPlans plans(&layer_, 0, {});
  layer_.FailCall("FindAlgorithms", 1, GpuErrorKind::kOther);
  const Product product = Forward();
  EXPECT_THROW(plans.For(product), GpuError);
  EXPECT_EQ(NumberOf(plans.For(product)), 0);
}

// Durations by algorithm; Tune() is to keep the first of the quickest.
class TunedPlans : public testing::Test {
 protected:
  static int ChosenFrom(const std::vector<TimeNs>& durations, ProductPlanSettings settings = {},
                        const std::string& failing = "") {
    FakeSettings fake;
    fake.algorithms = static_cast<int>(durations.size());
    fake.duration = [durations](const FakeCost& cost) { return durations.at(cost.algorithm); };
    FakeLayer layer(fake);
    const Stream stream = layer.MakeStream(0, Partition{}, false);
    const auto matrix = [&](int64_t rows, int64_t cols) {
      return Dense(layer.Allocate(0, rows * cols * 4), ElementType::kFloat32, rows, cols);
    };
    const Product product{.a = matrix(2, 3), .b = matrix(3, 2), .c = matrix(2, 2)};
    ProductPlans plans(&layer, 0, settings);
    void* const workspace = layer.Allocate(0, settings.workspace);
    if (!failing.empty()) layer.FailCall(failing, 1, GpuErrorKind::kUnsupported);
    const ProductPlan plan = plans.Tune(product, stream, workspace);
    EXPECT_EQ(NumberOf(plans.For(product)), plan.chosen);
    EXPECT_EQ(plan.median, durations.at(plan.chosen));
    const size_t calls = layer.calls().size();
    plans.Tune(product, stream, workspace);
    EXPECT_EQ(layer.calls().size(), calls) << "a second time it does nothing";
    EXPECT_EQ(layer.live_events(), 0) << "its events end with it";
    EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
    return plan.chosen;
  }
};

TEST_F(TunedPlans, TheQuickestIsKept) {
  EXPECT_EQ(ChosenFrom({50, 20, 30}), 1);
  EXPECT_EQ(ChosenFrom({50, 60, 10}), 2);
}

TEST_F(TunedPlans, OfEqualOnesTheLibrarysEarlierIsKept) {
  EXPECT_EQ(ChosenFrom({50, 20, 20}), 1);
  EXPECT_EQ(ChosenFrom({20, 20, 20}), 0);
}

TEST_F(TunedPlans, OnlySoManyCandidatesAreTimed) {
  EXPECT_EQ(ChosenFrom({50, 40, 1}, {.candidates = 2}), 1);
}

// The second and third need a workspace of 1024 and 2048 bytes.
TEST_F(TunedPlans, WhatNeedsMoreWorkspaceIsNoCandidate) {
  EXPECT_EQ(ChosenFrom({50, 40, 1}, {.workspace = 1500}), 1);
}

TEST_F(TunedPlans, OneThatTheDeviceRefusesIsPassedOver) {
  EXPECT_EQ(ChosenFrom({10, 40, 30}, {}, "Multiply"), 2);
}

TEST_F(Plans, ADeviceThatIsLostWhileTuningIsToldAndLeavesNoEvents) {
  ProductPlans plans(&layer_, 0, {});
  const Product product = Forward();
  void* const workspace = layer_.Allocate(0, plans.settings().workspace);
  layer_.BreakLaunch(3);
  try {
    plans.Tune(product, stream_, workspace);
    FAIL();
  } catch (const GpuError& e) {
    EXPECT_EQ(e.kind(), GpuErrorKind::kAsynchronous);
  }
  EXPECT_EQ(layer_.live_events(), 0);
}

}  // namespace
}  // namespace spiritlevel::cuda
