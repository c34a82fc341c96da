// Layers to stages by time: the slowest stage takes as little as can be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
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
#include "tests/models/stopwatch.h"
#include "tests/sanitized.h"

namespace spiritlevel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kPatience = kSanitized ? 20 : 1;

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

// Every way to give each of the stages between the first and the last a layer or more.
void ForEachSplit(int64_t layers, size_t stages, LayersPerStage* begun,
                  const std::function<void(const LayersPerStage&)>& tell) {
  if (begun->size() + 1 == stages) {
    begun->push_back(layers);
    tell(*begun);
    begun->pop_back();
    return;
  }
  const auto after = static_cast<int64_t>(stages - begun->size()) - 2;  // the last needs none
  for (int64_t count = begun->empty() ? 0 : 1; count <= layers - after; ++count) {
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

// A head is worth a stage of its own if it is long enough; a stage without a head needs layers.
TEST(Stages, ASplitByTimeLeavesNoStageWithNothingToDo) {
  const StageTime time = WithAHeadOf24Tenths(4);
  EXPECT_THAT(StagesByTime(4, 4, time), ElementsAre(2, 1, 1, 0));
  EXPECT_THAT(InputErrorOf([&] { StagesByTime(3, 4, time); }),
              HasSubstr("3 layers cannot fill 4 stages"));
  EXPECT_THAT(StagesByTime(7, 1, WithAHeadOf24Tenths(1)), ElementsAre(7));
}

StageGroups VOf(int ranks) {
  StageGroups groups;
  for (int r = 0; r < ranks; ++r) groups.push_back({r, 2 * ranks - 1 - r});
  return groups;
}

StageGroups LoopOf(int ranks, int chunks) {
  StageGroups groups(static_cast<size_t>(ranks));
  for (int stage = 0; stage < ranks * chunks; ++stage) groups[stage % ranks].push_back(stage);
  return groups;
}

using RankQuality = std::tuple<TimeNs, TimeNs, int64_t>;  // busiest, slowest, squares

RankQuality QualityOf(const LayersPerStage& layers, const StageGroups& groups,
                      const StageTime& time) {
  std::vector<TimeNs> times;
  int64_t first = 0;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    times.push_back(time(stage, first, layers[stage]));
    first += layers[stage];
  }
  TimeNs busiest = 0;
  int64_t squares = 0;
  for (const std::vector<int>& group : groups) {
    TimeNs sum = 0;
    for (const int stage : group) sum += times[static_cast<size_t>(stage)];
    busiest = std::max(busiest, sum);
  }
  for (const TimeNs t : times) squares += t * t;
  return {busiest, *std::max_element(times.begin(), times.end()), squares};
}

RankQuality BestOf(int64_t layers, const StageGroups& groups, size_t stages,
                   const StageTime& time) {
  std::optional<RankQuality> best;
  LayersPerStage begun;
  ForEachSplit(layers, stages, &begun, [&](const LayersPerStage& split) {
    const RankQuality quality = QualityOf(split, groups, time);
    if (!best || quality < *best) best = quality;
  });
  return *best;
}

// In a V on 4 ranks the first rank holds the head too.
// By hand: 23.5 layers' worth on 4 ranks is 6 at best, so rank 0
// has 4 layers and the head, the others 6 each.
TEST(Stages, InAVTheHeadTakesLayersFromItsRank) {
  const StageTime time = [](size_t stage, int64_t, int64_t layers) {
    return 10 * layers + (stage == 7 ? 15 : 0);
  };
  const LayersPerStage split = StagesOnRanks(22, 8, VOf(4), time);
  EXPECT_EQ(split[0] + split[7], 4);
  for (size_t r = 1; r < 4; ++r) EXPECT_EQ(split[r] + split[7 - r], 6);
  EXPECT_EQ(QualityOf(split, VOf(4), time), BestOf(22, VOf(4), 8, time));
  // Balanced stage by stage, a rank has more: 3 3 3 3 3 3 3 1.
  EXPECT_THAT(StagesByTime(22, 8, time), ElementsAre(3, 3, 3, 3, 3, 3, 3, 1));
}

TEST(Stages, TheSplitOnRanksIsTheBestOfAllSplitsWhereLayersAreAlike) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int ranks = static_cast<int>(1 + random() % 3);
    const int chunks = static_cast<int>(2 + random() % 2);
    const StageGroups groups = random() % 2 == 0 ? VOf(ranks) : LoopOf(ranks, chunks);
    size_t stages = 0;
    for (const std::vector<int>& group : groups) stages += group.size();
    const auto layers = static_cast<int64_t>(stages + random() % 6);
    const TimeNs layer = 1 + random() % 9;
    const TimeNs embedding = random() % 12;
    const TimeNs head = random() % 40;
    const StageTime time = [&](size_t stage, int64_t, int64_t count) {
      return layer * count + (stage == 0 ? embedding : 0) + (stage + 1 == stages ? head : 0);
    };
    const LayersPerStage split = StagesOnRanks(layers, static_cast<int64_t>(stages), groups, time);
    EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), layers);
    EXPECT_EQ(QualityOf(split, groups, time), BestOf(layers, groups, stages, time))
        << "seed " << seed << ": " << layers << " layers on " << ranks << " ranks";
  }
}

TEST(Stages, WhereLayersDifferTheBusiestRankIsWithinALayerOfTheBest) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const StageGroups groups = VOf(static_cast<int>(2 + random() % 2));
    const size_t stages = 2 * groups.size();
    const auto layers = static_cast<int64_t>(stages + random() % 6);
    const TimeNs odd = 5 + random() % 10;  // windows on every other layer
    const StageTime time = [&](size_t stage, int64_t first, int64_t count) {
      TimeNs sum = stage + 1 == stages ? 20 : 0;
      for (int64_t i = first; i < first + count; ++i) sum += i % 2 == 0 ? 10 : odd;
      return sum;
    };
    const LayersPerStage split = StagesOnRanks(layers, static_cast<int64_t>(stages), groups, time);
    EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), layers);
    EXPECT_LT(std::get<0>(QualityOf(split, groups, time)),
              std::get<0>(BestOf(layers, groups, stages, time)) + std::max<TimeNs>(10, odd))
        << "seed " << seed;
  }
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

// Where stages take no time, or all the same, nothing narrows where each may begin.
TEST(Stages, ASplitOfThousandsOfLayersTakesLessThanASecondOrIsRefused) {
  const StageTime nothing = [](size_t, int64_t, int64_t) { return TimeNs{0}; };
  const StageTime heads = [](size_t stage, int64_t, int64_t layers) {
    return layers + (stage == 0 ? 20'000 : 0);
  };
  for (const StageTime& time : {nothing, heads}) {
    for (const int stages : {100, 400, 5'000, 10'000}) {
      for (const bool v : {false, true}) {
        const Stopwatch watch;
        LayersPerStage split;
        const std::string refusal = InputErrorOf([&] {
          split = v ? StagesOnRanks(10'000, stages, VOf(stages / 2), time)
                    : StagesByTime(10'000, stages, time);
        });
        EXPECT_LT(watch.Seconds(), kPatience) << stages << " stages, V: " << v;
        EXPECT_TRUE(stages > 400 || refusal.empty()) << refusal;
        if (refusal.empty()) {
          EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), 10'000);
        } else {
          EXPECT_THAT(refusal, HasSubstr("too many to balance by time\n    split them evenly"));
        }
      }
    }
  }
}

TEST(Stages, AGivenStageWithMoreLayersThanTheModelIsRefusedByItsNumber) {
  EXPECT_THAT(InputErrorOf([] {
                GivenStages(22, {INT64_MAX, INT64_MAX});
              }),
              HasSubstr("9223372036854775807 are more than the 22 of the model"));
  EXPECT_THAT(InputErrorOf([] { GivenStages(22, {22, 22}); }), HasSubstr("44"));
}

}  // namespace
}  // namespace spiritlevel
