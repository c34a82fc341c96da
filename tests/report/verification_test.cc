#include "report/verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/verification_figures.h"
#include "sim/analysis/check_timeline.h"
#include "sim/analysis/stalls.h"
#include "sim/engine.h"
#include "sim/event.h"
#include "sim/schedules/catalog.h"
#include "tests/report/verification_for_test.h"

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

// What a rank does between its ops is no communication, though it keeps the next op back.
TEST(VerificationFigures, AValidationIsNoExposedCommunication) {
  Case played = Play("zb-h1", 4, Tail::kSpeculativeValidation);
  const TimeNs before =
      FiguresByIteration(played.program, played.timeline)[1].exposed_communication;
  for (int rank = 0; rank < played.program.num_ranks(); ++rank) {
    for (NodeId id = played.program.iteration_begin(rank, 1);
         id < played.program.iteration_begin(rank, 2); ++id) {
      if (played.program.nodes()[id].kind != NodeKind::kValidation) continue;
      NodeTimes& validation = played.timeline.nodes[static_cast<size_t>(id)];
      NodeTimes& next = played.timeline.nodes[static_cast<size_t>(id) + 1];
      validation.end = next.start;
      next.ready = std::max(next.ready, validation.end);
    }
  }
  EXPECT_LE(FiguresByIteration(played.program, played.timeline)[1].exposed_communication, before);
}

TEST(VerificationFigures, TimeBetweenIterationsIsPeriodsAndWhatARejectionAdds) {
  const Schedule schedule = FindSchedule("zb-h2").Make({.ranks = 3, .micro_batches = 6});
  const Costs costs = SmallCosts(schedule.num_stages(), 6);
  const auto time = [&](const std::vector<int>& rejected) {
    const Program program =
        Lower(schedule, costs,
              {.tail = Tail::kSpeculativeValidation, .iterations = 7, .rejected = rejected});
    return TimeBetween(program, SimulateInOrder(program), 4, 6);
  };
  const Program program =
      Lower(schedule, costs, {.tail = Tail::kSpeculativeValidation, .iterations = 7});
  EXPECT_EQ(time({}), 2 * PeriodOf(program, SimulateInOrder(program)));
  // The first rank has run 2 p - 1 = 5 forwards, and steps once more.
  EXPECT_EQ(time({4}) - time({}), 5 * 100 + 20);
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

TEST(Verification, OrderIsJudgedWhereStepsDifferByMoreThanTwoPercent) {
  Verification all = ThreeForTest();
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
  Verification all = ThreeForTest();
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
  Verification all = ThreeForTest();
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
  Verification all = ThreeForTest();
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
  Verification all = ThreeForTest();
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
  Verification all = ThreeForTest();
  EXPECT_TRUE(IsRight(all));
  all.schedules[1].gradients_equal = false;
  EXPECT_FALSE(IsRight(all));
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("GRADIENTS DIFFER"));
  all = ThreeForTest();
  all.schedules[1].findings = {"measured: overlap: ..."};
  EXPECT_FALSE(IsRight(all));
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("ILLEGAL"));
}

// What `schedule` of ZB-H2's kind might come to: 60 less a step, and 250 more where one is
// rejected.
Verification Validated() {
  Verification all = ThreeForTest();
  all.tail = "post-validation-speculative";
  all.schedules[1].validation =
      ValidationCost{.normal_step = {.predicted = 900'000, .measured = 905'000},
                     .barrier_step = {.predicted = 960'000, .measured = 970'000},
                     .normal_path = {.predicted = -60'000, .measured = -64'000},
                     .rollback = PredictedAndMeasured{.predicted = 250'000, .measured = 240'000},
                     .rollback_equal = true};
  return all;
}

TEST(Validation, StandsInTableJsonAndPageWithPredictedAndMeasured) {
  const Verification all = Validated();
  const std::string table = VerificationTable(all, false);
  EXPECT_THAT(table, HasSubstr("what post-validation-speculative costs over a barrier"));
  for (const char* number : {"-60.0", "-64.0", "+250.0", "+240.0", "+10.0", "rolled back ="}) {
    EXPECT_THAT(table, HasSubstr(number));
  }
  const json read = json::parse(VerificationJson(all));
  EXPECT_EQ(read["schedules"][0]["validation"], nullptr);
  const json& cost = read["schedules"][1]["validation"];
  EXPECT_EQ(cost["normal_path_cost_predicted_ns"], -60'000);
  EXPECT_EQ(cost["normal_path_cost_measured_ns"], -64'000);
  EXPECT_EQ(cost["rollback_predicted_ns"], 250'000);
  EXPECT_EQ(cost["rollback_measured_ns"], 240'000);
  EXPECT_EQ(cost["rollback_equal"], true);
  EXPECT_EQ(cost["noisy"], false);
  const std::string page =
      VerificationPage({.verification = all, .drawings = std::vector<VerificationDrawing>(3)});
  EXPECT_THAT(page, HasSubstr("<section id=\"validation\""));
  EXPECT_THAT(page, HasSubstr("data-key=\"rollback_measured_ns\" data-value=\"240000\">+240.0<"));
  EXPECT_THAT(page, HasSubstr("rolled back to the same bits"));
}

TEST(Validation, WithoutAnyThereIsNoSection) {
  const Verification all = ThreeForTest();
  EXPECT_THAT(VerificationTable(all, false), Not(HasSubstr("over a barrier")));
  EXPECT_THAT(
      VerificationPage({.verification = all, .drawings = std::vector<VerificationDrawing>(3)}),
      Not(HasSubstr("#validation")));
}

TEST(Validation, OtherBitsBehindARollbackAreWrong) {
  Verification all = Validated();
  EXPECT_TRUE(IsRight(all));
  all.schedules[1].validation->rollback_equal = false;
  EXPECT_FALSE(IsRight(all));
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("ROLLED BACK TO OTHER BITS"));
}

TEST(Validation, NoiseOfItsRunsIsSaid) {
  Verification all = Validated();
  all.schedules[1].validation->rollback_spread = 0.03;
  EXPECT_EQ(json::parse(VerificationJson(all))["schedules"][1]["validation"]["noisy"], true);
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("rolled back =, too noisy"));
}

TEST(Validation, WhyThereIsNoRollbackIsSaid) {
  Verification all = Validated();
  all.schedules[1].validation->rollback.reset();
  all.schedules[1].validation->rollback_note = "no version is <rejected> under this posting";
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("no version is <rejected>"));
  EXPECT_THAT(
      VerificationPage({.verification = all, .drawings = std::vector<VerificationDrawing>(3)}),
      HasSubstr("no version is &lt;rejected&gt; under this posting"));
  const json read = json::parse(VerificationJson(all));
  EXPECT_EQ(read["schedules"][1]["validation"]["rollback_measured_ns"], nullptr);
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
