#include "report/table.h"

#include <gmock/gmock.h>

#include <sstream>

#include "report/figures.h"
#include "report/text.h"
#include "tests/report/comparison_for_test.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Bytes kGiB = Bytes{1} << 30;

// GPT 1.5B of the zero-bubble paper, on 8 ranks.
ScenarioForTest Gpt() {
  return {
      .ranks = 8,
      .micro_batches = 24,
      .cost = {.forward = 18'522'000,
               .input_grad = 18'086'000,
               .weight_grad = 9'337'000,
               .activation = 3'708'813'312,
               .weight_state = 1'358'954'496},
      .common = {.hop = {.latency = 601'000, .bytes = 28'311'552}, .static_bytes = 3'057'647'616},
      .memory_limit = 50 * kGiB,
      .stages_per_rank = 3};
}

// The row of a schedule, its mark included.
std::string RowOf(const std::string& table, std::string_view schedule) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < 3 || line.compare(2, schedule.size(), schedule) != 0) continue;
    if (line.substr(2).find(' ') == schedule.size()) return line;
  }
  return "";
}

std::string OnOneLine(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += word + " ";
  return line;
}

TEST(CompareTable, HasARowForEverySchedule) {
  const std::string table = CompareTable(Compare(Gpt()));
  for (const ScheduleInfo& info : AllSchedules()) {
    EXPECT_NE(RowOf(table, info.name), "") << info.name << "\n" << table;
  }
}

TEST(CompareTable, FitsATerminalOf100Columns) {
  EXPECT_LE(LongestLine(CompareTable(Compare(Gpt()))), kTerminalColumns);
  ScenarioForTest large = Gpt();
  large.ranks = 32;
  large.micro_batches = 256;
  large.common.optimizer = 20'000'000;
  EXPECT_LE(LongestLine(CompareTable(Compare(large))), kTerminalColumns);
}

TEST(CompareTable, SaysFirstWhatAnyScheduleCouldGain) {
  // 1F1B: (24 + 7) x 45.945 ms + 54 x 0.601 ms; own work: 24 x 45.945 ms.
  EXPECT_THAT(CompareTable(Compare(Gpt())),
              HasSubstr("1f1b takes 1.457 s a step; each rank's own work is 1.103 s:\n"
                        "no schedule can be more than 1.32x as fast.\n"));
}

TEST(CompareTable, NamesTheOptimizerStepBesideTheOwnWork) {
  ScenarioForTest stepping = Gpt();
  stepping.common.optimizer = 20'000'000;
  EXPECT_THAT(Headline(Compare(stepping)),
              HasSubstr("each rank's own work is 1.103 s, its optimizer step 20 ms:\n"));
}

TEST(CompareTable, SaysWhatWasChosenWhereItIsNotTheDefault) {
  Comparison comparison = Compare(Gpt(), {"1f1b"});
  comparison.receives = "early";
  comparison.channels = "pair";
  comparison.weight_grads = "by-micro-batch";
  EXPECT_EQ(Choices(comparison), "posting ideal, tail barrier");
  comparison.receives = "deferred";
  comparison.channels = "directed";
  comparison.weight_grads = "by-bucket";
  comparison.rejection = 0.01;
  EXPECT_EQ(Choices(comparison),
            "posting ideal, receives deferred, channels directed, tail barrier, weight grads "
            "by-bucket, rejection 0.01");
  EXPECT_THAT(CompareTable(comparison), HasSubstr("expected step at q = 0.01"));
}

// A long reason that several rows share stands once, below.
TEST(CompareTable, SharesTheReasonsOfRowsThatCannotRun) {
  const std::string shared =
      "layers per stage: 2 entries do not fit 4 stages on 2 ranks; give an entry for each stage";
  Comparison comparison = Compare(Gpt(), {"1f1b", "zb-v", "interleaved", "dualpipe"});
  for (size_t i = 1; i < 4; ++i) {
    comparison.results[i].summary.reset();
    comparison.results[i].reason =
        i < 3 ? shared : "this one has a reason of its own, and it is long";
  }
  const std::string table = CompareTable(comparison);
  const auto row = [&](std::string_view schedule) { return RowOf(table, schedule); };
  EXPECT_THAT(row("zb-v"), testing::EndsWith("cannot run: [1]"));
  EXPECT_THAT(row("interleaved"), testing::EndsWith("cannot run: [1]"));
  EXPECT_THAT(row("dualpipe"), HasSubstr("cannot run: this one has a reason of its own"));
  EXPECT_EQ(table.find("[1] layers per stage: 2 entries"),
            table.rfind("layers per stage: 2 entries") - 4);
}

TEST(CompareTable, ShowsTheNumbersOfARow) {
  const std::string row = RowOf(CompareTable(Compare(Gpt())), "1f1b");
  // Step, speed-up, bubble rate and fraction, gap, dependency and transfer stalls, peak and its
  // rank, waiting for B and W, sent, copies, fits.
  EXPECT_THAT(row,
              testing::MatchesRegex(
                  "..1f1b +1\\.457 +1\\.00x +24\\.3 +24\\.3 +- +[0-9.]+ +[0-9.]+ +30\\.48 +0 +8 "
                  "+1 +8\\.86 +1 +yes"));
}

TEST(CompareTable, ShowsHowFarEachIsFromItsBoundAndWhyThereIsNone) {
  Comparison comparison = Compare(Gpt(), {"1f1b", "zb-h1", "zb-v", "gpipe", "dualpipe"});
  const Bound bound{.value = 10'000, .reason = "work of rank 0"};
  comparison.results[0].certificate = Certify(bound, 12'345);
  comparison.results[1].certificate = Certify(bound, 10'000);
  comparison.results[2].certificate = Certify(bound, 10'004);
  comparison.results[3].certificate_note = "it does not fit the memory limit";
  comparison.results[4].certificate_note = "F&B pairs take less time than bounds count";
  const std::string table = CompareTable(comparison);
  EXPECT_THAT(RowOf(table, "1f1b"), HasSubstr(" 23.4 "));  // 23.45 as doubles have it
  EXPECT_THAT(RowOf(table, "zb-h1"), HasSubstr(" opt "));
  EXPECT_THAT(RowOf(table, "zb-v"), HasSubstr(" 0.04 "));
  EXPECT_THAT(RowOf(table, "gpipe"), HasSubstr(" - "));
  EXPECT_THAT(OnOneLine(table),
              HasSubstr("within the limit; opt: not at all, which proves it optimal; -: no "
                        "bound, since it does not fit the memory limit; or F&B pairs take "
                        "less time than bounds count stalls "));
}

TEST(CompareTable, SaysWhichFitAndMarksTheOneAdvised) {
  const std::string table = CompareTable(Compare(Gpt()));
  EXPECT_THAT(RowOf(table, "zb-h2"), testing::EndsWith("no"));
  EXPECT_THAT(RowOf(table, "zb-h1"), testing::EndsWith("yes"));
  EXPECT_THAT(RowOf(table, "zb-v"), testing::StartsWith("* "));
  EXPECT_THAT(RowOf(table, "zb-h1"), testing::StartsWith("  "));
  EXPECT_THAT(table, HasSubstr("\nadvice: use zb-v"));
}

TEST(CompareTable, LeavesOutStallsThatNowhereOccurAndSaysWhich) {
  ScenarioForTest scenario = Gpt();
  const std::string table = CompareTable(Compare(scenario));
  EXPECT_THAT(table, HasSubstr("dep dependency, xfer transfer;"));
  EXPECT_THAT(table, HasSubstr("nowhere any: imbalance, memory, collective, optimizer,"));
  scenario.common.launch = 1'000'000;
  EXPECT_THAT(CompareTable(Compare(scenario)), HasSubstr("lnch launch"));
}

TEST(CompareTable, AScheduleThatCannotRunShowsItsReasonWrapped) {
  ScenarioForTest scenario = Gpt();
  scenario.ranks = 7;
  scenario.micro_batches = 21;
  const std::string table = CompareTable(Compare(scenario));
  EXPECT_THAT(RowOf(table, "dualpipe"), HasSubstr("cannot run: dualpipe needs an even number"));
  EXPECT_LE(LongestLine(table), kTerminalColumns);
  EXPECT_THAT(table, HasSubstr("or dualpipe-v"));
}

TEST(CompareTable, NotesOfRowsThatRunAreFootnotes) {
  // Fewer micro-batches than ranks: legal, with a warning.
  ScenarioForTest scenario = Gpt();
  scenario.micro_batches = 4;
  const std::string table = CompareTable(Compare(scenario, {"1f1b", "zb-h1"}));
  EXPECT_THAT(RowOf(table, "1f1b"), testing::EndsWith("[1]"));
  EXPECT_THAT(table, HasSubstr("\n[1] legal, but 4 micro-batches cannot fill 8 ranks"));
}

TEST(CompareTable, CountsMessagesWhereTheirSizeIsNotGiven) {
  ScenarioForTest scenario = Gpt();
  scenario.common.hop.bytes = 0;
  const std::string table = CompareTable(Compare(scenario, {"1f1b"}));
  EXPECT_THAT(table, HasSubstr("msgs"));
  EXPECT_THAT(RowOf(table, "1f1b"), HasSubstr(" 336 "));  // 2 x 7 hops x 24 micro-batches
}

TEST(CompareTable, UsesBinaryUnitsOnly) {
  const std::string table = CompareTable(Compare(Gpt()));
  EXPECT_THAT(table, HasSubstr("GiB"));
  EXPECT_THAT(table, Not(HasSubstr("GB")));
}

TEST(CompareTable, StallsAddUpToTheBubbleFraction) {
  const Comparison comparison = Compare(Gpt());
  for (const Result& result : comparison.results) {
    double sum = 0;
    for (int i = 0; i < kNumStallCategories; ++i) {
      sum += StallShare(*result.summary, static_cast<StallCategory>(i));
    }
    EXPECT_NEAR(sum, result.summary->bubble_fraction, 1e-12) << result.schedule;
  }
}

TEST(CompareTable, WithNothingThatRunsThereAreReasonsAndNoLegend) {
  ScenarioForTest scenario = Gpt();
  scenario.ranks = 7;
  Comparison comparison = Compare(scenario, {"dualpipe"});
  comparison.one_f_one_b.reset();
  const std::string table = CompareTable(comparison);
  EXPECT_THAT(table, HasSubstr("cannot run: "));
  EXPECT_THAT(table, HasSubstr("1f1b cannot run here"));
  EXPECT_THAT(table, Not(HasSubstr("waiting")));
  EXPECT_THAT(table, HasSubstr("advice: no schedule can run"));
}

TEST(CompareTable, ShowsTheWarningsOfTheScenario) {
  Comparison comparison = Compare(Gpt(), {"1f1b"});
  comparison.warnings = {"a.textproto:3: weight_grad_us: is tiny"};
  EXPECT_THAT(CompareTable(comparison), HasSubstr("\nwarning: a.textproto:3: weight_grad_us"));
}

TEST(CompareTable, AnIllegalScheduleIsNeverSaidToFit) {
  Comparison comparison = Compare(Gpt(), {"1f1b", "zb-h1"});
  comparison.results[1].valid = comparison.results[1].fits = false;
  comparison.results[1].reason = "a pass is missing";
  const std::string table = CompareTable(comparison);
  EXPECT_THAT(RowOf(table, "zb-h1"), HasSubstr("illegal"));
  EXPECT_THAT(table, HasSubstr("[1] a pass is missing"));
}

}  // namespace
}  // namespace spiritlevel
