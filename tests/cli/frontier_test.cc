// The frontier as users and scripts see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr const char* kExample = "scenarios/example.textproto";
constexpr const char* kUnit = "scenarios/unit-times.textproto";

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Without the breaks of lines.
std::string Flat(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
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
    EXPECT_EQ(p["proved_optimal"], p["lower_bound_ns"] == p["value_ns"]) << p;
    if (i == 0) continue;
    EXPECT_LT(points[i - 1]["limit_bytes"], p["limit_bytes"]);
    // A row that repeats its left neighbour's time would say nothing.
    EXPECT_GT(points[i - 1]["value_ns"], p["value_ns"]);
    EXPECT_GE(points[i - 1]["lower_bound_ns"], p["lower_bound_ns"]);
  }
  const json& bounds = all["bounds"];
  ASSERT_GE(bounds.size(), points.size());
  EXPECT_EQ(bounds.front()["limit_bytes"], points.front()["limit_bytes"]);
  EXPECT_EQ(bounds.back()["limit_bytes"], points.back()["limit_bytes"]);
  for (size_t i = 1; i < bounds.size(); ++i) {
    EXPECT_LT(bounds[i - 1]["limit_bytes"], bounds[i]["limit_bytes"]);
    EXPECT_GE(bounds[i - 1]["lower_bound_ns"], bounds[i]["lower_bound_ns"]);
  }
  EXPECT_LE(all["lower_bound_beyond_ns"], bounds.back()["lower_bound_ns"]);
}

// A point that is said to be a named schedule's is that of its placement, and is one that a search
// could have made.
void ExpectFoundByTheirLike(const json& all) {
  for (const json& p : all["points"]) {
    if (p["found_by"] == "search") continue;
    bool stands = false;
    for (const json& s : all["schedules"]) {
      if (s["schedule"] != p["found_by"]) continue;
      stands = true;
      EXPECT_EQ(s["placement"], p["placement"]) << p << s;
      EXPECT_TRUE(s["covered"].get<bool>()) << p << s;
      EXPECT_EQ(s["value_ns"], p["value_ns"]) << p << s;
      EXPECT_LE(s["limit_bytes"], p["limit_bytes"]) << p << s;
    }
    EXPECT_TRUE(stands) << p;
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

// With unit times dualpipe (two copies of the model, F&B pairs) takes as long in 5000 bytes as a
// linear order, and zb-v as long in 4000 bytes as a linear one in 7000.
TEST(Frontier, CreditsAPointToNoScheduleOfAnotherPlacementNorOfPairs) {
  const json linear = FrontierOf(kUnit, {"--evaluations", "3000"});
  ExpectACurve(linear);
  ExpectFoundByTheirLike(linear);
  std::vector<std::string> named;
  for (const json& p : linear["points"]) named.push_back(p["found_by"]);
  EXPECT_THAT(named, Contains("zb-h1"));
  const json best =
      FrontierOf(kUnit, {"--evaluations", "3000", "--placement", "best", "--points", "6"});
  ExpectACurve(best);
  ExpectFoundByTheirLike(best);
}

// The curve is of what was asked for: what it and its bounds are not about is told apart.
TEST(Frontier, CoversSchedulesOfThePlacementsLookedAtWithoutPairs) {
  const auto covered = [](const json& all) {
    std::vector<std::string> names;
    for (const json& s : all["schedules"]) {
      if (s["covered"]) names.push_back(s["schedule"]);
    }
    return names;
  };
  const json v = FrontierOf(kUnit, {"--evaluations", "1000", "--placement", "v", "--points", "4"});
  EXPECT_THAT(covered(v), UnorderedElementsAre("zb-v", "zb-v-auto", "v-half", "v-min"));
  EXPECT_EQ(v["placements"], json({"v"}));
  const json best =
      FrontierOf(kUnit, {"--evaluations", "1000", "--placement", "best", "--points", "4"});
  EXPECT_THAT(covered(best),
              AllOf(SizeIs(12), Not(Contains("dualpipe")), Not(Contains("dualpipe-v"))));
  EXPECT_EQ(best["placements"], json({"linear", "v", "looped x2"}));
}

TEST(Frontier, SaysOfWhichPlacementTheBestAndTheBoundAre) {
  const Folder folder;
  const Outcome linear = RunSpiritlevel({"frontier", kUnit, "--evaluations", "1000", "--points",
                                         "4", "--html", folder.Path("f.html")});
  ASSERT_EQ(linear.status, 0) << linear.err;
  EXPECT_THAT(Flat(linear.out),
              AllOf(HasSubstr("With linear placement: at "),
                    HasSubstr("no order of linear placement can be below"),
                    HasSubstr("Negative: not of linear placement, or of F&B pairs"),
                    HasSubstr("Other placements may do better"), HasSubstr("--placement best")));
  const std::string page = Read(folder.Path("f.html"));
  EXPECT_THAT(page, AllOf(HasSubstr("no order of linear placement can be below"),
                          HasSubstr("proved optimal for linear placement"),
                          HasSubstr("class=\"schedule other\""), HasSubstr("class=\"schedule\"")));

  const Outcome best = RunSpiritlevel(
      {"frontier", kUnit, "--evaluations", "1000", "--points", "4", "--placement", "best"});
  EXPECT_THAT(Flat(best.out), AllOf(HasSubstr("With linear, v or looped x2 placement: at "),
                                    Not(HasSubstr("Other placements may do better"))));
}

// v-half takes 26.5 ms in 3000 bytes, where no linear order was found below 37 ms.
TEST(Frontier, NamesAFasterScheduleOfAnotherPlacementThatFits) {
  const json all =
      FrontierOf(kUnit, {"--evaluations", "2000", "--points", "6", "--memory-limit", "3000"});
  EXPECT_THAT(all["answer"].get<std::string>(),
              HasSubstr("Other placements may do better: v-half (v) takes 26.5 ms in 3000 B"));
}

// The example's limit of 8000 bytes is one that was looked at; so was what lies between the steps.
TEST(Frontier, RowsAreFewerThanLimitsWhereTimesDoNotFall) {
  const json all = FrontierOf(kExample, {"--evaluations", "4000", "--points", "16"});
  ExpectACurve(all);
  EXPECT_LT(all["points"].size(), all["bounds"].size());
}

TEST(Frontier, SaysThatALimitHoldsNoOrderAndWhichRankNeedsMore) {
  const json low =
      FrontierOf(kUnit, {"--evaluations", "500", "--points", "4", "--memory-limit", "900"});
  EXPECT_EQ(low["memory_limit_refusal"],
            "--memory-limit: no order fits into 900 bytes: rank 0 needs at least 1000");
  EXPECT_THAT(low["answer"].get<std::string>(),
              AllOf(HasSubstr("no order fits into 900 bytes"),
                    HasSubstr("at 1000 B, the least that any order fits into")));

  const json one_rank = FrontierOf(
      kUnit, {"--evaluations", "500", "--points", "4", "--memory-limit", "8000,8000,10,8000"});
  EXPECT_THAT(one_rank["answer"].get<std::string>(),
              HasSubstr("--memory-limit: no order fits: rank 2 has 10 bytes and needs at least"));

  const Folder folder;
  const std::string scenario =
      folder.Write("low.textproto", Read(kUnit) + "memory_limit_bytes: 700\n");
  const json of_file = FrontierOf(scenario, {"--evaluations", "500", "--points", "4"});
  EXPECT_THAT(of_file["answer"].get<std::string>(),
              HasSubstr("memory_limit_bytes: no order fits into 700 bytes"));

  const json enough =
      FrontierOf(kUnit, {"--evaluations", "500", "--points", "4", "--memory-limit", "1000"});
  EXPECT_TRUE(enough["memory_limit_refusal"].is_null());
}

// A full disk: what was written before it was full is named.
TEST(Frontier, SaysWhatWasWrittenBeforeAnOutputFailed) {
  const Folder folder;
  const Outcome outcome =
      RunSpiritlevel({"frontier", kUnit, "--evaluations", "500", "--points", "3", "--json",
                      folder.Path("f.json"), "--html", "/dev/full"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("/dev/full"), HasSubstr("written before: "), HasSubstr("f.json")));
  EXPECT_FALSE(Read(folder.Path("f.json")).empty());
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
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("at 4000 B, the best is "), HasSubstr("4000 B more buy"),
                                 HasSubstr("zb-h1")));
}

TEST(Frontier, TakesSizesWithTheirUnits) {
  const json all = FrontierOf(
      kUnit, {"--evaluations", "500", "--points", "4", "--memory-limit", "4 kB", "--more", "1KiB"});
  EXPECT_EQ(all["memory_limit_bytes"], 4000);
  EXPECT_EQ(all["more_bytes"], 1024);
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
      {"--more", "8G"},
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
