// From a model and a profile to the costs of every stage.
#include "models/model_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/base/input_error_of.h"
#include "tests/models/configs.h"
#include "tests/models/made_up_device.h"

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;

constexpr int64_t kSequence = 512;

ModelRun RunOn(int ranks, LayersPerStage layers = {}) {
  return {.sequence_length = kSequence,
          .micro_batch_size = 2,
          .ranks = ranks,
          .micro_batches = 8,
          .layers_per_stage = std::move(layers)};
}

TimeNs SumOf(const ModelSlices& slices, TimeNs StageCost::*pass) {
  return std::accumulate(slices.table.begin(), slices.table.end(), TimeNs{0},
                         [pass](TimeNs sum, const StageCost& c) { return sum + c.*pass; });
}

// However the layers are cut, all of them run: to a nanosecond of rounding a stage.
TEST(ModelCosts, NoSplitLosesOrGainsWork) {
  const Architecture llama = Parsed(Llama8B());
  const ModelSlices whole = SlicesFromModel(llama, RunOn(1), MadeUpDevice());
  const LayersPerStage splits[] = {{8, 8, 8, 8}, {9, 9, 8, 6}, {32, 0}, {1, 31}, {0, 16, 16, 0}};
  for (const LayersPerStage& split : splits) {
    const int stages = static_cast<int>(split.size());
    const ModelSlices slices = SlicesFromModel(llama, RunOn(stages, split), MadeUpDevice());
    ASSERT_EQ(slices.rows, stages);
    for (const auto pass : {&StageCost::forward, &StageCost::input_grad, &StageCost::weight_grad}) {
      EXPECT_THAT(SumOf(slices, pass),
                  AllOf(Ge(whole.table[0].*pass - stages), Le(whole.table[0].*pass + stages)));
    }
  }
}

TEST(ModelCosts, TheFirstStageHasTheEmbeddingAndTheLastTheHead) {
  const Architecture llama = Parsed(Llama8B());
  const ModelSlices slices = SlicesFromModel(llama, RunOn(4), MadeUpDevice());
  const auto& t = slices.table;
  EXPECT_EQ(t[1], t[2]);
  const Bytes tokens = 2 * kSequence;
  EXPECT_EQ(t[0].forward - t[1].forward, 400 + 2 * tokens * 4096 * 2);  // made-up: 1 ns a byte
  EXPECT_EQ(t[0].input_grad, t[1].input_grad);
  const TimeNs head = TimeOf(
      MadeUpDevice(), Gemm{.m = tokens, .n = 128256, .k = 4096, .use = Gemm::Use::kWeightGrad});
  EXPECT_EQ(t[3].weight_grad - t[2].weight_grad, head);
  EXPECT_GT(t[3].activation - t[2].activation, 4 * tokens * 128256);
}

// C07: the head of Llama-3-8B is worth 2.4 layers of matrix products.
TEST(ModelCosts, TheHeadOfLlama8BIsWorthTwoAndAHalfLayers) {
  const Architecture llama = Parsed(Llama8B());
  DeviceProfile device = OnlyFlops();
  device.attention_forward = device.attention_backward = {};
  const auto& t = SlicesFromModel(llama, RunOn(4), device).table;
  const double layer = static_cast<double>(t[1].forward) / 8;
  EXPECT_NEAR(static_cast<double>(t[3].forward - t[1].forward) / layer, 2.41, 0.005);
  EXPECT_EQ(t[0].forward, t[1].forward);
}

TEST(ModelCosts, WhatBelongsToRanksAndHopsFollowsFromTheProfile) {
  const Architecture llama = Parsed(Llama8B());
  const ModelSlices slices = SlicesFromModel(llama, RunOn(4), MadeUpDevice());
  const Bytes message = 2 * kSequence * 4096 * 2;
  EXPECT_EQ(slices.common.hop, (HopCost{.latency = 1000, .busy = message / 2, .bytes = message}));
  EXPECT_EQ(slices.common.launch, 50);
  const int64_t last = 8 * 218'112'000LL + 525'336'576 + 4096;
  EXPECT_EQ(slices.common.optimizer, last / 4);
  ASSERT_EQ(slices.common.static_by_stage.size(), 4u);
  EXPECT_EQ(Total(slices.common.static_by_stage[3]), 16 * last);
  EXPECT_EQ(slices.common.barrier, 2 * 2 * 1000);
  EXPECT_EQ(SlicesFromModel(llama, RunOn(1), MadeUpDevice()).common.barrier, 0);
  EXPECT_EQ(slices.micro_batches, 8);
  EXPECT_EQ(CostsForStages(slices, 4).num_stages(), 4);
}

TEST(ModelCosts, BusyCoresSlowEveryPassDown) {
  const Architecture llama = Parsed(Llama8B());
  DeviceProfile device = MadeUpDevice();
  device.slowdown_all_cores = 1.25;
  ModelRun run = RunOn(4);
  const TimeNs busy = SlicesFromModel(llama, run, device).table[1].forward;
  run.all_cores_busy = false;
  const TimeNs alone = SlicesFromModel(llama, run, device).table[1].forward;
  EXPECT_NEAR(static_cast<double>(busy), 1.25 * static_cast<double>(alone), 2);
}

TEST(ModelCosts, TwiceTheStagesAreCutAnew) {
  const Architecture llama = Parsed(Llama8B());
  ModelRun run = RunOn(8);
  run.stages = 16;
  const ModelSlices slices = SlicesFromModel(llama, run, OnlyFlops());
  EXPECT_EQ(slices.rows, 16);
  EXPECT_EQ(slices.ranks, 8);
  EXPECT_EQ(slices.table[1], slices.table[14]);
  EXPECT_GT(slices.table[15].forward, slices.table[14].forward);
}

TEST(ModelCosts, ARunThatDoesNotFitTheModelOrTheProfileIsRefused) {
  const Architecture llama = Parsed(Llama8B());
  const auto refusal = [&](const ModelRun& run, const DeviceProfile& device) {
    return InputErrorOf([&] { SlicesFromModel(llama, run, device); });
  };
  ModelRun run = RunOn(4);
  run.dtype = DType::kFloat32;
  EXPECT_THAT(refusal(run, MadeUpDevice()), HasSubstr("measured with bfloat16, not float32"));
  EXPECT_THAT(refusal(RunOn(5), MadeUpDevice()), HasSubstr("32 are configured"));
  EXPECT_THAT(refusal(RunOn(0), MadeUpDevice()), HasSubstr("ranks: 0"));
  EXPECT_THAT(refusal(RunOn(4, {16, 16}), MadeUpDevice()), HasSubstr("do not fit"));
  run = RunOn(4);
  run.recompute = {Recompute::kFull, Recompute::kNone};
  EXPECT_THAT(refusal(run, MadeUpDevice()), HasSubstr("2 entries for 4 stages"));
  DeviceProfile slow = MadeUpDevice();
  slow.gemm[0].points = {{1, 1e9}};
  EXPECT_THAT(refusal(RunOn(4), slow), HasSubstr("more than a day"));
  DeviceProfile broken = MadeUpDevice();
  broken.gemm[0].points.clear();
  EXPECT_THAT(refusal(RunOn(4), broken), HasSubstr("has no points"));
}

}  // namespace
}  // namespace spiritlevel
