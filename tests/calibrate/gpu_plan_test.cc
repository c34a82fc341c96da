#include "calibrate/gpu_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace spiritlevel {
namespace {

Architecture SmallModel() {
  Architecture a;
  a.name = "LlamaForCausalLM";
  a.layers = 4;
  a.hidden = 2'048;
  a.heads = 32;
  a.kv_heads = 4;
  a.head_dim = 64;
  a.ffn = 5'632;
  a.vocabulary = 32'000;
  a.max_positions = 4'096;
  return a;
}

constexpr BlockShape kShape{.sequence = 2'048, .micro_batch = 2};

std::vector<std::vector<PlannedWork>> AllPlans() {
  return {MakeGpuPlan(/*quick=*/false), MakeGpuPlan(/*quick=*/true),
          MakeGpuPlan(SmallModel(), kShape)};
}

TEST(GpuPlan, HasEachShapeOnceInOrderOfRounds) {
  for (const std::vector<PlannedWork>& plan : AllPlans()) {
    std::set<std::string> known;
    int round = 0;
    for (const PlannedWork& work : plan) {
      EXPECT_TRUE(known.insert(work.what).second) << work.what << " is there twice";
      EXPECT_GE(work.round, round);
      round = work.round;
      EXPECT_GT(work.units, 0) << work.what;
      EXPECT_GE(work.rows, 1) << work.what;
    }
  }
}

TEST(GpuPlan, TheFirstRoundSufficesForAProfileAndLaterOnesJudgeIt) {
  for (const std::vector<PlannedWork>& plan : AllPlans()) {
    std::map<Primitive, std::set<double>> first;
    std::map<Primitive, int> held_out;
    for (const PlannedWork& work : plan) {
      if (work.round == 0 && !work.held_out) first[work.primitive].insert(work.units);
      held_out[work.primitive] += work.held_out;
    }
    for (const PrimitiveInfo& info : Primitives()) {
      EXPECT_GE(first[info.primitive].size(), 2u) << info.name;
      EXPECT_GE(held_out[info.primitive], 1) << info.name;
    }
  }
}

// The layer's own kernels, forward and backward, with both halves of its norms; the head's and the
// embedding's: all fitted, and never left out for want of time.
TEST(GpuPlan, HasTheShapesOfAModelsKernels) {
  const Architecture model = SmallModel();
  std::map<std::string, const PlannedWork*> by_name;
  const std::vector<PlannedWork> plan = MakeGpuPlan(model, kShape);
  for (const PlannedWork& work : plan) by_name[work.what] = &work;
  const auto expect = [&](const Kernel& kernel) {
    const auto found = by_name.find(ToString(kernel));
    ASSERT_NE(found, by_name.end()) << ToString(kernel);
    EXPECT_EQ(found->second->round, 0) << ToString(kernel);
    EXPECT_FALSE(found->second->held_out) << ToString(kernel);
  };
  int kernels = 0;
  for (const BlockWork& block :
       {LayerWork(model, kShape, 0), EmbeddingWork(model, kShape), HeadWork(model, kShape)}) {
    for (const Pass pass : {Pass::kF, Pass::kB, Pass::kW}) {
      for (const NamedKernel& named : block.kernels(pass)) {
        ++kernels;
        const auto* const norm = std::get_if<Norm>(&named.kernel);
        if (norm == nullptr || norm->part != Norm::Part::kBackward) {
          expect(named.kernel);
          continue;
        }
        Norm half = *norm;
        half.part = Norm::Part::kInputGrad;
        expect(half);
        half.part = Norm::Part::kWeightGrad;
        expect(half);
      }
    }
  }
  EXPECT_GT(kernels, 20);
  // Its tokens are those of the whole micro-batch.
  expect(Gemm{.m = 4'096, .n = 2'048, .k = 5'632});
  EXPECT_LT(plan.size(), MakeGpuPlan(/*quick=*/false).size());
}

// A kernel that there is none of would not be measured; the sweep's tells of it.
TEST(GpuPlan, LeavesAWindowedAttentionToTheSweep) {
  Architecture model = SmallModel();
  model.windows = {512, 0, 512, 0};
  for (const PlannedWork& work : MakeGpuPlan(model, kShape)) {
    const Kernel* const kernel = std::get_if<Kernel>(&work.work);
    const Attention* const attention = kernel == nullptr ? nullptr : std::get_if<Attention>(kernel);
    EXPECT_TRUE(attention == nullptr || attention->window == 0) << work.what;
  }
}

}  // namespace
}  // namespace spiritlevel
