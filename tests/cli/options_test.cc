// Options that are not there, and advice that does not hang on which command gives it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
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

json JsonOf(std::vector<std::string> arguments) {
  const Folder folder;
  arguments.insert(arguments.end(), {"--json", folder.Path("r.json")});
  const Outcome outcome = RunSpiritlevel(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::ifstream file(folder.Path("r.json"));
  return json::parse(file);
}

// Under every limit from where nothing fits to where all does.
TEST(Simulate, GivesTheAdviceThatACompareWith1F1BGives) {
  const Folder folder;
  for (const int64_t limit : {5'000, 9'000, 12'000, 14'000, 20'000, 1'000'000}) {
    const std::string scenario = folder.Write(
        "s.textproto", "ranks: 4 micro_batches: 8 memory_limit_bytes: " + std::to_string(limit) +
                           " costs { uniform { forward_us: 10 input_grad_us: 10 weight_grad_us: 10"
                           " activation_bytes: 2000 weight_state_bytes: 1500 static_bytes: 1000 "
                           "} }");
    for (const std::string schedule : {"zb-h1", "zb-h2", "zb-v", "v-min", "gpipe"}) {
      const json one = JsonOf({"simulate", scenario, "--schedule", schedule});
      const json two = JsonOf({"compare", scenario, "--schedule", schedule, "--schedule", "1f1b"});
      EXPECT_EQ(one["advice"], two["advice"]) << schedule << " within " << limit;
      EXPECT_THAT(one["advice"].get<std::string>(), Not(testing::ContainsRegex("-[0-9.]+ [KMGB]")));
      EXPECT_EQ(one["results"][0], two["results"][0]);
    }
  }
}

TEST(Options, OfAnotherCommandAreSentThere) {
  const Outcome outcome = RunSpiritlevel({"compare", kExample, "--trace", "x.pftrace"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("compare: --trace belongs to simulate"),
                                 HasSubstr("spiritlevel compare --help")));
  EXPECT_THAT(RunSpiritlevel({"simulate", kExample, "--summary"}).err,
              HasSubstr("simulate: --summary belongs to compare"));
  EXPECT_THAT(RunSpiritlevel({"schedules", "--json=x"}).err,
              HasSubstr("--json belongs to compare, simulate"));
}

TEST(Options, MisspeltOnesAreNamedWithTheNearest) {
  const Outcome outcome = RunSpiritlevel({"compare", kExample, "--pasting", "ideal"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("compare: there is no --pasting"),
                                 HasSubstr("did you mean --posting?")));
  EXPECT_THAT(RunSpiritlevel({"schedules", "more"}).err,
              HasSubstr("schedules: \"more\" is one word too many"));
}

}  // namespace
}  // namespace spiritlevel
