#include "report/verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/verification_figures.h"
#include "sim/analysis/check_timeline.h"
#include "sim/analysis/stalls.h"
#include "sim/engine.h"
#include "sim/event.h"
#include "sim/schedules/catalog.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

Costs SmallCosts(int stages, int micro_batches) {
  return Costs::Uniform(stages, micro_batches,
                        {.forward = 100,
                         .input_grad = 110,
                         .weight_grad = 90,
                         .fused_backward = 200,
                         .overlapped = 300,
                         .activation = 10,
                         .weight_state = 4},
                        {.hop = {.latency = 7}, .optimizer = 20, .barrier = 5, .static_bytes = 50});
}

struct Case {
  Schedule schedule;
  Costs costs;
  Program program;
  Timeline timeline;
};

Case Play(std::string_view name, int iterations, Tail tail = Tail::kBarrier) {
  Schedule schedule = FindSchedule(name).Make({.ranks = 3, .micro_batches = 6});
  Costs costs = SmallCosts(schedule.num_stages(), 6);
  Program program = Lower(schedule, costs, {.tail = tail, .iterations = iterations});
  Timeline timeline = SimulateInOrder(program);
  return {std::move(schedule), std::move(costs), std::move(program), std::move(timeline)};
}

// The catalog's placements, with F&B pairs, sums of twins, and both kinds of tail.
const std::vector<std::string_view> kNames = {"1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"};

TEST(VerificationFigures, StepOfTheLastIterationsIsThePeriod) {
  for (const std::string_view name : kNames) {
    for (const Tail tail : {Tail::kNoTail, Tail::kBarrier}) {
      const Case played = Play(name, 6, tail);
      const std::vector<IterationFigures> all = FiguresByIteration(played.program, played.timeline);
      ASSERT_THAT(all, SizeIs(5));
      EXPECT_EQ(all.back().step, PeriodOf(played.program, played.timeline)) << name;
    }
  }
}

// The first iteration starts on an empty pipeline at time 0, so it needs no cut.
TEST(VerificationFigures, TheFirstIterationCutOutIsTheRunOfOneIteration) {
  for (const std::string_view name : kNames) {
    const Case all = Play(name, 3);
    const Case one = Play(name, 1);
    const Timeline cut = OneIteration(all.program, all.timeline, 0, one.program);
    EXPECT_EQ(cut, one.timeline) << name;
  }
}

// With a barrier every iteration begins on an empty pipeline, so all are alike.
TEST(VerificationFigures, ALaterIterationCutOutIsLegalAndItsAccountsAddUp) {
  for (const std::string_view name : kNames) {
    for (const Tail tail : {Tail::kNoTail, Tail::kBarrier}) {
      const Case all = Play(name, 5, tail);
      const Case one = Play(name, 1, tail);
      const Timeline cut = OneIteration(all.program, all.timeline, 2, one.program);
      const std::vector<Event> events = CollectEvents(one.program, cut, 1);
      EXPECT_THAT(CheckTimeline(events, std::nullopt), SizeIs(0)) << name;
      const StallReport stalls = AccountForStalls(one.program, one.costs, cut);
      EXPECT_THAT(CheckAccounts(events, stalls), SizeIs(0)) << name;
    }
  }
}

TEST(VerificationFigures, ExposedCommunicationIsTheTransferOfTheStalls) {
  for (const std::string_view name : kNames) {
    const Case all = Play(name, 3);
    const StallReport stalls = AccountForStalls(all.program, all.costs, all.timeline);
    TimeNs transfer = 0;
    for (const StallsByCategory& rank : stalls.stalls) {
      transfer += rank[static_cast<size_t>(StallCategory::kTransfer)];
    }
    EXPECT_EQ(FiguresByIteration(all.program, all.timeline)[0].exposed_communication, transfer)
        << name;
  }
}

// 1F1B with 3 ranks and 6 micro-batches: each rank is busy 6 (F + BW) = 1800.
TEST(VerificationFigures, IdleShareIsWhatNoOpRunsIn) {
  const Case played = Play("1f1b", 5);
  const IterationFigures figures = FiguresByIteration(played.program, played.timeline)[3];
  const double step = static_cast<double>(figures.step);
  EXPECT_DOUBLE_EQ(figures.idle_share, 1 - 1800 / step);
}

TEST(VerificationFigures, EveryOpIsASampleAndPairsAreNot) {
  const Case split = Play("zb-h1", 4);
  EXPECT_THAT(PassSamples(split.program, split.timeline, 1, 3), SizeIs(2 * 3 * 6 * 3));
  for (const PassSample& sample : PassSamples(split.program, split.timeline, 1, 3)) {
    EXPECT_EQ(sample.duration, split.costs.of(sample.stage, 0).duration(sample.pass));
  }
}

TEST(VerificationFigures, LedgerAndLiveOfASimulatedRunAgree) {
  for (const std::string_view name : kNames) {
    const Case played = Play(name, 3);
    for (const PeakMemory& peak : PeaksByRank(played.program, played.timeline)) {
      EXPECT_EQ(peak.ledger, peak.live) << name;
      EXPECT_GT(peak.most[static_cast<size_t>(MemoryCategory::kWaitingForB)], 0) << name;
    }
  }
}

TEST(VerificationFigures, WaitingIsCountedBetweenOps) {
  const MostWaiting one_f_one_b = MostWaitingOf(Play("1f1b", 1).program);
  EXPECT_EQ(one_f_one_b.for_b, 3);
  EXPECT_EQ(one_f_one_b.for_w, 0);  // BW leaves nothing between ops
  const MostWaiting split = MostWaitingOf(Play("zb-h1", 1).program);
  EXPECT_EQ(split.for_b, 3);
  EXPECT_GT(split.for_w, 0);
}

TEST(VerificationFigures, MediansAndSpread) {
  EXPECT_EQ(MedianOf(std::vector<TimeNs>{}), 0);
  EXPECT_EQ(MedianOf(std::vector<TimeNs>{5, 1, 4}), 4);
  EXPECT_EQ(MedianOf(std::vector<TimeNs>{1, 4}), 3);  // halves up
  EXPECT_EQ(QuantileOf({1, 2, 3, 4}, 0.5), 2);
  EXPECT_EQ(QuantileOf({1, 2, 3, 4}, 0.95), 4);
  EXPECT_EQ(SpreadOf({100, 100, 100, 900}), 0);  // one outlier is no spread
  EXPECT_DOUBLE_EQ(SpreadOf({100, 100, 110, 110}), 10.0 / 105);
}

std::vector<IterationFigures> Steps(const std::vector<TimeNs>& steps) {
  std::vector<IterationFigures> figures;
  for (const TimeNs step : steps) figures.push_back({.step = step});
  return figures;
}

TEST(ColdIterations, AreTheFirstAndThoseBehindItThatAreStillSlow) {
  EXPECT_EQ(ColdIterations(Steps({100, 100, 100, 100})), 1);
  EXPECT_EQ(ColdIterations(Steps({150, 104, 100, 100, 100})), 1);
  EXPECT_EQ(ColdIterations(Steps({150, 120, 100, 100, 100})), 2);
  EXPECT_EQ(ColdIterations(Steps({150, 120, 110, 100, 100, 100})), 3);
}

TEST(ColdIterations, LeaveTwoThatCount) {
  EXPECT_EQ(ColdIterations(Steps({900, 800, 700, 600, 500})), 3);
  EXPECT_EQ(ColdIterations(Steps({100, 100})), 1);
}

VerifiedSchedule Ran(std::string name, TimeNs predicted, TimeNs measured, double spread = 0.001) {
  VerifiedSchedule schedule;
  schedule.schedule = std::move(name);
  schedule.runs = 3;
  schedule.predicted = {.step = predicted, .idle_share = 0.1};
  schedule.measured = {.step = measured, .idle_share = 0.12};
  schedule.spread = spread;
  schedule.gradients_equal = true;
  return schedule;
}

Verification Three() {
  Verification all{.scenario = "three", .ranks = 2, .micro_batches = 4, .transport = "threads"};
  all.tokens_per_step = 1000;
  all.schedules = {Ran("1f1b", 1000, 1010), Ran("zb-h1", 900, 905), Ran("zb-v", 905, 890)};
  return all;
}

TEST(Verification, OrderIsJudgedWhereStepsDifferByMoreThanTwoPercent) {
  Verification all = Three();
  OrderVerdict verdict = JudgeOrder(all);
  EXPECT_EQ(verdict.pairs, 2);  // zb-h1 and zb-v lie 1.7 % apart
  EXPECT_THAT(verdict.wrong, SizeIs(0));
  all.schedules[0].predicted.step = 895;
  verdict = JudgeOrder(all);
  EXPECT_EQ(verdict.pairs, 2);
  EXPECT_THAT(verdict.wrong, ElementsAre(std::pair<std::string, std::string>("zb-v", "1f1b"),
                                         std::pair<std::string, std::string>("zb-h1", "1f1b")));
}

TEST(Verification, WhatIsTooNoisyIsLabelledAndJudgesNoOrder) {
  Verification all = Three();
  EXPECT_THAT(VerificationTable(all, false), Not(HasSubstr("too noisy")));
  all.schedules[0].spread = 0.021;
  EXPECT_TRUE(all.schedules[0].noisy());
  EXPECT_EQ(JudgeOrder(all).pairs, 0);
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("too noisy"));
  const json read = json::parse(VerificationJson(all));
  EXPECT_EQ(read["schedules"][0]["noisy"], true);
  EXPECT_EQ(read["schedules"][1]["noisy"], false);
  all.schedules[1].calibration_spread = 0.03;
  EXPECT_TRUE(all.schedules[1].noisy());
}

TEST(Verification, JsonHasEveryScheduleWithItsNumbers) {
  Verification all = Three();
  all.schedules[2].runs = 0;
  all.schedules[2].reason = "needs 3 ranks";
  const json read = json::parse(VerificationJson(all));
  const json& first = read["schedules"][0];
  EXPECT_EQ(first["schedule"], "1f1b");
  EXPECT_EQ(first["predicted_step_ns"], 1000);
  EXPECT_EQ(first["measured_step_ns"], 1010);
  EXPECT_EQ(first["gradients_equal"], true);
  EXPECT_DOUBLE_EQ(first["idle_share_predicted"], 0.1);
  EXPECT_DOUBLE_EQ(first["idle_share_measured"], 0.12);
  EXPECT_DOUBLE_EQ(first["tokens_per_second_measured"], 1000 * 1e9 / 1010);
  const json& last = read["schedules"][2];
  EXPECT_EQ(last["measured_step_ns"], nullptr);
  EXPECT_EQ(last["reason"], "needs 3 ranks");
  EXPECT_EQ(last.size(), first.size());  // the same keys
}

TEST(Verification, EmulationIsSaidEverywhere) {
  Verification all = Three();
  all.emulated = true;
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("EMULATED"));
  const json read = json::parse(VerificationJson(all));
  EXPECT_EQ(read["emulated"], true);
  EXPECT_EQ(read["schedules"][0]["emulated"], true);
  const std::string page =
      VerificationPage({.verification = all, .drawings = std::vector<VerificationDrawing>(3)});
  EXPECT_THAT(page, HasSubstr("<title>emulated: "));
  EXPECT_THAT(page, HasSubstr("Emulated, not computed"));
}

TEST(Verification, WhatIsTheUsersCannotBecomeMarkup) {
  Verification all = Three();
  all.scenario = "<script>alert(1)</script>";
  all.schedules[0].findings = {"<img src=x>"};
  const std::string page = VerificationPage({.verification = all,
                                             .drawings = std::vector<VerificationDrawing>(3),
                                             .scenario_file = "<b>",
                                             .scenario_text = "</code><script>"});
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<img src=x>")));
  EXPECT_THAT(page, Not(HasSubstr("</code><script>")));
}

TEST(Verification, DifferingGradientsAndFindingsAreWrong) {
  Verification all = Three();
  EXPECT_TRUE(IsRight(all));
  all.schedules[1].gradients_equal = false;
  EXPECT_FALSE(IsRight(all));
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("GRADIENTS DIFFER"));
  all = Three();
  all.schedules[1].findings = {"measured: overlap: ..."};
  EXPECT_FALSE(IsRight(all));
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("ILLEGAL"));
}

TEST(Verification, MemoryMatchesOnlyIfPeakAndEachCategoryDo) {
  VerifiedRank rank;
  rank.peak = {.ledger = 100, .live = 100, .most = {60, 40}};
  EXPECT_TRUE(rank.matches());
  rank.measured = MemoryByCategory{60, 40};
  EXPECT_TRUE(rank.matches());
  rank.measured = MemoryByCategory{61, 39};
  EXPECT_FALSE(rank.matches());
  rank.measured.reset();
  rank.peak.live = 101;
  EXPECT_FALSE(rank.matches());
}

}  // namespace
}  // namespace spiritlevel
