// Where the numbers come from, in words, and the comparison in five lines.
#include "report/provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "report/advice.h"
#include "report/digits.h"
#include "report/five_lines.h"
#include "report/schedules_list.h"
#include "report/table.h"
#include "report/text.h"
#include "tests/report/comparison_for_test.h"
#include "tests/report/provenance_for_test.h"

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string AsText(const Provenance& from) {
  std::string text;
  for (const ProvenanceLine& line : LinesOf(from)) text += line.label + "|" + line.text + "\n";
  return text;
}

ScenarioForTest Equal() {
  return {.cost = {.forward = 1000,
                   .input_grad = 1000,
                   .weight_grad = 1000,
                   .activation = 1000,
                   .weight_state = 400},
          .memory_limit = 9000};
}

TEST(Provenance, TypedCostsAreNotTakenForMeasuredOnes) {
  EXPECT_EQ(AsText({.scenario_file = "mine.textproto"}),
            "costs|typed into mine.textproto; not measured on this machine\n");
}

TEST(Provenance, NamesModelSplitsMachineAndWhatIsLeftOut) {
  Provenance from = ProvenanceForTest();
  const std::string text = AsText(from);
  for (const char* line :
       {"model|LlamaForCausalLM, 22 layers, 1 100 048 384 parameters, from config.json\n",
        "micro-batch|2 x 1024 tokens\n", "4 stages|balanced split, layers 6 6 6 4\n",
        "8 stages|balanced split, layers 3 3 3 3 3 3 3 1\n", "recompute|none\n",
        "profile|machine.textproto, measured 2001-02-03 on Abacus 3000, float32, beads 1.0\n",
        "within 8.4 %\n", "assumed|head_dim absent\n", "not modelled|tensor parallelism\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, AllOf(Not(HasSubstr("noisy")), Not(HasSubstr("replicas"))));
  from.profile->noisy = true;
  from.profile->cpu = "";
  from.model->data_parallel = 8;
  from.model->all_cores_busy = false;
  EXPECT_THAT(AsText(from), AllOf(HasSubstr("the machine was noisy"), HasSubstr("on unknown"),
                                  HasSubstr("8 replicas, gradients in buckets of 25 MiB"),
                                  HasSubstr("as if the other cores were idle")));
}

// A simulated result names its profile, in the table and where one schedule is described.
TEST(Provenance, StandsAboveEveryTable) {
  Comparison comparison = Compare({.cost = {.forward = 1000, .weight_grad = 1000}}, {"1f1b"});
  const std::string without = CompareTable(comparison);
  comparison.provenance = Provenance{.scenario_file = "mine.textproto"};
  EXPECT_EQ(CompareTable(comparison), without);
  comparison.provenance = ProvenanceForTest();
  const std::string source =
      "costs of config.json on Abacus 3000, float32, measured 2001-02-03 (machine.textproto)\n" +
      PlayedAs(*comparison.provenance) + "\n\n";
  EXPECT_THAT(CompareTable(comparison), HasSubstr(source));
  EXPECT_THAT(DescribeResult(comparison.results[0], comparison), HasSubstr(source));
}

TEST(Provenance, ATypedInProfileIsCalledSo) {
  Provenance from = ProvenanceForTest();
  from.profile->date = from.profile->cpu = "";
  EXPECT_THAT(AsText(from),
              AllOf(HasSubstr("profile|machine.textproto, a profile that was typed in, float32\n"),
                    Not(HasSubstr("unknown"))));
  EXPECT_EQ(SourceOf(from),
            "costs of config.json on a profile that was typed in, float32 (machine.textproto)");
  Comparison comparison = Compare(Equal());
  comparison.provenance = from;
  EXPECT_THAT(FiveLines(comparison), HasSubstr("typed in; nothing was measured"));
}

TEST(Provenance, NamesWhatACalibrationLeftOut) {
  Provenance from = ProvenanceForTest();
  EXPECT_THAT(AsText(from), Not(HasSubstr("not measured|")));
  from.profile->left_out = 12;
  EXPECT_THAT(AsText(from),
              HasSubstr("not measured|12 shapes that were planned, for want of time\n"));
  from.profile->complete = false;
  EXPECT_THAT(AsText(from), HasSubstr("the measurement was stopped\n"));
}

TEST(Provenance, LongListsOfLayersAreShortened) {
  EXPECT_EQ(ShortList({6, 6, 6, 4}), "6 6 6 4");
  EXPECT_EQ(ShortList({3, 3, 3, 3, 3, 3, 3, 1}), "3 x7 1");
  EXPECT_EQ(ShortList({}), "");
  Provenance from = ProvenanceForTest();
  from.model->splits[1].placement = "V";
  EXPECT_EQ(PlayedAs(from),
            "layers 6 6 6 4; 3 x7 1 (V)\nmicro-batches of 2 x 1024 tokens, recompute none");
  from.model->data_parallel = 8;
  EXPECT_THAT(PlayedAs(from), HasSubstr(", 8 replicas"));
  EXPECT_EQ(PlayedAs({.scenario_file = "mine.textproto"}), "");
}

TEST(Digits, AreGroupedInThrees) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1 000");
  EXPECT_EQ(Grouped(-1234567), "-1 234 567");
  EXPECT_EQ(Grouped(-123), "-123");
}

int Lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

// 8 ranks, 16 micro-batches: 1F1B takes 69 units and ZB-V less in the same memory.
TEST(FiveLines, SayBestGainLimitMemoryAndHowSure) {
  Comparison comparison = Compare(Equal());
  comparison.provenance = ProvenanceForTest();
  const std::string text = FiveLines(comparison);
  EXPECT_EQ(Lines(text), 5);
  EXPECT_LE(LongestLine(text), kTerminalColumns);
  EXPECT_THAT(text, AllOf(StartsWith("use       " + FindAdvice(comparison).schedule + ": "),
                          HasSubstr("as fast as 1f1b with 69 us a step"),
                          HasSubstr("no schedule can be more than 1.44x"),  // 69 / 48
                          HasSubstr("dependency"), HasSubstr("of a limit of 9000 B"),
                          HasSubstr("predicted within 8.4 %")));
  comparison.provenance->profile->noisy = true;
  EXPECT_THAT(FiveLines(comparison),
              HasSubstr("but noisy; again: spiritlevel calibrate -o machine.textproto"));
  EXPECT_LE(LongestLine(FiveLines(comparison)), kTerminalColumns);
}

TEST(FiveLines, CountThoseThatFit) {
  const std::string text = FiveLines(Compare(Equal(), {"1f1b", "zb-h2", "gpipe"}));
  EXPECT_THAT(text, AllOf(StartsWith("use       1f1b: "), HasSubstr("none worth having over 1f1b"),
                          HasSubstr("1 of the 3 schedules that run here fit"),
                          HasSubstr("typed in; nothing was measured here")));
}

TEST(FiveLines, OfOneScheduleCountNothing) {
  const std::string one = FiveLines(Compare(Equal(), {"1f1b"}));
  EXPECT_EQ(Lines(one), 5);
  EXPECT_THAT(one, Not(HasSubstr("of the 1")));
  ScenarioForTest small = Equal();
  small.memory_limit = 10;
  const std::string none = FiveLines(Compare(small, {"zb-h1"}));
  EXPECT_THAT(none, AllOf(HasSubstr("this one does not fit"), HasSubstr("zb-h1 needs too much: ")));
}

// Two within half a percent of each other: the smaller one is advised, and that is said.
TEST(FiveLines, SayHowFarTheAdvisedIsFromTheFastest) {
  Comparison comparison = Compare(Equal());
  Result* advised = nullptr;
  const std::string name = FindAdvice(comparison).schedule;
  for (Result& r : comparison.results) {
    if (r.schedule == name) advised = &r;
  }
  ASSERT_NE(advised, nullptr);
  EXPECT_THAT(FiveLines(comparison), Not(HasSubstr("of the fastest")));
  Result faster = *advised;
  faster.schedule = "mine.csv";
  faster.named = false;
  faster.summary->step -= faster.summary->step / 250;
  for (Bytes& peak : faster.summary->peak_bytes) peak += 100;
  comparison.results.push_back(faster);
  EXPECT_THAT(FiveLines(comparison), HasSubstr(", within 0.5 % of the fastest, in less memory"));
}

// What is called `optimizer` is mostly ranks waiting for each other.
TEST(FiveLines, DoNotBlameTheOptimizerForTheTail) {
  ScenarioForTest slow = Equal();
  slow.common.barrier = 1'000'000;
  EXPECT_THAT(FiveLines(Compare(slow, {"1f1b"})),
              HasSubstr("most idle time is the tail (step, barrier, sums of gradients)"));
}

TEST(FiveLines, AreFiveWhereNothingFitsAndWhereNothingRuns) {
  ScenarioForTest small = Equal();
  small.memory_limit = 10;
  const std::string none = FiveLines(Compare(small));
  EXPECT_EQ(Lines(none), 5);
  EXPECT_THAT(none, AllOf(HasSubstr("none fits"), HasSubstr("1f1b would take 69 us"),
                          HasSubstr("needs least: "), HasSubstr(" over the limit of 10 B")));
  Comparison odd = Compare({.ranks = 7, .cost = {.forward = 1}}, {"dualpipe"});
  odd.one_f_one_b.reset();
  EXPECT_EQ(Lines(FiveLines(odd)), 5);
  EXPECT_THAT(FiveLines(odd), AllOf(HasSubstr("none can run"), HasSubstr("1f1b cannot run here")));
}

}  // namespace
}  // namespace spiritlevel
