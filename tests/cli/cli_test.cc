// The program as users and scripts see it: what it prints, writes and returns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/cli/run_binary.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kExample = "scenarios/example.textproto";

json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

json CompareToJson(const std::vector<std::string>& more, const char* scenario = kExample) {
  const Folder folder;
  std::vector<std::string> arguments = {"compare", scenario, "--json", folder.Path("r.json")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = RunSpiritlevel(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return ReadJson(folder.Path("r.json"));
}

json ResultOf(const json& comparison, const std::string& schedule) {
  for (const json& result : comparison["results"]) {
    if (result["schedule"] == schedule) return result;
  }
  ADD_FAILURE() << "no result for " << schedule;
  return {};
}

TEST(Compare, PlaysEveryScheduleOnTheExample) {
  const Outcome outcome = RunSpiritlevel({"compare", kExample});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "interleaved-zb",
                           "zb-v", "v-half", "v-min", "dualpipe", "dualpipe-v"}) {
    EXPECT_THAT(outcome.out, HasSubstr(name));
  }
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("no schedule can"), HasSubstr("advice")));
}

TEST(Compare, JsonHasEveryFieldWithItsKind) {
  const json all = CompareToJson({});
  EXPECT_EQ(all["scenario"], "gpt-1.5b, 8 ranks, 24 micro-batches");
  EXPECT_EQ(all["ranks"], 8);
  EXPECT_EQ(all["micro_batches"], 24);
  ASSERT_EQ(all["results"].size(), 14u);
  for (const json& r : all["results"]) {
    for (const char* key : {"makespan_ns", "max_rank_span_ns", "period_ns", "step_ns",
                            "peak_waiting_b", "peak_waiting_w", "pp_bytes", "parameter_copies"}) {
      EXPECT_TRUE(r[key].is_number_integer()) << key;
    }
    for (const char* key : {"bubble_rate", "bubble_fraction"}) EXPECT_TRUE(r[key].is_number());
    for (const char* key : {"peak_bytes", "peak_activation_bytes", "busy_ns"}) {
      EXPECT_EQ(r[key].size(), 8u) << key;
    }
    for (const char* key :
         {"dependency", "imbalance", "transfer", "memory", "collective", "optimizer", "launch"}) {
      EXPECT_TRUE(r["stalls_ns"][key].is_number_integer()) << key;
    }
    for (const char* key : {"fits", "valid"}) EXPECT_TRUE(r[key].is_boolean()) << key;
    EXPECT_TRUE(r["reason"].is_string());
    EXPECT_TRUE(r["valid"].get<bool>()) << r["schedule"] << r["reason"];
  }
}

TEST(Compare, BusyAndStallsAddUpToRanksTimesMakespan) {
  const json all = CompareToJson({"--tail", "none"});
  for (const json& r : all["results"]) {
    int64_t sum = 0;
    for (const json& busy : r["busy_ns"]) sum += busy.get<int64_t>();
    for (const json& stall : r["stalls_ns"]) sum += stall.get<int64_t>();
    EXPECT_EQ(sum, 8 * r["makespan_ns"].get<int64_t>()) << r["schedule"];
  }
}

// arXiv 2401.10241, 1.5B, m = 24: to the microsecond.
TEST(Compare, GivesThePapersNumbersForTheExample) {
  const json all = CompareToJson({});
  EXPECT_EQ(ResultOf(all, "zb-h1")["max_rank_span_ns"], 1'310'405'000);
  EXPECT_NEAR(ResultOf(all, "1f1b")["bubble_rate"], 0.2431, 5e-5);
  EXPECT_NEAR(ResultOf(all, "zb-h2")["bubble_rate"], 0.1083, 5e-5);
  EXPECT_THAT(ResultOf(all, "1f1b")["peak_bytes"].get<std::vector<int64_t>>(),
              ElementsAre(8000, 7000, 6000, 5000, 4000, 3000, 2000, 1000));
  EXPECT_TRUE(ResultOf(all, "zb-h2")["fits"]);
  EXPECT_FALSE(ResultOf(all, "gpipe")["fits"]);
  EXPECT_THAT(ResultOf(all, "gpipe")["reason"].get<std::string>(),
              AllOf(HasSubstr("rank 0"), HasSubstr("(17000 bytes), over the limit of")));
  EXPECT_EQ(ResultOf(all, "dualpipe")["parameter_copies"], 2);
}

TEST(Compare, JsonScenarioAndTextScenarioGiveTheSameAnswer) {
  json text = CompareToJson({});
  json other = CompareToJson({}, "scenarios/example.json");
  EXPECT_EQ(text["provenance"]["costs"], "typed");
  EXPECT_EQ(text["provenance"]["scenario_file"], kExample);
  EXPECT_EQ(other["provenance"]["scenario_file"], "scenarios/example.json");
  text.erase("provenance");
  other.erase("provenance");
  EXPECT_EQ(text, other);
}

TEST(Compare, AScheduleThatCannotRunIsARowAmongOthersAndAnErrorAlone) {
  const Folder folder;
  const std::string seven = folder.Write("seven.textproto",
                                         "ranks: 7 micro_batches: 28 costs { uniform { "
                                         "forward_us: 1 input_grad_us: 1 weight_grad_us: 1 } }");
  const Outcome row = RunSpiritlevel({"compare", seven});
  EXPECT_EQ(row.status, 0) << row.err;
  EXPECT_THAT(row.out, HasSubstr("dualpipe needs an even number of ranks"));

  const json both = CompareToJson({"--schedule", "1f1b", "--schedule", "dualpipe"}, seven.c_str());
  const json refused = ResultOf(both, "dualpipe");
  EXPECT_FALSE(refused["valid"]);
  EXPECT_FALSE(refused["fits"]);
  EXPECT_TRUE(refused["makespan_ns"].is_null());
  EXPECT_THAT(refused["reason"].get<std::string>(), HasSubstr("dualpipe-v"));

  const Outcome alone = RunSpiritlevel({"compare", seven, "--schedule", "dualpipe"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_EQ(alone.out, "");
  EXPECT_THAT(alone.err, AllOf(HasSubstr("7 ranks"), HasSubstr("dualpipe-v")));
}

TEST(Compare, MegatronsRefusalIsANote) {
  const Folder folder;
  const std::string few = folder.Write("few.textproto",
                                       "ranks: 6 micro_batches: 3 costs { uniform { "
                                       "forward_us: 2 input_grad_us: 2 weight_grad_us: 2 } }");
  const json r = ResultOf(CompareToJson({"--schedule", "interleaved"}, few.c_str()), "interleaved");
  EXPECT_EQ(r["makespan_ns"], 42'000);
  EXPECT_EQ(r["reason"], "Megatron refuses: group 6 > m");
  EXPECT_TRUE(r["valid"]);
}

TEST(Compare, GroupAndStagesPerRankAreFlagsToo) {
  const json two = CompareToJson({"--schedule", "interleaved"});
  const json three = CompareToJson({"--schedule", "interleaved", "--stages-per-rank", "3"});
  EXPECT_NE(two["results"][0]["makespan_ns"], three["results"][0]["makespan_ns"]);
  EXPECT_NEAR(three["results"][0]["bubble_rate"], 0.1090, 5e-5);
  const json grouped = CompareToJson({"--schedule", "interleaved", "--group", "12"});
  EXPECT_NE(two["results"][0]["makespan_ns"], grouped["results"][0]["makespan_ns"]);
}

TEST(Compare, TailAndIterationsDecideThePeriod) {
  const Folder folder;
  const std::string unit = folder.Write("unit.textproto",
                                        "ranks: 8 micro_batches: 16 costs { uniform { "
                                        "forward_us: 1 input_grad_us: 1 weight_grad_us: 1 } }");
  const auto period = [&](const char* tail, const char* iterations) {
    const json all = CompareToJson(
        {"--schedule", "zb-h2", "--tail", tail, "--iterations", iterations}, unit.c_str());
    EXPECT_EQ(all["results"][0]["makespan_ns"], 55'000);
    EXPECT_EQ(all["results"][0]["step_ns"], all["results"][0]["period_ns"]);
    return all["results"][0]["period_ns"].get<int64_t>();
  };
  EXPECT_EQ(period("none", "1"), 48'000);
  EXPECT_EQ(period("barrier", "1"), 55'000);
  EXPECT_EQ(period("none", "9"), 48'000);
  EXPECT_EQ(period("post-validation-strict", "1"), 55'000);
  EXPECT_EQ(period("post-validation-speculative", "1"), 48'000);
  // One step in a hundred rejected: 48 + 0.01 (63 - 48).
  const json rejected = CompareToJson(
      {"--schedule", "zb-h2", "--tail", "post-validation-speculative", "--rejection", "0.01"},
      unit.c_str());
  EXPECT_EQ(rejected["results"][0]["period_ns"], 48'000);
  EXPECT_EQ(rejected["results"][0]["step_ns"], 48'150);
}

// 4 ranks, 8 micro-batches, F = B = W = 10: 1F1B takes 11 x 30.
TEST(Compare, SumsOfGradientsThatAreTypedInAreWaitedForByThoseWhoHaveThem) {
  const Folder folder;
  const auto step = [&](const char* schedule, const std::string& sums) {
    const std::string scenario =
        folder.Write("sums.textproto",
                     "ranks: 4 micro_batches: 8 costs { uniform { forward_us: 10 input_grad_us: 10 "
                     "weight_grad_us: 10 } " +
                         sums + " }");
    const json all = CompareToJson({"--schedule", schedule}, scenario.c_str());
    EXPECT_TRUE(all["results"][0]["valid"].get<bool>()) << all["results"][0]["reason"];
    return all["results"][0]["step_ns"].get<int64_t>();
  };
  EXPECT_EQ(step("1f1b", ""), 330'000);
  EXPECT_EQ(step("1f1b", "reduction_us: 100"), 430'000);
  // The first of four is ready when a quarter of the last BW is done: 15 us of the sums are hidden.
  EXPECT_EQ(step("1f1b", "reduction_us: 100 buckets: 4"), 415'000);
  // Only where the ends are on two ranks, and where a stage is on two.
  EXPECT_EQ(step("1f1b", "tied_exchange_us: 30"), 360'000);
  EXPECT_EQ(step("zb-v", "tied_exchange_us: 30"), step("zb-v", ""));
  EXPECT_EQ(step("1f1b", "twin_sum_us: 50"), 330'000);
  EXPECT_GT(step("dualpipe", "twin_sum_us: 50"), step("dualpipe", ""));
}

TEST(Compare, AFileCalledLikeAScheduleIsNotIt) {
  const Folder folder;
  const std::string csv = folder.Path("1f1b");
  ASSERT_EQ(RunSpiritlevel({"export", kExample, "--schedule", "zb-h1", "-o", csv}).status, 0);
  const json all = CompareToJson({"--schedule-file", csv});
  EXPECT_NEAR(all["results"][0]["speedup_over_1f1b"], 1.1117, 1e-4);
}

TEST(Compare, AdviceSpeaksOfThoseComparedOnly) {
  const json one = CompareToJson({"--schedule", "1f1b"});
  EXPECT_THAT(one["advice"].get<std::string>(), HasSubstr("among those compared"));
}

TEST(Posting, FifoLanesCostTimeAndNameTheirDeadlocks) {
  const json ideal = CompareToJson({"--schedule", "1f1b"});
  const json fifo = CompareToJson({"--schedule", "1f1b", "--posting", "nccl-fifo"});
  EXPECT_EQ(fifo["posting"], "nccl-fifo");
  EXPECT_GT(fifo["results"][0]["step_ns"], ideal["results"][0]["step_ns"]);
  EXPECT_TRUE(fifo["results"][0]["valid"]) << fifo["results"][0]["reason"];

  const Outcome naive = RunSpiritlevel({"simulate", kExample, "--schedule", "1f1b", "--posting",
                                        "nccl-fifo", "--receives", "naive"});
  EXPECT_EQ(naive.status, 2);
  EXPECT_THAT(naive.err, AllOf(HasSubstr("1f1b: deadlocks under nccl-fifo posting:"),
                               HasSubstr("waits for rank"), HasSubstr("--receives early")));
  const json batched = CompareToJson({"--posting", "batched"});
  for (const json& result : batched["results"]) {
    EXPECT_TRUE(result["valid"].get<bool>()) << result["schedule"] << result["reason"];
  }
}

TEST(Report, APageAndATraceAreWritten) {
  const Folder folder;
  const Outcome outcome =
      RunSpiritlevel({"simulate", kExample, "--schedule", "zb-v", "--html", folder.Path("r.html"),
                      "--trace", folder.Path("t.pftrace")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(folder.Names(), ElementsAre("r.html", "t.pftrace"));
  std::ifstream page(folder.Path("r.html"));
  const std::string html((std::istreambuf_iterator<char>(page)), std::istreambuf_iterator<char>());
  EXPECT_THAT(html, AllOf(testing::StartsWith("<!DOCTYPE html>"), HasSubstr("zb-v"),
                          HasSubstr("forward_us: 18522"), testing::EndsWith("</html>\n")));
  EXPECT_EQ(RunSpiritlevel({"compare", kExample, "--html", folder.Path("none/r.html")}).status, 2);
}

TEST(Simulate, WritesTheSameObjectWithOneResult) {
  const Folder folder;
  const Outcome outcome =
      RunSpiritlevel({"simulate", kExample, "--schedule", "zb-v", "--json", folder.Path("r.json")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const json simulated = ReadJson(folder.Path("r.json"));
  ASSERT_EQ(simulated["results"].size(), 1u);
  EXPECT_EQ(simulated["results"][0], ResultOf(CompareToJson({}), "zb-v"));
}

TEST(Simulate, DrawsEveryRank) {
  const Outcome outcome = RunSpiritlevel({"simulate", kExample, "--schedule", "zb-h1", "--chart"});
  EXPECT_EQ(outcome.status, 0);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(outcome.out, HasSubstr("rank " + std::to_string(rank) + " |"));
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("\033"))) << "no colour where it is no terminal";
}

TEST(Simulate, NeedsExactlyOneSchedule) {
  EXPECT_EQ(RunSpiritlevel({"simulate", kExample}).status, 2);
  EXPECT_EQ(
      RunSpiritlevel({"simulate", kExample, "--schedule", "1f1b", "--schedule", "zb-h1"}).status,
      2);
}

TEST(Schedules, ListsAllWithConstraintsAndFormulas) {
  const Outcome outcome = RunSpiritlevel({"schedules"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("dualpipe-v"), HasSubstr("m >= 2p"),
                                 HasSubstr("(p-1)(F+B-W) + 4(p-1)c")));
}

TEST(Export, WritesACsvThatComesBackEqual) {
  const Folder folder;
  const std::string csv = folder.Path("s.csv");
  const Outcome written = RunSpiritlevel(
      {"export", kExample, "--schedule", "zb-v", "--format", "torch-csv", "-o", csv});
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_THAT(written.out, HasSubstr("v"));
  const json named = CompareToJson({"--schedule", "zb-v"});
  json read = CompareToJson({"--schedule-file", csv});
  EXPECT_EQ(read["results"][0]["schedule"], "s.csv");
  read["results"][0]["schedule"] = "zb-v";
  EXPECT_EQ(read["results"][0], named["results"][0]);

  const Outcome checked = RunSpiritlevel({"check", csv});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_THAT(checked.out, AllOf(HasSubstr("V placement"), HasSubstr("legal")));
}

TEST(Export, RefusesDualPipeWithTheReason) {
  const Folder folder;
  const Outcome outcome =
      RunSpiritlevel({"export", kExample, "--schedule", "dualpipe", "-o", folder.Path("d.csv")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank 0 and"), HasSubstr("dualpipe-v")));
  EXPECT_THAT(folder.Names(), ElementsAre());
}

TEST(Check, NamesTheCycleOfADeadlock) {
  const Folder folder;
  const std::string csv = folder.Write("bad.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  const Outcome outcome = RunSpiritlevel({"check", csv});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("deadlock"), HasSubstr("0BW0 waits for 1BW0"),
                                 HasSubstr("1F1 waits for 0F1")));
}

TEST(Check, SaysWhatAFileIsNot) {
  const Folder folder;
  const std::string csv = folder.Path("i.csv");
  ASSERT_EQ(RunSpiritlevel({"export", kExample, "--schedule", "interleaved-zb", "-o", csv}).status,
            0);
  EXPECT_THAT(RunSpiritlevel({"check", csv}).out, HasSubstr("looped: this is not ZB-V"));
}

TEST(Check, JudgesEveryScheduleOnAScenario) {
  const Outcome outcome = RunSpiritlevel({"check", "scenarios/uneven-stages.textproto"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("NOT LEGAL")));
}

TEST(Help, EveryCommandHasIt) {
  for (const char* command :
       {"compare", "simulate", "schedules", "check", "export", "model", "calibrate"}) {
    const Outcome outcome = RunSpiritlevel({command, "--help"});
    EXPECT_EQ(outcome.status, 0) << command;
    EXPECT_THAT(outcome.out, HasSubstr("Usage")) << command;
  }
  EXPECT_THAT(RunSpiritlevel({"--help"}).out, HasSubstr("compare"));
  EXPECT_THAT(RunSpiritlevel({"--version"}).out, HasSubstr("spiritlevel 0."));
}

}  // namespace
}  // namespace spiritlevel
