// From a model and a profile to the costs of every stage.
#include "models/model_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <vector>

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

std::vector<StageCost> ByStage(const Costs& costs) {
  std::vector<StageCost> stages;
  for (int stage = 0; stage < costs.num_stages(); ++stage) stages.push_back(costs.of(stage, 0));
  return stages;
}

TimeNs SumOf(const Costs& costs, TimeNs StageCost::*pass) {
  const std::vector<StageCost> stages = ByStage(costs);
  return std::accumulate(stages.begin(), stages.end(), TimeNs{0},
                         [pass](TimeNs sum, const StageCost& c) { return sum + c.*pass; });
}

// However the layers are cut, all of them run: to a nanosecond of rounding a stage.
TEST(ModelCosts, NoSplitLosesOrGainsWork) {
  const Architecture llama = Parsed(Llama8B());
  const Costs whole = CostsFromModel(llama, RunOn(1), MadeUpDevice());
  const LayersPerStage splits[] = {{8, 8, 8, 8}, {9, 9, 8, 6}, {32, 0}, {1, 31}, {0, 16, 16, 0}};
  for (const LayersPerStage& split : splits) {
    const int stages = static_cast<int>(split.size());
    const Costs costs = CostsFromModel(llama, RunOn(stages, split), MadeUpDevice());
    ASSERT_EQ(costs.num_stages(), stages);
    for (const auto pass : {&StageCost::forward, &StageCost::input_grad, &StageCost::weight_grad}) {
      const TimeNs all = whole.of(0, 0).*pass;
      EXPECT_THAT(SumOf(costs, pass), AllOf(Ge(all - stages), Le(all + stages)));
    }
  }
}

TEST(ModelCosts, TheFirstStageHasTheEmbeddingAndTheLastTheHead) {
  const Architecture llama = Parsed(Llama8B());
  const auto t = ByStage(CostsFromModel(llama, RunOn(4), MadeUpDevice()));
  EXPECT_EQ(t[1], t[2]);
  const Bytes tokens = 2 * kSequence;
  EXPECT_EQ(t[0].forward - t[1].forward,
            TimeOf(MadeUpDevice(), Embedding{.tokens = tokens, .width = 4096, .element = 2}));
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
  const auto t = ByStage(CostsFromModel(llama, RunOn(4), device));
  const double layer = static_cast<double>(t[1].forward) / 8;
  EXPECT_NEAR(static_cast<double>(t[3].forward - t[1].forward) / layer, 2.41, 0.005);
  EXPECT_EQ(t[0].forward, t[1].forward);
}

TEST(ModelCosts, WhatBelongsToRanksAndHopsFollowsFromTheProfile) {
  const Architecture llama = Parsed(Llama8B());
  const Costs costs = CostsFromModel(llama, RunOn(4), MadeUpDevice());
  const Costs::Common& common = costs.common();
  const Bytes message = 2 * kSequence * 4096 * 2;
  EXPECT_EQ(common.hop, (HopCost{.latency = 1000, .busy = message / 2, .bytes = message}));
  EXPECT_EQ(common.launch, 50);
  const int64_t last = 8 * 218'112'000LL + 525'336'576 + 4096;
  EXPECT_EQ(common.optimizer, 0);  // a line through nothing
  EXPECT_EQ(common.optimizer_by_stage[3], last / 4);
  ASSERT_EQ(common.static_by_stage.size(), 4u);
  EXPECT_EQ(Total(common.static_by_stage[3]), 16 * last);
  EXPECT_EQ(common.barrier, 2 * 2 * 1000);
  EXPECT_EQ(CostsFromModel(llama, RunOn(1), MadeUpDevice()).common().barrier, 0);
  EXPECT_EQ(costs.num_micro_batches(), 8);
}

// Base once a rank, the rest by parameter; what both ends share is stepped once where they meet.
TEST(ModelCosts, AnOptimizerStepIsThatOfTheRanksParameters) {
  const Architecture qwen = Parsed(Qwen06B());
  DeviceProfile device = MadeUpDevice();
  device.optimizer.base_ns = 700;
  const Costs costs = CostsFromModel(qwen, {.sequence_length = 512, .ranks = 4}, device);
  const ParameterCount count = CountParameters(qwen);
  const std::vector<int> ends = {0, 3};
  const std::vector<int> middle = {1, 2};
  EXPECT_EQ(costs.optimizer(middle), 700 + 14 * count.per_layer() / 4);
  EXPECT_EQ(costs.optimizer(ends),
            700 + (14 * count.per_layer() + count.embedding + count.final_norm) / 4);
  EXPECT_EQ(costs.optimizer(std::span(ends).first(1)),
            700 + (7 * count.per_layer() + count.embedding) / 4);
}

// The kernels of a pass, each with the factor of its class, summed by hand.
TEST(ModelCosts, BusyCoresSlowEachKernelDownByItsOwnClass) {
  const Architecture llama = Parsed(Llama8B());
  DeviceProfile device = MadeUpDevice();
  device.slowdown_all_cores = {1.25, 1.5, 3};
  ModelRun run = RunOn(32);
  const BlockWork layer = LayerWork(llama, run.shape(), 1);
  const auto sum = [&](Pass pass, bool busy) {
    double ns = 0;
    for (const NamedKernel& k : layer.kernels(pass)) {
      const auto kernel_class = static_cast<size_t>(ClassOf(k.kernel));
      ns += (busy ? device.slowdown_all_cores[kernel_class] : 1) * NanosecondsOf(device, k.kernel);
    }
    return ns;
  };
  for (const bool busy : {true, false}) {
    run.all_cores_busy = busy;
    const StageCost t = CostsFromModel(llama, run, device).of(1, 0);
    EXPECT_NEAR(static_cast<double>(t.forward), sum(Pass::kF, busy), 1);
    EXPECT_NEAR(static_cast<double>(t.input_grad), sum(Pass::kB, busy), 1);
    EXPECT_NEAR(static_cast<double>(t.weight_grad), sum(Pass::kW, busy), 1);
  }
}

// Its step streams; its launches and messages are as they were.
TEST(ModelCosts, BusyCoresSlowTheOptimizerDownAndNoMessage) {
  const Architecture llama = Parsed(Llama8B());
  DeviceProfile device = MadeUpDevice();
  device.optimizer.base_ns = 700;
  const Costs alone = CostsFromModel(llama, RunOn(4), device);
  device.slowdown_all_cores = {1, 1, 3};
  const Costs busy = CostsFromModel(llama, RunOn(4), device);
  EXPECT_EQ(busy.common().optimizer, 3 * alone.common().optimizer);
  for (size_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(busy.common().optimizer_by_stage[stage],
              3 * alone.common().optimizer_by_stage[stage]);
  }
  EXPECT_EQ(busy.common().hop, alone.common().hop);
  EXPECT_EQ(busy.common().launch, alone.common().launch);
}

// The head is a large product: where layers slow down more than it does, it is worth fewer of them.
TEST(ModelCosts, ASplitByTimeKnowsThatCoresAreBusy) {
  const Architecture llama = Parsed(Llama8B());
  DeviceProfile device = OnlyFlops();
  const LayersPerStage alone = BalancedSplit(llama, RunOn(4), device);
  device.slowdown_all_cores = {1, 40, 1};
  const LayersPerStage busy = BalancedSplit(llama, RunOn(4), device);
  EXPECT_GT(busy.back(), alone.back());
  ModelRun run = RunOn(4);
  run.all_cores_busy = false;
  EXPECT_EQ(BalancedSplit(llama, run, device), alone);
}

TEST(ModelCosts, TwiceTheStagesAreCutAnew) {
  const Architecture llama = Parsed(Llama8B());
  ModelRun run = RunOn(8);
  run.stages = 16;
  const Costs costs = CostsFromModel(llama, run, OnlyFlops());
  EXPECT_EQ(costs.num_stages(), 16);
  EXPECT_EQ(costs.of(1, 0), costs.of(14, 0));
  EXPECT_GT(costs.of(15, 0).forward, costs.of(14, 0).forward);
}

TEST(ModelCosts, TheDocumentationListsWhatIsNotModelled) {
  std::ifstream file("docs/models.md");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_NE(text, "");
  for (const std::string_view line : NotModelled()) {
    EXPECT_THAT(text, HasSubstr("\n- " + std::string(line) + "\n"));
  }
}

TEST(ModelCosts, ARunThatDoesNotFitTheModelOrTheProfileIsRefused) {
  const Architecture llama = Parsed(Llama8B());
  const auto refusal = [&](const ModelRun& run, const DeviceProfile& device) {
    return InputErrorOf([&] { CostsFromModel(llama, run, device); });
  };
  ModelRun run = RunOn(4);
  run.dtype = DType::kFloat32;
  EXPECT_THAT(refusal(run, MadeUpDevice()), HasSubstr("measured with bfloat16, not float32"));
  EXPECT_THAT(refusal(RunOn(5), MadeUpDevice()), HasSubstr("32 are configured"));
  EXPECT_THAT(refusal(RunOn(0), MadeUpDevice()), HasSubstr("ranks: 0"));
  EXPECT_THAT(refusal(RunOn(4, {16, 16}), MadeUpDevice()), HasSubstr("do not fit"));
  run = RunOn(4);
  run.recompute = {Recompute::kFull, Recompute::kNothing};
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
