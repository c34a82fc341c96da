// What a verification says: what is wrong, what is within the bar, and what was never measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "report/text.h"
#include "report/verification.h"
#include "tests/report/verification_for_test.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

json Read(const Verification& all) { return json::parse(VerificationJson(all)); }

size_t LongestLine(const std::string& text) {
  std::istringstream lines(text);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

// Wrong, and said to be in table, JSON and page.
void ExpectWrong(const Verification& all, size_t schedule, const std::string& loud,
                 const std::string& quiet) {
  EXPECT_FALSE(IsRight(all)) << quiet;
  EXPECT_THAT(WrongsOf(all.schedules[schedule], all), ElementsAre(quiet));
  EXPECT_THAT(VerificationTable(all, false), HasSubstr(loud));
  const json read = Read(all);
  EXPECT_EQ(read["right"], false);
  EXPECT_EQ(read["schedules"][schedule]["wrong"], json::array({quiet}));
  EXPECT_THAT(PageWithoutDrawings(all),
              AllOf(HasSubstr("What was run is not what was asked for."), HasSubstr(quiet)));
}

TEST(Verdict, ARunThatFailedIsWrongWhetherOthersOfItCameBackOrNot) {
  Verification all = ThreeForTest();
  all.schedules[1].failures = {"rank 0 died in 0F2"};
  all.schedules[1].gradients_equal.reset();
  ExpectWrong(all, 1, "zb-h1: FAILED: rank 0 died in 0F2", "failed");
  all.schedules[1].runs = 0;
  ExpectWrong(all, 1, "FAILED: rank 0 died in 0F2", "failed");
  EXPECT_EQ(Read(all)["schedules"][1]["failures"], json::array({"rank 0 died in 0F2"}));
}

TEST(Verdict, ARecordedRunThatLeftNothingToCompareIsWrong) {
  Verification all = ThreeForTest();
  all.schedules[0].gradients_equal.reset();
  ExpectWrong(all, 0, "GRADIENTS NOT COMPARED", "gradients not compared");
}

TEST(Verdict, WhereAnInterruptLeftGradientsOutNothingIsWrong) {
  Verification all = ThreeForTest();
  all.schedules[0].gradients_equal.reset();
  all.interrupted = true;
  EXPECT_TRUE(IsRight(all));
  all.interrupted = false;
  all.emulated = true;
  EXPECT_TRUE(IsRight(all));
}

TEST(Verdict, ARefusedScheduleIsNotWrong) {
  Verification all = ThreeForTest();
  all.schedules[2] = {.schedule = "zb-v", .reason = "over the limit"};
  EXPECT_TRUE(IsRight(all));
  EXPECT_EQ(Read(all)["right"], true);
  EXPECT_EQ(Read(all)["schedules"][2]["within_bar"], nullptr);
  EXPECT_THAT(PageWithoutDrawings(all), HasSubstr("not run: over the limit"));
}

TEST(Verdict, LiveBytesOrACategoryThatAreNotTheLedgersAreWrong) {
  Verification all = ThreeForTest();
  all.schedules[1].memory = {{.peak = {.ledger = 100, .live = 100, .most = {60, 40}},
                              .measured = MemoryByCategory{60, 40}}};
  EXPECT_TRUE(IsRight(all));
  all.schedules[1].memory[0].measured = MemoryByCategory{59, 41};
  ExpectWrong(all, 1, "LEDGER DIFFERS", "ledger differs");
  all.schedules[1].memory[0].measured = MemoryByCategory{60, 40};
  all.schedules[1].memory[0].peak.live = 99;
  ExpectWrong(all, 1, "LEDGER DIFFERS", "ledger differs");
}

TEST(Verdict, LiveBytesOfAValidationsRunsCountToo) {
  Verification all = ThreeForTest();
  all.schedules[1].validation = ValidationCost{.memory_matches = false};
  ExpectWrong(all, 1, "LEDGER DIFFERS", "ledger differs");
}

// 1000 against 1050: 4.8 %. 1000 against 1060: 5.7 %.
TEST(Bar, IsTheStepWithinFivePercentAndIdleWithinTwoPoints) {
  Verification all = ThreeForTest();
  VerifiedSchedule& schedule = all.schedules[0];
  schedule = RanForTest("1f1b", 1000, 1050);
  EXPECT_EQ(JudgeBar(schedule, all), BarVerdict::kWithin);
  schedule = RanForTest("1f1b", 1000, 1060);
  EXPECT_EQ(JudgeBar(schedule, all), BarVerdict::kMissed);
  schedule = RanForTest("1f1b", 1000, 1000);
  schedule.measured.idle_share = 0.121;
  EXPECT_EQ(JudgeBar(schedule, all), BarVerdict::kMissed);
  schedule.spread = 0.021;
  EXPECT_EQ(JudgeBar(schedule, all), BarVerdict::kTooNoisy);
  schedule.runs = 0;
  EXPECT_EQ(JudgeBar(schedule, all), BarVerdict::kNotRun);
}

TEST(Bar, UnderEmulationIsTheStepWithinTwoPercent) {
  Verification all = ThreeForTest();
  all.emulated = true;
  all.schedules[0] = RanForTest("1f1b", 1000, 1019);
  all.schedules[0].measured.idle_share = 0.2;
  EXPECT_EQ(JudgeBar(all.schedules[0], all), BarVerdict::kWithin);
  all.schedules[0] = RanForTest("1f1b", 1000, 1025);
  EXPECT_EQ(JudgeBar(all.schedules[0], all), BarVerdict::kMissed);
}

TEST(Bar, StandsInEachRowAndIsSummedUpAtTheEnd) {
  Verification all = ThreeForTest();
  all.schedules[1] = RanForTest("zb-h1", 900, 1000);
  all.schedules[2].spread = 0.03;
  EXPECT_THAT(VerificationTable(all, false),
              HasSubstr("Bar (step within 5 %, idle share within 2 points): 1 of 3 within, 1 "
                        "missed (zb-h1), 1 too noisy\n  (zb-v).\n"));
  const json read = Read(all);
  EXPECT_EQ(read["schedules"][0]["within_bar"], true);
  EXPECT_EQ(read["schedules"][1]["within_bar"], false);
  EXPECT_EQ(read["schedules"][2]["within_bar"], nullptr);
  EXPECT_EQ(read["bar"]["missed"], json::array({"zb-h1"}));
  EXPECT_TRUE(IsRight(all));  // a number to look at
  EXPECT_THAT(PageWithoutDrawings(all),
              AllOf(HasSubstr("badge good\">within<"), HasSubstr("badge bad\">missed<"),
                    HasSubstr("badge bad\">too noisy<")));
}

TEST(Noise, OfRoundsIsSeenWhereTheMiddleHalfSeesNone) {
  Verification all = ThreeForTest();
  VerifiedSchedule& schedule = all.schedules[0];
  schedule.steps = {100, 100, 100, 900};
  schedule.round_steps = {100, 100, 100, 900};
  schedule.spread = SpreadOf(schedule.steps);
  EXPECT_EQ(schedule.spread, 0);
  EXPECT_DOUBLE_EQ(schedule.round_spread(), 8);
  EXPECT_TRUE(schedule.noisy());
  EXPECT_EQ(Read(all)["schedules"][0]["round_spread"], 8);
  schedule.round_steps = {100, 102};  // 2 / 101
  EXPECT_FALSE(schedule.noisy());
  schedule.round_steps = {100, 103};
  EXPECT_TRUE(schedule.noisy());
}

TEST(Noise, OfOneRoundHasNoOtherToDifferFromAndItsOutliersShowInTheRange) {
  Verification all = ThreeForTest();
  all.schedules[0].steps = {100, 100, 100, 900};
  all.schedules[0].round_steps = {100};
  EXPECT_EQ(all.schedules[0].round_spread(), 0);
  EXPECT_EQ(Read(all)["schedules"][0]["range"], 8);
  EXPECT_THAT(VerificationTable(all, false), AllOf(HasSubstr("range"), HasSubstr("800.0")));
}

TEST(Resident, IsHeldAgainstTheLedgersOfAllRanks) {
  Verification all = ThreeForTest();
  VerifiedSchedule& schedule = all.schedules[0];
  schedule.memory = {{.peak = {.ledger = 600, .live = 600}},
                     {.peak = {.ledger = 400, .live = 400}}};
  schedule.resident_bytes = 1100;
  EXPECT_DOUBLE_EQ(*schedule.resident_ratio(), 1.1);
  schedule.resident_bytes = 1090;
  EXPECT_EQ(schedule.resident_within_bar(), true);
  EXPECT_THAT(VerificationTable(all, false),
              HasSubstr("Resident size within 10 % of the ledger of all ranks: 1 of 1.\n"));
  schedule.resident_bytes = 890;
  EXPECT_EQ(schedule.resident_within_bar(), false);
  const json read = Read(all)["schedules"][0];
  EXPECT_DOUBLE_EQ(read["resident_ratio"], 0.89);
  EXPECT_EQ(read["resident_within_bar"], false);
  EXPECT_EQ(read["ledger_bytes"], 1000);
  EXPECT_THAT(VerificationTable(all, false),
              AllOf(HasSubstr("0 of 1, 1 missed (1f1b)."), HasSubstr("0.89")));
  EXPECT_THAT(PageWithoutDrawings(all), HasSubstr("0.89, beyond 10 %"));
  EXPECT_TRUE(IsRight(all));
  EXPECT_EQ(Read(all)["schedules"][1]["resident_ratio"], nullptr);
}

TEST(Emulation, ShowsNothingAsMeasuredThatWasNot) {
  Verification all = ThreeForTest();
  all.emulated = true;
  all.schedules.resize(1);
  all.schedules[0].waiting_b_predicted = 2;
  all.schedules[0].waiting_w_predicted = 1;
  all.schedules[0].memory = {{.peak = {.ledger = 7777, .live = 7777, .most = {7777}}}};
  const json read = Read(all)["schedules"][0];
  EXPECT_EQ(read["peak_waiting_b_predicted"], 2);
  for (const char* key : {"peak_waiting_b_measured", "peak_waiting_w_measured",
                          "memory_equals_ledger", "resident_ratio"}) {
    EXPECT_EQ(read[key], nullptr) << key;
  }
  EXPECT_EQ(read["memory_by_rank"][0]["ledger_peak_bytes"], 7777);
  EXPECT_EQ(read["memory_by_rank"][0]["live_peak_bytes"], nullptr);
  EXPECT_EQ(read["memory_by_rank"][0]["most_handed_over_bytes"], nullptr);
  EXPECT_THAT(VerificationTable(all, false), testing::ContainsRegex("1f1b +- +- +7\\.?777 +- +- "));
  EXPECT_THAT(PageWithoutDrawings(all), AllOf(Not(HasSubstr("data-key=\"live_peak_bytes\"")),
                                              Not(HasSubstr("data-key=\"peak_waiting_b"))));
}

TEST(Memory, OfPairsIsSaidToBeSetAsideAndWhatIsHandedOverStandsBesideIt) {
  Verification all = ThreeForTest();
  all.schedules[0].memory = {
      {.peak = {.ledger = 4000, .live = 4000, .most = {4000}}, .handed_over = 1234}};
  EXPECT_THAT(VerificationTable(all, false),
              AllOf(HasSubstr("1234"), Not(HasSubstr("is set aside"))));
  all.schedules[0].reserves_for_pairs = true;
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("F&B pairs of 1f1b: "));
  const json read = Read(all)["schedules"][0];
  EXPECT_EQ(read["overlap_room_reserved_by_costs"], true);
  EXPECT_EQ(read["memory_by_rank"][0]["most_handed_over_bytes"], 1234);
  EXPECT_THAT(PageWithoutDrawings(all),
              HasSubstr("data-key=\"most_handed_over_bytes\" data-value=\"1234\""));
}

TEST(Passes, OfTheSlowestStageStandInTheTableAndAllOfThemInItsDetails) {
  Verification all = ThreeForTest();
  all.micro_batch_size = 2;
  all.sequence_length = 64;
  all.schedules[0].passes = {
      {.stage = 0,
       .pass = Pass::kF,
       .p50 = 1111,
       .p95 = 1222,
       .samples = 3,
       .gemm_efficiency = 0.5},
      {.stage = 1,
       .pass = Pass::kF,
       .p50 = 3333,
       .p95 = 3444,
       .samples = 1,
       .gemm_efficiency = 0.9},
      {.stage = 0, .pass = Pass::kBW, .p50 = 2222, .p95 = 2333, .samples = 3}};
  const std::string table = VerificationTable(all, false);
  EXPECT_THAT(table, AllOf(HasSubstr("a micro-batch being 2 x 64 tokens"), HasSubstr("3.333"),
                           HasSubstr("3.444"), HasSubstr("2.222"), HasSubstr("2.333"),
                           Not(HasSubstr("1.111"))));
  // Both stages took 3333 in all.
  EXPECT_THAT(table, HasSubstr("70.0"));
  EXPECT_THAT(VerificationTable(all, true), AllOf(HasSubstr("1.111"), HasSubstr("stage 1 F")));
}

TEST(Table, IsNoWiderThanATerminal) {
  Verification all = DrawnForTest().verification;
  EXPECT_THAT(WrongsOf(all.schedules[0], all), IsEmpty());
  for (VerifiedSchedule& schedule : all.schedules) {
    schedule.calibration_spread = 0.031;
    schedule.passes.clear();
    for (const Pass pass : {Pass::kF, Pass::kB, Pass::kW, Pass::kBW}) {
      schedule.passes.push_back({.pass = pass,
                                 .p50 = 10'000'000,
                                 .p95 = 12'000'000,
                                 .samples = 9,
                                 .gemm_efficiency = 0.7});
    }
  }
  all.schedules[0].schedule = "interleaved";
  EXPECT_LE(LongestLine(VerificationTable(all, true)), kTerminalColumns)
      << VerificationTable(all, true);
}

}  // namespace
}  // namespace spiritlevel
