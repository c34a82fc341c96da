// The search command, as a user has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/search/exact.h"
#include "tests/cli/run_binary.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kScenario =
    "ranks: 4 micro_batches: 8 memory_limit_bytes: 3000 costs { uniform { forward_us: 100 "
    "input_grad_us: 110 weight_grad_us: 70 transfer_us: 2 activation_bytes: 1000 "
    "weight_state_bytes: 400 } }";

class SearchCommand : public testing::Test {
 protected:
  json Search(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"search", scenario_});
    arguments.insert(arguments.end(), {"--evaluations", "4000", "--json", "-"});
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out);
  }

  Folder folder_;
  std::string scenario_ = folder_.Write("s.textproto", kScenario);
};

TEST_F(SearchCommand, FitsWhereTheNamedSchedulesDoNotAndSaysHowGoodItIs) {
  const json found = Search({});
  const json& row = found["results"][0];
  EXPECT_EQ(row["schedule"], "search");
  EXPECT_TRUE(row["valid"]);
  EXPECT_TRUE(row["fits"]);
  EXPECT_EQ(found["value_ns"], row["max_rank_span_ns"]);
  EXPECT_LE(found["lower_bound_ns"], found["value_ns"]);
  EXPECT_EQ(found["proved_optimal"].get<bool>(), found["gap"].get<double>() == 0);
  EXPECT_EQ(found["placement"], "linear");
  EXPECT_GT(found["seconds"].get<double>(), 0);
  for (const json& result : found["results"]) {
    const bool one_stage = result["schedule"] == "1f1b" || result["schedule"] == "zb-h1";
    if (!one_stage) continue;
    EXPECT_FALSE(result["fits"]) << result["schedule"];
  }
}

TEST_F(SearchCommand, GivesTheSameAnswerForTheSameSeed) {
  const auto value = [&](const char* seed) {
    return Search({"--seed", seed, "--threads", "2"})["value_ns"].get<int64_t>();
  };
  EXPECT_EQ(value("3"), value("3"));
}

TEST_F(SearchCommand, TakesTheBestOfAllPlacements) {
  const int64_t best = Search({"--placement", "best"})["value_ns"];
  EXPECT_LE(best, Search({"--placement", "linear"})["value_ns"].get<int64_t>());
  EXPECT_EQ(Search({"--placement", "v"})["stages_per_rank"], 2);
}

TEST_F(SearchCommand, MinimisesWhatItIsAskedTo) {
  const json makespan = Search({"--objective", "makespan"});
  EXPECT_EQ(makespan["value_ns"], makespan["results"][0]["makespan_ns"]);
  const json step = Search({"--objective", "step", "--tail", "none"});
  EXPECT_EQ(step["value_ns"], step["results"][0]["period_ns"]);
}

TEST_F(SearchCommand, TakesALimitForEachRank) {
  const json found = Search({"--memory-limit", "4000,3000,2000,1500"});
  const auto peaks = found["results"][0]["peak_bytes"].get<std::vector<int64_t>>();
  EXPECT_LE(peaks[1], 3000);
  EXPECT_LE(peaks[2], 2000);
  EXPECT_LE(peaks[3], 1500);
}

TEST_F(SearchCommand, WritesAnOrderThatCheckAcceptsAndThatPlaysAlike) {
  const std::string csv = folder_.Path("found.csv");
  const Outcome outcome =
      RunSpiritlevel({"search", scenario_, "--evaluations", "2000", "--export", csv});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("  search "), HasSubstr("no order there can be below")));
  EXPECT_EQ(RunSpiritlevel({"check", csv}).status, 0);
  const std::string comms = folder_.Path("comms.csv");
  ASSERT_EQ(RunSpiritlevel({"search", scenario_, "--evaluations", "2000", "--export-comms", comms})
                .status,
            0);
  std::ifstream file(comms);
  const std::string rows{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(rows, AllOf(HasSubstr("0SEND_F0"), HasSubstr("1RECV_F0"), HasSubstr("REDUCE_GRAD")));
  const Outcome played = RunSpiritlevel({"simulate", scenario_, "--schedule-file", csv});
  EXPECT_EQ(played.status, 0) << played.err;
}

// 3 ranks, 5 micro-batches, room for two activations: the bound of docs/bounds.md falls short of
// the best order, which the integer program proves within a fraction of a second.
constexpr const char* kProvable =
    "ranks: 3 micro_batches: 5 memory_limit_bytes: 2000 costs { uniform { forward_us: 70 "
    "input_grad_us: 150 weight_grad_us: 80 transfer_us: 2 activation_bytes: 1000 "
    "weight_state_bytes: 400 } }";

TEST_F(SearchCommand, ProvesASmallProblemByTheIntegerProgram) {
  if (!ExactIsAvailable()) GTEST_SKIP() << "built without CBC";
  const std::string small = folder_.Write("small.textproto", kProvable);
  const Outcome outcome = RunSpiritlevel({"search", small, "--seconds", "20", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json found = json::parse(outcome.out);
  EXPECT_TRUE(found["proved_optimal"]);
  EXPECT_EQ(found["lower_bound_reason"], "integer program");
  EXPECT_EQ(found["lower_bound_ns"], found["value_ns"]);
  // The row of the order found says the same, and no named schedule is below it.
  EXPECT_EQ(found["results"][0]["lower_bound_reason"], "integer program");
  EXPECT_TRUE(found["results"][0]["proved_optimal"]);
  for (const json& r : found["results"]) {
    const bool is_linear = r["schedule"] == "1f1b" || r["schedule"] == "zb-h1";
    if (!is_linear || !r["fits"]) continue;
    EXPECT_GE(r["max_rank_span_ns"], found["lower_bound_ns"]) << r["schedule"];
  }
}

TEST_F(SearchCommand, WithABudgetByCountNothingHangsOnHowFarASolverComes) {
  scenario_ = folder_.Write("small.textproto", kProvable);
  const json found = Search({});
  EXPECT_FALSE(found["proved_optimal"]);
  EXPECT_NE(found["lower_bound_reason"], "integer program");
  EXPECT_EQ(found["lower_bound_ns"], Search({})["lower_bound_ns"]);
}

TEST_F(SearchCommand, RefusesWhatMakesNoSense) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--objective", "speed"}, "there is span, makespan, step"},
      {{"--placement", "ring"}, "there is linear, looped, v, best"},
      {{"--tail", "post-validation-strict"}, "none and barrier"},
      {{"--memory-limit", "999"}, "needs 1000 bytes"},
      {{"--memory-limit", "3000,3000"}, "2 numbers for 4 ranks"},
      {{"--memory-limit", "much"}, "no number of bytes"},
      {{"--seconds", "0"}, "--seconds"},
      {{"--seconds", "nan"}, "--seconds"},
      {{"--evaluations", "-4"}, "--evaluations"},
      {{"--threads", "-1"}, "--threads"},
  };
  for (const auto& [flags, words] : cases) {
    std::vector<std::string> arguments = {"search", scenario_};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_THAT(outcome.err, HasSubstr(words));
  }
}

}  // namespace
}  // namespace spiritlevel
