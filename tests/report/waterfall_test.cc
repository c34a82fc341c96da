#include "report/waterfall.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "sim/engine.h"
#include "tests/report/page_for_test.h"
#include "tests/report/sums_for_test.h"

namespace spiritlevel {
namespace {

TimeNs Part(const Waterfall& waterfall, WaterfallPart part) { return waterfall[part]; }

// 1F1B on 3 ranks with 4 micro-batches, F = 1, B + W = 2: every rank works 4 (1 + 2) = 12; the
// first waits for p - 1 = 2 further turns of 3; nothing else takes time.
TEST(Waterfall, OfEqualStagesIsWorkAndBubble) {
  const ScenarioForTest scenario{
      .ranks = 3, .micro_batches = 4, .cost = {.forward = 1, .input_grad = 1, .weight_grad = 1}};
  const Waterfall expected{.parts = {12, 0, 6, 0, 0, 0}};
  EXPECT_EQ(WaterfallOf(scenario, "1f1b"), expected);
}

// A barrier of 5 and an optimizer step of 7 stand after it all.
TEST(Waterfall, TailIsTheBarrierAndTheOptimizer) {
  const ScenarioForTest scenario{.ranks = 3,
                                 .micro_batches = 4,
                                 .cost = {.forward = 1, .input_grad = 1, .weight_grad = 1},
                                 .common = {.optimizer = 7, .barrier = 5}};
  const Waterfall expected{.parts = {12, 0, 6, 0, 0, 12}};
  EXPECT_EQ(WaterfallOf(scenario, "1f1b"), expected);
}

// ZB-H2, p = 8, m = 16, equal times: without a barrier a step is the work alone, 16 x 3 = 48; with
// it 55. The 7 are the barrier's doing, though it takes no time itself.
TEST(Waterfall, TailIsAlsoWhatTheBarrierKeepsApart) {
  const ScenarioForTest scenario{
      .ranks = 8, .micro_batches = 16, .cost = {.forward = 1, .input_grad = 1, .weight_grad = 1}};
  const Waterfall expected{.parts = {48, 0, 0, 0, 0, 7}};
  EXPECT_EQ(WaterfallOf(scenario, "zb-h2"), expected);
}

// Two ranks, one micro-batch: rank 0 works 10 + 10, rank 1 30 + 10. The mean is 30, the larger 40;
// the whole chain is 10 + 30 + 10 + 10 = 60.
TEST(Waterfall, ImbalanceIsTheFullestRankAboveTheMean) {
  const ScenarioForTest scenario{.ranks = 2,
                                 .micro_batches = 1,
                                 .rows = {{.forward = 10, .input_grad = 5, .weight_grad = 5},
                                          {.forward = 30, .input_grad = 5, .weight_grad = 5}}};
  const Waterfall expected{.parts = {30, 10, 20, 0, 0, 0}};
  EXPECT_EQ(WaterfallOf(scenario, "1f1b"), expected);
}

// GPipe's chain of 2 (p - 1) hops of 3 and of 2 (m + p - 1) launches of 1: F's 4 launches to fill,
// then the same back. p = 2, m = 1: hops 2 x 3; ops on the chain F0 F1 BW1 BW0, each launched.
TEST(Waterfall, TransferAndLaunchAreWhatTheChainCrosses) {
  const ScenarioForTest scenario{.ranks = 2,
                                 .micro_batches = 1,
                                 .cost = {.forward = 10, .input_grad = 5, .weight_grad = 5},
                                 .common = {.hop = {.latency = 3}, .launch = 1}};
  const Waterfall expected{.parts = {20, 0, 20, 6, 4, 0}};
  EXPECT_EQ(WaterfallOf(scenario, "gpipe"), expected);
}

// A sum that holds for every schedule and any costs, and parts that cannot be negative.
TEST(Waterfall, SumsToTheStepAndBoundsAreNeverNegative) {
  constexpr unsigned kSeed = 20240607;
  std::mt19937 random(kSeed);
  const auto upto = [&](int most) { return static_cast<TimeNs>(random() % (most + 1)); };
  for (int round = 0; round < 60; ++round) {
    ScenarioForTest scenario{.ranks = 2 * static_cast<int>(1 + upto(2)),
                             .micro_batches = 2 * static_cast<int>(1 + upto(5)),
                             .common = {.hop = {.latency = upto(20), .busy = upto(9)},
                                        .launch = upto(3),
                                        .optimizer = upto(30),
                                        .barrier = upto(9)},
                             .tail = round % 2 == 0 ? Tail::kBarrier : Tail::kNoTail};
    for (int row = 0; row < 2 * scenario.ranks; ++row) {
      scenario.rows.push_back(
          {.forward = 1 + upto(40), .input_grad = 1 + upto(40), .weight_grad = 1 + upto(40)});
    }
    for (const ScheduleInfo& info : AllSchedules()) {
      const Result result = ResultOf(scenario, info.name);
      if (!result.summary) continue;
      const Waterfall waterfall = WaterfallOf(scenario, info.name);
      const std::string where = std::string(info.name) + ", round " + std::to_string(round) +
                                ", seed " + std::to_string(kSeed);
      EXPECT_EQ(waterfall.step(), result.summary->step) << where;
      EXPECT_GT(Part(waterfall, WaterfallPart::kIdeal), 0) << where;
      EXPECT_GE(Part(waterfall, WaterfallPart::kImbalance), 0) << where;
      EXPECT_GE(Part(waterfall, WaterfallPart::kSchedule), 0) << where;
    }
  }
}

Waterfall WaterfallOf(const PlayedWithSums& played) {
  return FindWaterfall(played.schedule, played.costs, played.options, played.summary.step);
}

// What stands before the tail is the same with sums of gradients and without them, under any tail
// and however W is cut for them; all that they cost is the tail's.
TEST(Waterfall, TailContainsTheSumsOfGradients) {
  for (const std::string_view name : {"1f1b", "zb-h1", "interleaved", "dualpipe"}) {
    for (const Tail tail : {Tail::kBarrier, Tail::kNoTail, Tail::kSpeculativeValidation}) {
      for (const WeightGrads order : {WeightGrads::kByMicroBatch, WeightGrads::kByBucket}) {
        SCOPED_TRACE(std::string(name) + ", " + std::string(Name(tail)) + ", " +
                     std::string(Name(order)));
        SumsForTest scenario{.schedule = name, .options = {.tail = tail, .weight_grads = order}};
        const PlayedWithSums with = Play(scenario);
        scenario.buckets = scenario.twins = scenario.tied = false;
        const PlayedWithSums without = Play(scenario);
        const Waterfall waterfall = WaterfallOf(with), bare = WaterfallOf(without);
        EXPECT_EQ(waterfall.step(), with.summary.step);
        EXPECT_EQ(bare.step(), without.summary.step);
        for (const WaterfallPart part :
             {WaterfallPart::kIdeal, WaterfallPart::kImbalance, WaterfallPart::kSchedule,
              WaterfallPart::kTransfer, WaterfallPart::kLaunch}) {
          EXPECT_EQ(waterfall[part], bare[part]) << Name(part);
        }
        EXPECT_EQ(waterfall[WaterfallPart::kTail] - bare[WaterfallPart::kTail],
                  with.summary.step - without.summary.step);
      }
    }
  }
}

// 1F1B on 2 ranks with 2 micro-batches and F = 2, BW = 4 is 6 x 3 = 18. The last BW of rank 0 ends
// it: its one bucket takes 5, what both ends share 7, the optimizer 1 and 2 for its stage.
TEST(Waterfall, TailIsTheBucketTheTiedSumAndTheStep) {
  const Schedule schedule =
      FindSchedule("1f1b").Make({.ranks = 2, .micro_batches = 2, .stages_per_rank = 2});
  const StageCost cost{.forward = 2, .fused_backward = 4};
  const Costs::Common common{
      .optimizer = 1,
      .optimizer_by_stage = {2, 2},
      .gradients = {.buckets = {{{.sum = {.duration = 5}}}, {{.sum = {.duration = 5}}}},
                    .tied = {{.duration = 7}}}};
  const Costs costs = Costs::Uniform(2, 2, cost, common);
  const LoweringOptions options{.iterations = kPeriodIterations};
  const Program program = Lower(schedule, costs, options);
  const Summary summary = Summarize(program, costs, SimulateInOrder(program));
  const Waterfall expected{.parts = {12, 0, 6, 0, 0, 5 + 7 + 1 + 2}};
  EXPECT_EQ(FindWaterfall(schedule, costs, options, summary.step), expected);
}

// A run in which a version is rejected has the waterfall of its schedule, too.
TEST(Waterfall, OfARejectedRunStillSumsToItsStep) {
  const PlayedWithSums played = Play(EverythingOnAPage().back());
  ASSERT_FALSE(played.options.rejected.empty());
  EXPECT_EQ(WaterfallOf(played).step(), played.summary.step);
}

TEST(Waterfall, NamesItsPartsInOrder) {
  EXPECT_EQ(Name(WaterfallPart::kIdeal), "ideal");
  EXPECT_EQ(Name(WaterfallPart::kSchedule), "schedule");
  EXPECT_EQ(Name(WaterfallPart::kTail), "tail");
}

}  // namespace
}  // namespace spiritlevel
