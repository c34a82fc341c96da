#include "report/schedules_list.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "report/text.h"
#include "tests/report/comparison_for_test.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;
using testing::Not;

ScenarioForTest Units(int ranks, int micro_batches) {
  return {
      .ranks = ranks,
      .micro_batches = micro_batches,
      .cost = {
          .forward = 2, .input_grad = 2, .weight_grad = 2, .activation = 100, .weight_state = 40}};
}

std::string Describe(const ScenarioForTest& scenario, const std::string& schedule) {
  const Comparison comparison = Compare(scenario, {schedule});
  return DescribeResult(comparison.results[0], comparison);
}

TEST(ListSchedules, NamesEveryScheduleWithItsConstraintFormulasAndSource) {
  const std::string list = ListSchedules();
  for (const ScheduleInfo& info : AllSchedules()) {
    EXPECT_THAT(list, HasSubstr(fmt::format("\n{}\n", info.name)));
    EXPECT_THAT(list, HasSubstr(std::string(info.constraint)));
    EXPECT_THAT(list, HasSubstr(std::string(info.memory)));
    EXPECT_THAT(list, HasSubstr(std::string(info.source)));
  }
}

TEST(ListSchedules, IsLegibleAt100Columns) {
  EXPECT_LE(LongestLine(ListSchedules()), kTerminalColumns);
}

TEST(DescribeResult, PutsTheFormulaBesideWhatWasSimulated) {
  // (16 + 7) x 6 = 138.
  const std::string text = Describe(Units(8, 16), "1f1b");
  EXPECT_THAT(text, HasSubstr("makespan                  138 ns (formula: the same)"));
  EXPECT_THAT(text, HasSubstr("bubble rate               30.4 %"));
}

TEST(DescribeResult, SaysByHowMuchTheFormulaIsOff) {
  Comparison comparison = Compare(Units(8, 16), {"1f1b"});
  comparison.results[0].closed_form.makespan = 100;
  EXPECT_THAT(DescribeResult(comparison.results[0], comparison),
              HasSubstr("138 ns (formula: 100 ns, simulated 38 ns more)"));
  comparison.results[0].closed_form.makespan = 140;
  EXPECT_THAT(DescribeResult(comparison.results[0], comparison),
              HasSubstr("138 ns (formula: 140 ns, simulated 2 ns less)"));
}

TEST(DescribeResult, ComparesTheFormulaWithoutTheTail) {
  for (const Tail tail : {Tail::kNoTail, Tail::kBarrier}) {
    ScenarioForTest scenario = Units(8, 16);
    scenario.common.optimizer = 11;
    scenario.tail = tail;
    EXPECT_THAT(Describe(scenario, "1f1b"), HasSubstr("149 ns (formula: the same)"));
  }
}

TEST(DescribeResult, SaysHowFarAboveItsBoundTheSpanIs) {
  Comparison comparison =
      Compare({.cost = {.forward = 1, .input_grad = 1, .weight_grad = 1}}, {"1f1b"});
  Result& r = comparison.results[0];
  r.certificate = Certify(Bound{.value = 60, .reason = "work of rank 0"}, 69);
  EXPECT_THAT(DescribeResult(r, comparison),
              HasSubstr("lower bound 60 ns (work of rank 0): at most 15.0 % above the best\n"));
  r.certificate = Certify(Bound{.value = 69, .reason = "work of rank 0"}, 69);
  EXPECT_THAT(DescribeResult(r, comparison),
              HasSubstr("proved optimal for this placement and limit: work of rank 0\n"));
  r.certificate.reset();
  r.certificate_note = "each stage lies on two ranks";
  EXPECT_THAT(DescribeResult(r, comparison),
              HasSubstr("lower bound: none, each stage lies on two ranks\n"));
}

TEST(DescribeResult, ListsUpTo16RanksOneByOne) {
  const std::string text = Describe(Units(16, 32), "zb-h1");
  EXPECT_THAT(text, HasSubstr("\n15 "));
  EXPECT_THAT(text, Not(HasSubstr("median")));
}

TEST(DescribeResult, SummarisesMoreRanks) {
  // 1F1B keeps p - r activations on rank r: 17 on the first, 1 on the last, 9 in the middle.
  const std::string text = Describe(Units(17, 32), "1f1b");
  EXPECT_THAT(text, testing::ContainsRegex("\nfirst .* 1700\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nlast .* 100\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nmin .* 100\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nmedian .* 900\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nmax .* 1700\n"));
}

TEST(DescribeResult, SaysHowMuchRoomIsLeftOrMissing) {
  ScenarioForTest scenario = Units(8, 16);
  scenario.memory_limit = 1000;
  EXPECT_THAT(Describe(scenario, "1f1b"), HasSubstr("yes, with 200 B to spare"));
  scenario.memory_limit = 700;
  EXPECT_THAT(Describe(scenario, "1f1b"), HasSubstr("no: 100 B over the limit of 700 B"));
}

TEST(DescribeResult, OfOneThatCannotRunGivesTheReason) {
  const std::string text = Describe(Units(7, 16), "dualpipe");
  EXPECT_THAT(text, HasSubstr("cannot run: dualpipe needs an even number of ranks"));
  EXPECT_THAT(text, Not(HasSubstr("makespan")));
}

TEST(DescribeResult, FitsATerminalOf100Columns) {
  ScenarioForTest scenario = Units(8, 16);
  scenario.common = {.hop = {.latency = 1, .busy = 1}, .launch = 1, .optimizer = 5};
  EXPECT_LE(LongestLine(Describe(scenario, "zb-v")), kTerminalColumns);
}

}  // namespace
}  // namespace spiritlevel
