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

// 1F1B holds 4, 3, 2 and 1 activations: rank 2 is the one that is short.
TEST_F(SearchCommand, JudgesNamedSchedulesByTheLimitOfTheirRank) {
  const json found = Search({"--memory-limit", "8000,8000,1900,1900"});
  EXPECT_TRUE(found["memory_limit_bytes"].is_null());
  EXPECT_EQ(found["memory_limits_bytes"], json({8000, 8000, 1900, 1900}));
  bool saw_1f1b = false;
  for (const json& r : found["results"]) {
    const auto peaks = r["peak_bytes"].get<std::vector<int64_t>>();
    const bool fits = peaks[0] <= 8000 && peaks[1] <= 8000 && peaks[2] <= 1900 && peaks[3] <= 1900;
    EXPECT_EQ(r["fits"], fits) << r["schedule"];
    if (r["schedule"] != "1f1b") continue;
    saw_1f1b = true;
    EXPECT_FALSE(r["fits"]);
    EXPECT_THAT(r["reason"].get<std::string>(),
                AllOf(HasSubstr("rank 2"), HasSubstr("over the limit of 1.855 KiB")));
    EXPECT_EQ(r["certificate_note"], "it does not fit the memory limit");
  }
  EXPECT_TRUE(saw_1f1b);
  EXPECT_THAT(found["advice"].get<std::string>(),
              AllOf(HasSubstr("use search"), HasSubstr("over the limit of 1900 B")));
}

TEST_F(SearchCommand, SaysWhereANamedScheduleOfAnotherPlacementIsFaster) {
  const std::string two = folder_.Write(
      "two.textproto",
      "ranks: 4 micro_batches: 8 memory_limit_bytes: 4000 costs { uniform { forward_us: 100 "
      "input_grad_us: 100 weight_grad_us: 100 activation_bytes: 1000 weight_state_bytes: 400 } }");
  const auto told = [&](const char* placement) {
    return RunSpiritlevel({"search", two, "--evaluations", "3000", "--placement", placement}).out;
  };
  EXPECT_THAT(told("linear"),
              AllOf(HasSubstr("faster with another placement"), HasSubstr("try --placement best")));
  EXPECT_THAT(told("best"), testing::Not(HasSubstr("try --placement best")));
}

// 5 micro-batches on one rank take as long in any order: the one that needs least is the answer.
TEST_F(SearchCommand, OfOrdersThatTakeAsLongTheOneThatNeedsLessMemoryIsTheAnswer) {
  scenario_ = folder_.Write(
      "one.textproto",
      "ranks: 1 micro_batches: 5 memory_limit_bytes: 300 costs { uniform { forward_us: 1 "
      "input_grad_us: 1 weight_grad_us: 1 activation_bytes: 100 weight_state_bytes: 40 } }");
  EXPECT_EQ(Search({})["results"][0]["peak_bytes"], json({100}));
}

TEST_F(SearchCommand, TakesSizesAsPeopleWriteThem) {
  const auto limit = [&](const char* text) {
    return Search({"--memory-limit", text})["memory_limit_bytes"].get<int64_t>();
  };
  EXPECT_EQ(limit("3KiB"), 3072);
  EXPECT_EQ(limit("3 kB"), 3000);
  EXPECT_EQ(limit("3e3"), 3000);
  const Outcome compared = RunSpiritlevel(
      {"compare", "--schedule", "1f1b", scenario_, "--memory-limit", "4kB", "--json", "-"});
  ASSERT_EQ(compared.status, 0) << compared.err;
  const json all = json::parse(compared.out);
  EXPECT_EQ(all["memory_limit_bytes"], 4000);
  EXPECT_TRUE(all["results"][0]["fits"]);
  const auto simulated = [&](const char* text) {
    return RunSpiritlevel({"simulate", "--schedule", "1f1b", scenario_, "--memory-limit", text})
        .out;
  };
  EXPECT_THAT(simulated("4kB,3kB,2kB,1kB"), HasSubstr("yes, with 0 B to spare on rank 0"));
  EXPECT_THAT(simulated("9kB,9kB,9kB,999"), HasSubstr("no: 1 B over the limit of 999 B on rank 3"));
  EXPECT_THAT(simulated("5kB"), HasSubstr("yes, with 1000 B to spare\n"));
}

TEST_F(SearchCommand, APageShowsOneLimitSoLimitsThatDifferAreRefused) {
  const std::string page = folder_.Path("page.html");
  const Outcome outcome =
      RunSpiritlevel({"compare", scenario_, "--memory-limit", "4kB,3kB,2kB,1kB", "--html", page});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--memory-limit: a page shows one limit"));
}

TEST_F(SearchCommand, NamesTheFlagOrTheFieldOfALimitThatHoldsNothing) {
  const Outcome flag = RunSpiritlevel({"search", scenario_, "--memory-limit", "3000,3000,900,800"});
  EXPECT_EQ(flag.status, 2);
  EXPECT_THAT(flag.err, AllOf(HasSubstr("--memory-limit: no order of linear placement fits into "
                                        "900 bytes on rank 2"),
                              HasSubstr("needs 1000 bytes there")));
  const std::string tight = folder_.Write(
      "tight.textproto",
      "ranks: 2 micro_batches: 4 memory_limit_bytes: 999 costs { uniform { forward_us: 1 "
      "input_grad_us: 1 weight_grad_us: 1 activation_bytes: 1000 } }");
  const Outcome field = RunSpiritlevel({"search", tight});
  EXPECT_EQ(field.status, 2);
  EXPECT_THAT(field.err, HasSubstr("tight.textproto: memory_limit_bytes: no order"));
}

TEST_F(SearchCommand, LoopedPlacementWithOneStageARankIsNotSearchedTwice) {
  const json found = Search({"--placement", "best", "--stages-per-rank", "1"});
  ASSERT_EQ(found["placements"].size(), 2u);
  EXPECT_EQ(found["placements"][0]["placement"], "linear");
  EXPECT_EQ(found["placements"][1]["placement"], "v");
}

TEST_F(SearchCommand, WritesAnOrderThatCheckAcceptsAndThatPlaysAlike) {
  const std::string csv = folder_.Path("found.csv");
  const Outcome outcome =
      RunSpiritlevel({"search", scenario_, "--evaluations", "2000", "--export", csv});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("  search "),
                    HasSubstr("no order of linear placement (one stage a rank) can be below")));
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

TEST_F(SearchCommand, RefusesMoreOpsThanItCouldLookAt) {
  const std::string huge = folder_.Write(
      "huge.textproto",
      "ranks: 4 micro_batches: 400000 costs { uniform { forward_us: 1 input_grad_us: 1 "
      "weight_grad_us: 1 } }");
  const Outcome outcome = RunSpiritlevel({"search", huge});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("4800000 ops"), HasSubstr("micro_batches")));
}

TEST_F(SearchCommand, RefusesWhatMakesNoSense) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--objective", "speed"}, "there is span, makespan, step"},
      {{"--placement", "ring"}, "there is linear, looped, v, best"},
      {{"--tail", "post-validation-strict"}, "none and barrier"},
      {{"--memory-limit", "999"}, "needs 1000 bytes"},
      {{"--memory-limit", "3000,3000"}, "2 sizes for 4 ranks"},
      {{"--memory-limit", "much"}, "is no size"},
      {{"--memory-limit", "3000,,3000,3000"}, "is no size"},
      {{"--memory-limit", "8G"}, "no unit of memory"},
      {{"--seconds", "0"}, "--seconds"},
      {{"--seconds", "nan"}, "--seconds"},
      {{"--evaluations", "-4"}, "--evaluations"},
      {{"--evaluations", "0"}, "--evaluations: 0 is not between 1 and"},
      {{"--seed", "-5"}, "--seed: \"-5\" is no integer from 0"},
      {{"--seed", "18446744073709551616"}, "--seed"},
      {{"--seed", "1.5"}, "--seed"},
      {{"--placement", "v", "--stages-per-rank", "3"}, "v placement has 2 on each rank, not 3"},
      {{"--stages-per-rank", "3"}, "use --placement looped"},
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
