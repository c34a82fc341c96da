// A step that is sometimes rejected: what is said, shown and judged is a run in which one is.
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

constexpr const char* kScenario = "scenarios/unit-times.textproto";

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Rejection : public testing::Test {
 protected:
  Outcome Simulate(std::vector<std::string> more, const std::string& q = "0.25") const {
    std::vector<std::string> arguments = {"simulate",    kScenario, "--schedule",
                                          "zb-h2",       "--tail",  "post-validation-speculative",
                                          "--rejection", q};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  }

  const Folder folder_;
};

TEST_F(Rejection, PeriodsAndExpectedStepStandApart) {
  Simulate({"--json", folder_.Path("r.json")});
  const json all = json::parse(Contents(folder_.Path("r.json")));
  EXPECT_EQ(all["rejection"], 0.25);
  EXPECT_EQ(all["receives"], "early");
  EXPECT_EQ(all["channels"], "pair");
  EXPECT_EQ(all["weight_grads"], "by-micro-batch");
  const json& r = all["results"][0];
  EXPECT_TRUE(r["valid"].get<bool>()) << r["reason"];
  const auto accepted = r["period_ns"].get<int64_t>();
  const auto rejected = r["rejection"]["period_rejected_ns"].get<int64_t>();
  EXPECT_GT(rejected, accepted);
  EXPECT_NEAR(r["step_ns"].get<double>(),
              0.75 * static_cast<double>(accepted) + 0.25 * static_cast<double>(rejected), 1);
  EXPECT_EQ(r["step_ns"], r["rejection"]["expected_step_ns"]);
  Simulate({"--json", folder_.Path("0.json")}, "0");
  const json none = json::parse(Contents(folder_.Path("0.json")));
  EXPECT_TRUE(none["results"][0]["rejection"].is_null());
  EXPECT_EQ(none["results"][0]["makespan_ns"], r["makespan_ns"]);
}

TEST_F(Rejection, IsSaidInWordsAndUnderTheChart) {
  const std::string out = Simulate({"--chart"}).out;
  EXPECT_THAT(out, AllOf(HasSubstr("rejection 0.25"), HasSubstr("expected step at q = 0.25"),
                         HasSubstr("period, none rejected"), HasSubstr("period, one rejected"),
                         HasSubstr("is rejected in iteration")));
  EXPECT_THAT(Simulate({"--chart"}, "0").out,
              AllOf(Not(HasSubstr("rejected")), Not(HasSubstr("expected step"))));
}

TEST_F(Rejection, TraceAndPageShowDroppedOpsAndTheRollback) {
  Simulate({"--trace", folder_.Path("t.pftrace"), "--html", folder_.Path("r.html")});
  EXPECT_THAT(Contents(folder_.Path("t.pftrace")),
              AllOf(HasSubstr("dropped F"), HasSubstr("rollback")));
  const std::string page = Contents(folder_.Path("r.html"));
  EXPECT_THAT(page, AllOf(HasSubstr("expected step at q = 0.25"), HasSubstr("rejection 0.25")));
  // Of the program only its name, and the arguments as they were typed.
  EXPECT_THAT(page, AllOf(HasSubstr("<dt>command</dt><dd>spiritlevel simulate "
                                    "scenarios/unit-times.textproto --schedule zb-h2 --tail "),
                          Not(HasSubstr(SPIRITLEVEL_BINARY))));
  Simulate({"--trace", folder_.Path("0.pftrace"), "--html", folder_.Path("0.html")}, "0");
  EXPECT_THAT(Contents(folder_.Path("0.pftrace")), Not(HasSubstr("dropped F")));
  // The page holds more ops: those dropped, and the iterations that it takes.
  EXPECT_GT(page.size(), Contents(folder_.Path("0.html")).size() + 100);
}

}  // namespace
}  // namespace spiritlevel
