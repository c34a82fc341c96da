// What search writes, to files and to standard output, and what ctrl-C leaves of it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/run_binary.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kScenario =
    "ranks: 4 micro_batches: 8 memory_limit_bytes: 3000 costs { uniform { forward_us: 100 "
    "input_grad_us: 110 weight_grad_us: 70 transfer_us: 2 activation_bytes: 1000 "
    "weight_state_bytes: 400 } }";

// The first micro-batch takes four times as long as the others: it is best run later.
constexpr const char* kUnequal =
    "ranks: 3 micro_batches: 5 memory_limit_bytes: 3000 costs { table { "
    "row { forward_us: 100 input_grad_us: 110 weight_grad_us: 70 activation_bytes: 1000 "
    "micro_batch { index: 0 forward_us: 400 input_grad_us: 440 weight_grad_us: 280 } } "
    "row { forward_us: 100 input_grad_us: 110 weight_grad_us: 70 activation_bytes: 1000 "
    "micro_batch { index: 0 forward_us: 400 input_grad_us: 440 weight_grad_us: 280 } } "
    "row { forward_us: 100 input_grad_us: 110 weight_grad_us: 70 activation_bytes: 1000 "
    "micro_batch { index: 0 forward_us: 400 input_grad_us: 440 weight_grad_us: 280 } } } }";

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SearchFiles : public testing::Test {
 protected:
  Outcome Search(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"search", scenario_, "--evaluations", "3000"});
    return RunSpiritlevel(arguments);
  }

  // A search that would go on for years, interrupted `delay` after it was started.
  Outcome SearchInterruptedAfter(std::chrono::milliseconds delay,
                                 std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {SPIRITLEVEL_BINARY, "search", scenario_, "--evaluations", "1000000000000"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string out = folder_.Path("out");
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    std::this_thread::sleep_for(delay);
    ::kill(child, SIGINT);
    int status = 0;
    ::waitpid(child, &status, 0);
    return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .out = Contents(out),
            .err = {}};
  }

  // Pressed too early, before the program listens, ctrl-C just ends it.
  Outcome SearchInterrupted(const std::vector<std::string>& arguments) {
    for (int ms = 300; ms < 30'000; ms *= 2) {
      Outcome outcome = SearchInterruptedAfter(std::chrono::milliseconds(ms), arguments);
      if (outcome.status != 128 + SIGINT) return outcome;
    }
    return {};
  }

  Folder folder_;
  std::string scenario_ = folder_.Write("s.textproto", kScenario);
};

TEST_F(SearchFiles, MicroBatchesThatRunInAnotherOrderAreRenamedAndTheMapIsTold) {
  scenario_ = folder_.Write("unequal.textproto", kUnequal);
  const std::string csv = folder_.Path("found.csv");
  const std::string comms = folder_.Path("comms.csv");
  const std::string results = folder_.Path("found.json");
  const Outcome outcome = Search({"--export", csv, "--export-comms", comms, "--json", results});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json found = json::parse(Contents(results));
  auto order = found["micro_batch_order"].get<std::vector<int>>();
  ASSERT_FALSE(std::is_sorted(order.begin(), order.end())) << "the case has lost its point";
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("micro-batches: "), HasSubstr("arrange the batch")));
  EXPECT_EQ(RunSpiritlevel({"check", csv}).status, 0);
  EXPECT_THAT(Contents(comms), HasSubstr("2RECV_F0,2F0"));
  std::sort(order.begin(), order.end());
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(SearchFiles, WhereMicroBatchesAreAlikeTheyKeepTheirNames) {
  const Outcome outcome = Search({"--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(json::parse(outcome.out)["micro_batch_order"].is_null());
}

TEST_F(SearchFiles, TheResultsAreWrittenEvenWhereTheCsvCannotBe) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const std::string results = folder_.Path("found.json");
  const Outcome outcome = Search({"--export", "/dev/full", "--json", results});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/dev/full"));
  EXPECT_THAT(outcome.out, HasSubstr("search: span"));
  EXPECT_EQ(json::parse(Contents(results))["results"][0]["schedule"], "search");
}

TEST_F(SearchFiles, SaysHowPyTorchIsToRunThem) {
  const Outcome outcome = Search({"--export", folder_.Path("found.csv")});
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("rank 3: stage 3\n"), HasSubstr("placement style: loop"),
                                 HasSubstr("_load_csv(FILE)"), HasSubstr("torchtitan: ")));
  EXPECT_THAT(Search({"--export-comms", folder_.Path("comms.csv")}).out,
              HasSubstr("_load_csv(FILE, format=\"compute_comms\")"));
  EXPECT_THAT(Search({}).out, Not(HasSubstr("PyTorch")));
}

TEST_F(SearchFiles, CommunicationCellsAreChosenByFlags) {
  const auto rows = [&](const char* command, const std::vector<std::string>& flags) {
    const std::string file = folder_.Path("comms.csv");
    std::vector<std::string> arguments = {command, scenario_};
    if (std::string(command) == "search") {
      arguments.insert(arguments.end(), {"--evaluations", "300", "--export-comms", file});
    } else {
      arguments.insert(arguments.end(), {"--schedule", "1f1b", "-o", file});
      arguments.insert(arguments.end(), {"--format", "torch-comms-csv"});
    }
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Contents(file);
  };
  for (const char* command : {"search", "export"}) {
    EXPECT_THAT(rows(command, {}), AllOf(HasSubstr("REDUCE_GRAD"), Not(HasSubstr("UNSHARD"))));
    EXPECT_THAT(rows(command, {"--no-reduce-grad"}), Not(HasSubstr("REDUCE_GRAD")));
    EXPECT_THAT(rows(command, {"--shards"}), AllOf(HasSubstr("0UNSHARD"), HasSubstr("0RESHARD")));
  }
  const Outcome idle = Search({"--shards"});
  EXPECT_EQ(idle.status, 2);
  EXPECT_THAT(idle.err, HasSubstr("--shards: is of files with sends and receives only"));
}

TEST_F(SearchFiles, StandardOutputHoldsNothingBesideAFileThatGoesThere) {
  EXPECT_THAT(Search({"--export", "-"}).out, AllOf(StartsWith("0F0,"), Not(HasSubstr("search"))));
  EXPECT_THAT(Search({"--export-comms", "-"}).out,
              AllOf(StartsWith("0F0,0SEND_F0"), Not(HasSubstr("search"))));
  const Outcome page = RunSpiritlevel({"compare", scenario_, "--html", "-"});
  EXPECT_THAT(page.out, AllOf(StartsWith("<!"), Not(HasSubstr("\nadvice: "))));
  const Outcome trace =
      RunSpiritlevel({"simulate", scenario_, "--schedule", "1f1b", "--trace", "-"});
  EXPECT_EQ(trace.status, 0) << trace.err;
  EXPECT_THAT(trace.out, Not(HasSubstr("bubble rate")));
}

TEST_F(SearchFiles, AnInterruptIsToldAndWhatWasNotSearchedIsNamed) {
  const std::string results = folder_.Path("found.json");
  const std::string csv = folder_.Path("found.csv");
  const Outcome outcome =
      SearchInterrupted({"--placement", "best", "--json", results, "--export", csv});
  ASSERT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("interrupted: this is the best so far"), HasSubstr("v: not searched"),
                    HasSubstr("looped, 2 stages a rank: not searched")));
  const json found = json::parse(Contents(results));
  EXPECT_TRUE(found["interrupted"]);
  ASSERT_EQ(found["placements"].size(), 3u);
  EXPECT_FALSE(found["placements"][0]["value_ns"].is_null());
  EXPECT_TRUE(found["placements"][1]["value_ns"].is_null());
  EXPECT_EQ(RunSpiritlevel({"check", csv}).status, 0);
}

TEST_F(SearchFiles, ASearchThatCameToItsEndWasNotInterrupted) {
  const Outcome outcome = Search({"--json", "-", "--placement", "best"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json found = json::parse(outcome.out);
  EXPECT_FALSE(found["interrupted"]);
  for (const json& one : found["placements"]) EXPECT_FALSE(one["value_ns"].is_null());
  EXPECT_THAT(found["left_out"], testing::IsEmpty());
}

TEST_F(SearchFiles, OfVeryManyOpsNamedSchedulesAreLeftOutOfTheTableByName) {
  scenario_ = folder_.Write("long.textproto",
                            "ranks: 4 micro_batches: 20000 memory_limit_bytes: 3000 costs { "
                            "uniform { forward_us: 100 input_grad_us: 110 weight_grad_us: 70 "
                            "activation_bytes: 1000 weight_state_bytes: 400 } }");
  const Outcome outcome = RunSpiritlevel({"search", scenario_, "--seconds", "0.2", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json found = json::parse(outcome.out);
  EXPECT_THAT(found["left_out"].get<std::vector<std::string>>(), Contains("zb-v-auto"));
  EXPECT_EQ(found["results"][0]["schedule"], "search");
  for (const json& r : found["results"]) EXPECT_NE(r["schedule"], "zb-v-auto");
}

}  // namespace
}  // namespace spiritlevel
