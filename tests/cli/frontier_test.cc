// The frontier as users and scripts see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run_binary.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kExample = "scenarios/example.textproto";
constexpr const char* kUnit = "scenarios/unit-times.textproto";

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

json FrontierOf(const std::string& scenario, std::vector<std::string> more = {}) {
  const Folder folder;
  std::vector<std::string> arguments = {"frontier", scenario, "--json", folder.Path("f.json")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = RunSpiritlevel(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return json::parse(Read(folder.Path("f.json")));
}

void ExpectACurve(const json& all) {
  const json& points = all["points"];
  ASSERT_FALSE(points.empty());
  for (size_t i = 0; i < points.size(); ++i) {
    const json& p = points[i];
    EXPECT_LE(p["lower_bound_ns"], p["value_ns"]) << p;
    EXPECT_LE(p["needs_bytes"], p["limit_bytes"]) << p;
    EXPECT_EQ(p["proved_optimal"], p["lower_bound_ns"] == p["value_ns"]) << p;
    if (i == 0) continue;
    EXPECT_LT(points[i - 1]["limit_bytes"], p["limit_bytes"]);
    EXPECT_GE(points[i - 1]["value_ns"], p["value_ns"]);
    EXPECT_GE(points[i - 1]["lower_bound_ns"], p["lower_bound_ns"]);
  }
}

// F = B = W = 1 ms, p = 4, m = 8, an activation and a W-state of 1000 bytes each. Below one
// activation nothing runs. Each rank has 8 * 3 ms of work, so that no span is below 24 ms; zb-h2
// reaches that with 2 p - 1 activations.
TEST(Frontier, GoesFromTheLeastFeasibleLimitToTheMostUseful) {
  const json all = FrontierOf(kUnit, {"--evaluations", "60000"});
  ExpectACurve(all);
  const json& first = all["points"].front();
  const json& last = all["points"].back();
  EXPECT_EQ(first["limit_bytes"], 1000);
  EXPECT_EQ(last["value_ns"], 24'000'000);
  EXPECT_TRUE(last["proved_optimal"]);
  EXPECT_LE(last["limit_bytes"], 7000);
  EXPECT_FALSE(all["interrupted"]);
}

// One W-state more than an activation is a limit of its own.
TEST(Frontier, LooksAtFractionsOfAnActivation) {
  const json all = FrontierOf(kExample, {"--evaluations", "4000", "--points", "16"});
  ExpectACurve(all);
  int fractions = 0;
  for (const json& p : all["points"]) {
    const int64_t limit = p["limit_bytes"];
    fractions += limit % 1000 != 0 ? 1 : 0;
    // i activations of 1000 bytes and j W-states of 366.
    bool is_sum = false;
    for (int64_t j = 0; j * 366 <= limit; ++j) is_sum |= (limit - j * 366) % 1000 == 0;
    EXPECT_TRUE(is_sum) << limit;
  }
  EXPECT_GT(fractions, 3);
}

TEST(Frontier, DependsOnTheSeedAndTheCountAlone) {
  const std::vector<std::string> flags = {"--evaluations", "3000", "--points", "6"};
  json one = FrontierOf(kUnit, flags);
  json two = FrontierOf(kUnit, flags);
  one.erase("seconds");
  two.erase("seconds");
  EXPECT_EQ(one, two);
}

// Within its own limit no named schedule of the placement is better than the curve.
TEST(Frontier, IsNeverAboveANamedScheduleOfItsPlacement) {
  const json all = FrontierOf(kExample, {"--evaluations", "2000", "--points", "12"});
  int compared = 0;
  for (const json& s : all["schedules"]) {
    if (s["placement"] != "linear") continue;
    for (const json& p : all["points"]) {
      if (p["limit_bytes"] < s["limit_bytes"]) continue;
      EXPECT_LE(p["value_ns"], s["value_ns"]) << s << p;
      ++compared;
    }
  }
  EXPECT_GT(compared, 5);
}

TEST(Frontier, BestIsNeverAboveAnyOneWithItsSeeds) {
  const json best = FrontierOf(kUnit, {"--evaluations", "3000", "--placement", "best"});
  ExpectACurve(best);
  for (const json& s : best["schedules"]) {
    if (s["placement"] == "bidirectional" || s["schedule"] == "dualpipe-v") continue;
    for (const json& p : best["points"]) {
      if (p["limit_bytes"] < s["limit_bytes"]) continue;
      EXPECT_LE(p["value_ns"], s["value_ns"]) << s << p;
    }
  }
}

// Rank 0 is given half of what the others have, and there is no static memory: so it stays.
// Nor between two points, where the curve has the time of the left one: half a percent at most.
TEST(Frontier, HasAStepWhereANamedScheduleBeginsToFit) {
  const json all =
      FrontierOf(kExample, {"--evaluations", "2000", "--points", "5", "--placement", "best"});
  ExpectACurve(all);
  int compared = 0;
  for (const json& s : all["schedules"]) {
    if (s["placement"] == "bidirectional" || s["schedule"] == "dualpipe-v") continue;
    const json* left = nullptr;
    for (const json& p : all["points"]) {
      if (p["limit_bytes"] <= s["limit_bytes"]) left = &p;
    }
    ASSERT_NE(left, nullptr);
    EXPECT_LE((*left)["value_ns"].get<double>(), 1.0051 * s["value_ns"].get<double>())
        << s << *left;
    ++compared;
  }
  EXPECT_EQ(compared, 12);
}

TEST(Frontier, LimitsOfRanksGrowTogether) {
  const json all = FrontierOf(
      kUnit, {"--evaluations", "2000", "--points", "5", "--memory-limit", "2000,4000,4000,4000"});
  ExpectACurve(all);
  EXPECT_EQ(all["points"].front()["limit_bytes"], 2000);
  for (const json& p : all["points"]) {
    const auto limits = p["limits_bytes"].get<std::vector<int64_t>>();
    ASSERT_EQ(limits.size(), 4u);
    EXPECT_EQ(limits[0], limits[1] / 2);
    EXPECT_EQ(limits[1], p["limit_bytes"]);
  }
}

TEST(Frontier, SaysWhatMoreMemoryBuys) {
  const Outcome outcome = RunSpiritlevel({"frontier", kExample, "--evaluations", "2000", "--points",
                                          "6", "--memory-limit", "4000", "--more", "4000"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("At 4000 B, the best is "), HasSubstr("4000 B more buy"),
                                 HasSubstr("no order can be below"), HasSubstr("zb-h1")));
}

TEST(Frontier, ThePageIsOneFileWithoutScriptAndNamesAreText) {
  const Folder folder;
  std::string text = Read(kUnit);
  const size_t at = text.find("unit times");
  ASSERT_NE(at, std::string::npos);
  text.insert(at, "<script>alert(1)</script>");
  const std::string scenario = folder.Write("s.textproto", text);
  const Outcome outcome = RunSpiritlevel({"frontier", scenario, "--evaluations", "1000", "--points",
                                          "4", "--html", folder.Path("f.html")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string page = Read(folder.Path("f.html"));
  EXPECT_THAT(page, AllOf(HasSubstr("<svg "), HasSubstr("class=\"band\""), HasSubstr("tabindex"),
                          HasSubstr("prefers-color-scheme:dark"), HasSubstr(">zb-h1</text>"),
                          HasSubstr("default-src &#39;none&#39;")));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("http:")),
                          Not(HasSubstr("https:")), Not(HasSubstr("nan")), Not(HasSubstr("inf "))));
}

TEST(Frontier, OneRankAndOneMicroBatchHaveOnePoint) {
  const Folder folder;
  const std::string scenario =
      folder.Write("one.textproto",
                   "ranks: 1 micro_batches: 1 costs { uniform { forward_us: 10 input_grad_us: 10 "
                   "weight_grad_us: 5 activation_bytes: 100 weight_state_bytes: 30 } }");
  const json all = FrontierOf(scenario, {"--evaluations", "100"});
  ASSERT_EQ(all["points"].size(), 1u);
  EXPECT_EQ(all["points"][0]["value_ns"], 25'000);
  EXPECT_THAT(all["answer"].get<std::string>(), HasSubstr("no memory buys more"));
}

TEST(Frontier, RefusesBadFlags) {
  const std::vector<std::vector<std::string>> bad = {
      {"--points", "1"},
      {"--points", "1001"},
      {"--seconds", "0"},
      {"--seconds", "nan"},
      {"--evaluations", "-1"},
      {"--objective", "speed"},
      {"--placement", "spiral"},
      {"--tail", "post-validation-strict"},
      {"--memory-limit", "0"},
      {"--memory-limit", "1,2"},
      {"--memory-limit", "1,x,3,4"},
      {"--more", "0"},
      {"--threads", "-1"},
  };
  for (const std::vector<std::string>& flags : bad) {
    std::vector<std::string> arguments = {"frontier", kUnit};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 2) << flags[0] << ' ' << flags[1] << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(flags[0])) << flags[1];
  }
}

}  // namespace
}  // namespace spiritlevel
