#include "report/advice.h"

#include <gmock/gmock.h>

#include "report/figures.h"
#include "tests/report/comparison_for_test.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr StageCost kEqualPasses{.forward = 1000,
                                 .input_grad = 1000,
                                 .weight_grad = 1000,
                                 .activation = 1000,
                                 .weight_state = 400};

// C28 of the field's cases: W is 2.5 % of BW. 69 units against 68.3.
ScenarioForTest SplitNotHappening() {
  return {.cost = {.forward = 1000, .input_grad = 1950, .weight_grad = 50}};
}

TEST(Advice, NothingRuns) {
  Comparison comparison = Compare({.ranks = 7, .cost = kEqualPasses}, {"dualpipe"});
  comparison.one_f_one_b.reset();
  EXPECT_EQ(FindAdvice(comparison).kind, AdviceKind::kNothingRuns);
  EXPECT_EQ(FindAdvice(comparison).schedule, "");
}

TEST(Advice, Weighs1F1BEvenWhereItWasNotAskedFor) {
  const Advice advice = FindAdvice(Compare({.ranks = 7, .cost = kEqualPasses}, {"dualpipe"}));
  EXPECT_EQ(advice.kind, AdviceKind::kNoGain);
  EXPECT_EQ(advice.schedule, "1f1b");
}

TEST(Advice, NothingFitsNamesTheSmallestAndWhatIsMissing) {
  // V-Min keeps floor((8 + 4) / 3) = 4 activations of a rank's share.
  const Comparison comparison = Compare({.cost = kEqualPasses, .memory_limit = 3500});
  const Advice advice = FindAdvice(comparison);
  EXPECT_EQ(advice.kind, AdviceKind::kNothingFits);
  EXPECT_EQ(advice.schedule, "");
  EXPECT_THAT(advice.text, HasSubstr("v-min needs least: 4000 B"));
  EXPECT_THAT(advice.text, HasSubstr("500 B over the limit of 3500 B"));
}

// Of each rank: what fits by the largest of them may not fit.
TEST(Advice, NothingFitsNamesTheRankThatIsShortOfItsOwnLimit) {
  Comparison comparison = Compare({.ranks = 2, .micro_batches = 4, .cost = kEqualPasses}, {"1f1b"});
  const std::vector<Bytes> peaks = comparison.results[0].summary->peak_bytes;
  comparison.rank_limits = {peaks[0] + 5000, peaks[1] - 200};
  comparison.results[0].fits = false;
  comparison.one_f_one_b = comparison.results[0];
  EXPECT_THAT(Advise(comparison), HasSubstr("on rank 1, 200 B over the limit of"));
}

// C27 of the field's cases: B and W by themselves, and layers that are recomputed.
TEST(Advice, WarnsOfASplitBackwardWhereLayersAreRecomputed) {
  Comparison comparison = Compare({.cost = kEqualPasses});
  const std::string best = FindAdvice(comparison).schedule;
  ASSERT_NE(best, "1f1b");
  EXPECT_THAT(Advise(comparison), Not(HasSubstr("recomputes")));
  for (Result& r : comparison.results) r.recomputes_in_split = r.schedule == best;
  EXPECT_THAT(Advise(comparison),
              testing::AllOf(HasSubstr("use " + best),
                             HasSubstr("recomputes twice and is slower than 1f1b"),
                             HasSubstr("full-again-in-w")));
}

TEST(Advice, NothingFitsSaysWhenNoOrderOfPassesCould) {
  const Comparison comparison =
      Compare({.cost = kEqualPasses, .common = {.static_bytes = 5000}, .memory_limit = 4500});
  EXPECT_EQ(FindAdvice(comparison).kind, AdviceKind::kNothingFits);
  EXPECT_THAT(Advise(comparison), HasSubstr("5000 B there, too much for any order of passes"));
}

TEST(Advice, AnotherFitsWhere1F1BDoesNot) {
  // V-Half keeps 8 / 2 + 1 = 5 activations, 1F1B 8, ZB-H1 8.
  const Advice advice = FindAdvice(Compare({.cost = kEqualPasses, .memory_limit = 6000}));
  EXPECT_EQ(advice.kind, AdviceKind::kInsteadOf1F1B);
  EXPECT_EQ(advice.schedule, "v-half");
  EXPECT_THAT(advice.text, HasSubstr("1f1b does not: it needs 8000 B on rank 0, 2000 B over"));
}

TEST(Advice, WithoutA1F1BThatRunsTheBestIsAdvised) {
  Comparison comparison = Compare({.cost = kEqualPasses}, {"zb-h1", "v-min"});
  comparison.one_f_one_b = Result{.schedule = "1f1b", .reason = "cannot be cut so"};
  const Advice advice = FindAdvice(comparison);
  EXPECT_EQ(advice.kind, AdviceKind::kInsteadOf1F1B);
  EXPECT_EQ(advice.schedule, "zb-h1");
  EXPECT_THAT(advice.text, HasSubstr("1f1b cannot run here"));
}

// C25 of the field's cases: with recomputation, what ZB-H1 holds between B and W fills the last
// rank, 4 x 32, where 1F1B holds the input of one micro-batch.
TEST(Advice, C25SaysToRunWAtOnceOnTheLateRanksThatDeferredWFills) {
  const ScenarioForTest recomputed{.ranks = 4,
                                   .micro_batches = 12,
                                   .cost = {.forward = 1000,
                                            .input_grad = 2000,
                                            .weight_grad = 1000,
                                            .activation = 2,
                                            .weight_state = 32},
                                   .memory_limit = 100};
  const Advice advice = FindAdvice(Compare(recomputed, {"1f1b", "zb-h1"}));
  EXPECT_EQ(advice.kind, AdviceKind::kNoRoom);
  EXPECT_THAT(advice.text, HasSubstr("128 B on rank 3, 28 B over the limit of 100 B; that waits "
                                     "for W: run W right after B on the late ranks, and rank 3 "
                                     "needs 2 B"));
}

TEST(Advice, SaysNothingOfWWhereTheFirstRankIsTheFullest) {
  const ScenarioForTest kept{.ranks = 4,
                             .micro_batches = 12,
                             .cost = {.forward = 1000,
                                      .input_grad = 1000,
                                      .weight_grad = 1000,
                                      .activation = 34,
                                      .weight_state = 32},
                             .memory_limit = 200};
  const std::string advice = Advise(Compare(kept, {"1f1b", "zb-h2"}));
  EXPECT_THAT(advice, HasSubstr("zb-h2 would be"));
  EXPECT_THAT(advice, Not(HasSubstr("right after B")));
}

TEST(Advice, BarelySplitMakes1F1BRight) {
  const Advice advice = FindAdvice(Compare(SplitNotHappening(), {"gpipe", "1f1b", "zb-h1"}));
  EXPECT_EQ(advice.kind, AdviceKind::kBarelySplit);
  EXPECT_EQ(advice.schedule, "1f1b");
  EXPECT_THAT(advice.text, HasSubstr("2.5 % of BW"));
  EXPECT_THAT(advice.text, HasSubstr("the split is not happening"));
}

TEST(Advice, BarelySplitPrefersAGainThatDoesNotNeedTheSplit) {
  // interleaved-zb is the faster by 0.6 %, all of it owed to W.
  const Comparison comparison = Compare(SplitNotHappening());
  const Advice advice = FindAdvice(comparison);
  ASSERT_LT(Find(comparison, "interleaved-zb").summary->step,
            Find(comparison, "interleaved").summary->step);
  EXPECT_EQ(advice.kind, AdviceKind::kBetter);
  EXPECT_EQ(advice.schedule, "interleaved");
  EXPECT_THAT(advice.text, HasSubstr("only 2.5 % of BW"));
  EXPECT_THAT(advice.text, Not(HasSubstr("do not count on it")));
}

TEST(Advice, AGainThatNeedsASplitThatIsNotThereIsNotToBeCountedOn) {
  const Advice advice = FindAdvice(Compare(SplitNotHappening(), {"1f1b", "zb-v"}));
  EXPECT_EQ(advice.kind, AdviceKind::kBetter);
  EXPECT_EQ(advice.schedule, "zb-v");
  EXPECT_THAT(advice.text, HasSubstr("do not count on it: W is only 2.5 % of BW"));
}

TEST(Advice, ASmallBubbleMakes1F1BRight) {
  // 7 of 1007 units are bubble.
  const Advice advice = FindAdvice(Compare({.micro_batches = 1000, .cost = kEqualPasses}));
  EXPECT_EQ(advice.kind, AdviceKind::kBubbleSmall);
  EXPECT_EQ(advice.schedule, "1f1b");
  EXPECT_THAT(advice.text, HasSubstr("0.7 % of the step"));
}

TEST(Advice, ASmallBubbleIsTheReasonEvenWhereTheSplitIsNotHappening) {
  ScenarioForTest scenario = SplitNotHappening();
  scenario.micro_batches = 1000;
  EXPECT_EQ(FindAdvice(Compare(scenario)).kind, AdviceKind::kBubbleSmall);
}

TEST(Advice, ASlowStageMakes1F1BRight) {
  // The last stage takes three times as long as each other: 64 x 9 units of work in 585.
  ScenarioForTest scenario{.ranks = 4, .micro_batches = 64};
  scenario.rows.assign(4, kEqualPasses);
  scenario.rows[3] = {.forward = 3000, .input_grad = 3000, .weight_grad = 3000};
  const Comparison comparison = Compare(scenario, {"gpipe", "1f1b", "zb-h1", "zb-h2"});
  const Advice advice = FindAdvice(comparison);
  EXPECT_EQ(advice.kind, AdviceKind::kBottleneck);
  EXPECT_EQ(advice.schedule, "1f1b");
  EXPECT_THAT(advice.text, HasSubstr("balance the stages"));
}

TEST(Advice, NoRoomNamesTheFasterOneAndWhatIsMissing) {
  // ZB-H2 keeps 15 activations and saves 14 units of 69; 1F1B keeps 8.
  const Comparison comparison =
      Compare({.cost = kEqualPasses, .memory_limit = 9000}, {"gpipe", "1f1b", "zb-h2"});
  const Advice advice = FindAdvice(comparison);
  EXPECT_EQ(advice.kind, AdviceKind::kNoRoom);
  EXPECT_EQ(advice.schedule, "1f1b");
  EXPECT_THAT(advice.text, HasSubstr("zb-h2 would be 1.25x as fast, but needs 15000 B on rank 0, "
                                     "6000 B over the limit of 9000 B"));
}

TEST(Advice, TrafficOfTheVPlacementEatsItsGain) {
  // V schedules send twice the messages; a hop here takes longer than a pass of half a share.
  ScenarioForTest scenario{.cost = kEqualPasses, .common = {.hop = {.latency = 900}}};
  const Comparison comparison = Compare(scenario, {"1f1b", "v-half"});
  const Advice advice = FindAdvice(comparison);
  EXPECT_EQ(advice.kind, AdviceKind::kTrafficEatsGain) << advice.text;
  EXPECT_EQ(advice.schedule, "1f1b");
  EXPECT_THAT(advice.text, HasSubstr("A rank of v-half waits"));
  // Without the hops it does gain.
  scenario.common = {};
  EXPECT_EQ(FindAdvice(Compare(scenario, {"1f1b", "v-half"})).kind, AdviceKind::kBetter);
}

TEST(Advice, NoGainIsSaidPlainly) {
  // GPipe and 1F1B take the same time (C34 of the field's cases).
  const Advice advice = FindAdvice(Compare({.cost = kEqualPasses}, {"gpipe", "1f1b"}));
  EXPECT_EQ(advice.kind, AdviceKind::kNoGain);
  EXPECT_EQ(advice.schedule, "1f1b");
}

TEST(Advice, TheBestComesWithItsGainItsMemoryAndItsReason) {
  // 69 units against 55, both 8 activations: C29 of the field's cases.
  const Advice advice = FindAdvice(Compare({.cost = kEqualPasses}, {"1f1b", "zb-h1"}));
  EXPECT_EQ(advice.kind, AdviceKind::kBetter);
  EXPECT_EQ(advice.schedule, "zb-h1");
  EXPECT_THAT(advice.text, HasSubstr("1.25x as fast as 1f1b (55 us a step instead of 69 us)"));
  EXPECT_THAT(advice.text, HasSubstr("in the same memory (8000 B)"));
  EXPECT_THAT(advice.text, HasSubstr("Weight gradients fill the bubble"));
  EXPECT_THAT(advice.text, HasSubstr("dependency stalls fall from 21 us to 7 us a rank"));
}

TEST(Advice, TheBestSaysWhatAFasterOneWouldNeed) {
  // Under no tail the steps of ZB-H2 interlock: 48 units against 55 (C31), at 15 activations.
  const Advice advice = FindAdvice(Compare(
      {.cost = kEqualPasses, .memory_limit = 8000, .tail = Tail::kNoTail}, {"zb-h1", "zb-h2"}));
  EXPECT_EQ(advice.kind, AdviceKind::kBetter);
  EXPECT_EQ(advice.schedule, "zb-h1");
  EXPECT_THAT(advice.text, HasSubstr("zb-h2 would be"));
  EXPECT_THAT(advice.text, HasSubstr("7000 B over the limit of 8000 B"));
}

TEST(Advice, InterleavingIsGivenAsTheReasonWhereWStaysInPlace) {
  const Advice advice = FindAdvice(Compare({.cost = kEqualPasses}, {"interleaved"}));
  EXPECT_EQ(advice.schedule, "interleaved");
  EXPECT_THAT(advice.text, HasSubstr("Stages half as long cut the bubble:"));
}

TEST(Advice, StepsWithinHalfAPercentAreDecidedByMemoryThenByTheCatalog) {
  Comparison comparison = Compare({.cost = kEqualPasses}, {"zb-h2", "zb-h1", "zb-v"});
  for (Result& result : comparison.results) result.summary->step = 50'000;
  comparison.results[0].summary->step = 49'800;  // zb-h2, with 15 activations instead of 8
  EXPECT_EQ(FindAdvice(comparison).schedule, "zb-h1");
  comparison.results[0].summary->step = 49'700;
  EXPECT_EQ(FindAdvice(comparison).schedule, "zb-h2");
}

TEST(Advice, WhatTheCheckerRefusedIsNeverAdvised) {
  Comparison comparison = Compare({.cost = kEqualPasses}, {"1f1b", "zb-h1"});
  comparison.results[1].valid = comparison.results[1].fits = false;
  EXPECT_EQ(FindAdvice(comparison).schedule, "1f1b");
}

TEST(Advice, AGainOfTwoPercentIsEnoughAndLessIsNot) {
  Comparison comparison = Compare({.cost = kEqualPasses}, {"1f1b", "zb-h1"});
  comparison.one_f_one_b->summary->step = comparison.results[0].summary->step = 51'000;
  comparison.results[1].summary->step = 50'000;
  EXPECT_EQ(FindAdvice(comparison).kind, AdviceKind::kBetter);
  comparison.results[1].summary->step = 50'001;
  EXPECT_EQ(FindAdvice(comparison).kind, AdviceKind::kNoGain);
}

// Five equal slices and one twice as slow: the V lays half of the slow one beside half of a light
// one.
TEST(Advice, SaysWhenAPlacementBalancesTheRanks) {
  StageCost slow = kEqualPasses;
  slow.forward = slow.input_grad = slow.weight_grad = 2000;
  ScenarioForTest scenario{.ranks = 6, .micro_batches = 120};
  scenario.rows.assign(5, kEqualPasses);
  scenario.rows.push_back(slow);
  const Advice advice = FindAdvice(Compare(scenario));
  EXPECT_EQ(advice.kind, AdviceKind::kBetter);
  EXPECT_THAT(advice.text,
              HasSubstr("Its placement balances the ranks: the busiest one works 540 us a step "
                        "instead of 720 us"));
}

}  // namespace
}  // namespace spiritlevel
