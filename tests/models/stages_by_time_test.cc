// Layers to stages by time: the slowest stage takes as little as can be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "models/model_costs.h"
#include "models/stages.h"
#include "sim/evaluate.h"
#include "sim/schedules/catalog.h"
#include "tests/base/input_error_of.h"
#include "tests/models/configs.h"
#include "tests/models/made_up_device.h"

namespace spiritlevel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// C07: equal layers, a head worth 2.4 of them, an embedding that takes no time.
StageTime WithAHeadOf24Tenths(int64_t stages) {
  return [stages](size_t stage, int64_t, int64_t layers) {
    return 10 * layers + (static_cast<int64_t>(stage) + 1 == stages ? 24 : 0);
  };
}

TEST(Stages, C07TheHeadTakesLayersFromTheLastStage) {
  EXPECT_THAT(StagesByTime(32, 4, WithAHeadOf24Tenths(4)), ElementsAre(9, 9, 8, 6));
}

// One forward of a stage of `layers` is that many units of 100 ns, its backward twice that.
TimeNs OneFOneBOf(const LayersPerStage& layers, int micro_batches) {
  const int stages = static_cast<int>(layers.size());
  std::vector<StageCost> table;
  for (size_t i = 0; i < layers.size(); ++i) {
    const TimeNs f = 100 * layers[i] + (i + 1 == layers.size() ? 241 : 0);
    table.push_back({.forward = f,
                     .input_grad = f,
                     .weight_grad = f,
                     .fused_backward = 2 * f,
                     .overlapped = 3 * f});
  }
  const Costs costs(stages, micro_batches, table, {});
  const Schedule schedule =
      FindSchedule("1f1b").Make({.ranks = stages, .micro_batches = micro_batches});
  Evaluator evaluator(costs);
  return evaluator.Evaluate(schedule, Tail::kNoTail).makespan;
}

TEST(Stages, C07TheBalancedSplitIsAnEighthFasterThanTheEvenOne) {
  EXPECT_NEAR(static_cast<double>(OneFOneBOf({8, 8, 8, 8}, 8)), 32'180, 10);
  EXPECT_NEAR(static_cast<double>(OneFOneBOf({9, 9, 8, 6}, 8)), 28'750, 10);
  const double even = static_cast<double>(OneFOneBOf({8, 8, 8, 8}, 32));
  const double balanced = static_cast<double>(OneFOneBOf({9, 9, 8, 6}, 32));
  EXPECT_NEAR(even / balanced, 1.145, 0.002);
  // Of those with as short a slowest stage.
  for (const LayersPerStage& other : {LayersPerStage{9, 8, 9, 6}, {8, 9, 9, 6}, {9, 9, 9, 5}}) {
    EXPECT_GE(OneFOneBOf(other, 8), OneFOneBOf({9, 9, 8, 6}, 8));
  }
}

struct Quality {
  TimeNs slowest = 0;
  int64_t squares = 0;
  LayersPerStage layers{};

  bool operator<(const Quality& other) const {
    return std::tie(slowest, squares, other.layers) <
           std::tie(other.slowest, other.squares, layers);
  }
};

Quality QualityOf(const LayersPerStage& layers, const StageTime& time) {
  Quality quality{.layers = layers};
  int64_t first = 0;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    const TimeNs t = time(stage, first, layers[stage]);
    quality.slowest = std::max(quality.slowest, t);
    quality.squares += t * t;
    first += layers[stage];
  }
  return quality;
}

// Every way to give each of the stages a layer or more.
void ForEachSplit(int64_t layers, size_t stages, LayersPerStage* begun,
                  const std::function<void(const LayersPerStage&)>& tell) {
  if (begun->size() + 1 == stages) {
    begun->push_back(layers);
    tell(*begun);
    begun->pop_back();
    return;
  }
  const auto after = static_cast<int64_t>(stages - begun->size() - 1);
  for (int64_t count = 1; count <= layers - after; ++count) {
    begun->push_back(count);
    ForEachSplit(layers - count, stages, begun, tell);
    begun->pop_back();
  }
}

TEST(Stages, TheSplitByTimeIsTheBestOfAllSplits) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto layers = static_cast<int64_t>(1 + random() % 9);
    const auto stages = static_cast<int64_t>(1 + random() % static_cast<unsigned>(layers));
    std::vector<TimeNs> until = {0};
    for (int64_t i = 0; i < layers; ++i) until.push_back(until.back() + random() % 4);
    const TimeNs embedding = random() % 5;
    const TimeNs head = random() % 9;
    const StageTime time = [&](size_t stage, int64_t first, int64_t count) {
      return until[static_cast<size_t>(first + count)] - until[static_cast<size_t>(first)] +
             (stage == 0 ? embedding : 0) + (static_cast<int64_t>(stage) + 1 == stages ? head : 0);
    };
    std::optional<Quality> best;
    LayersPerStage begun;
    ForEachSplit(layers, static_cast<size_t>(stages), &begun, [&](const LayersPerStage& split) {
      const Quality quality = QualityOf(split, time);
      if (!best || quality < *best) best = quality;
    });
    EXPECT_EQ(StagesByTime(layers, stages, time), best->layers)
        << "seed " << seed << ": " << layers << " layers on " << stages << " stages";
  }
}

TEST(Stages, ASplitByTimeLeavesNoStageWithoutALayer) {
  const StageTime time = WithAHeadOf24Tenths(4);
  EXPECT_THAT(StagesByTime(4, 4, time), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(InputErrorOf([&] { StagesByTime(3, 4, time); }),
              HasSubstr("3 layers cannot fill 4 stages"));
  EXPECT_THAT(StagesByTime(7, 1, WithAHeadOf24Tenths(1)), ElementsAre(7));
}

// The same on a model: where only products take time, its head is worth 2.41 layers.
TEST(Stages, C07TheBalancedSplitOfLlama8BOnFourRanks) {
  DeviceProfile device = OnlyFlops();
  device.attention_forward = device.attention_backward = {};
  const Architecture llama = Parsed(Llama8B());
  const ModelRun run{.sequence_length = 1024, .ranks = 4};
  EXPECT_THAT(BalancedSplit(llama, run, device), ElementsAre(9, 9, 8, 6));
}

// A look-up that takes time makes the first stage the one with a layer less.
TEST(Stages, ASplitCountsTheEmbeddingAndWhatIsRunAgain) {
  DeviceProfile device = OnlyFlops();
  device.embedding_forward.line.per_unit_ns = 1;
  const Architecture llama = Parsed(Llama8B());
  ModelRun run{.sequence_length = 1024, .ranks = 4};
  EXPECT_THAT(BalancedSplit(llama, run, device), ElementsAre(8, 9, 9, 6));
  // Layers that are run again on two of the stages are 4/3 as long there.
  run.recompute = {Recompute::kFull, Recompute::kFull, Recompute::kNothing, Recompute::kNothing};
  const LayersPerStage split = BalancedSplit(llama, run, OnlyFlops());
  EXPECT_EQ(split[0] + split[1] + split[2] + split[3], 32);
  EXPECT_LT(std::max(split[0], split[1]), split[2]);
}

}  // namespace
}  // namespace spiritlevel
