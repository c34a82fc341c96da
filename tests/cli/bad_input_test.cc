// Bad input of every kind ends in a message with a place and a way out, exit status 2, quickly,
// and nothing half-written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <ostream>

#include "tests/cli/run_binary.h"
#include "tests/sanitized.h"

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string Uniform(const std::string& shape, const std::string& more = "") {
  return shape + " costs { uniform { forward_us: 1 input_grad_us: 1 weight_grad_us: 1 " + more +
         " } }\n";
}

constexpr std::chrono::seconds kPatience{kSanitized ? 10 : 1};

const std::string kShape = "ranks: 4 micro_batches: 8";

struct BadFile {
  const char* what;
  const char* name;
  std::string contents;
  const char* says;
};

void PrintTo(const BadFile& bad, std::ostream* out) { *out << bad.what; }

class BadFiles : public testing::TestWithParam<BadFile> {};

TEST_P(BadFiles, AreRefusedWithAPlaceWithinASecondAndLeaveNothingBehind) {
  const BadFile& bad = GetParam();
  const Folder folder;
  const std::string file = folder.Write(bad.name, bad.contents);
  for (const char* command : {"compare", "simulate"}) {
    std::vector<std::string> arguments = {command, file, "--json", folder.Path("out.json")};
    if (command == std::string("simulate"))
      arguments.insert(arguments.end(), {"--schedule", "1f1b"});
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = RunSpiritlevel(arguments);
    const auto spent = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(file), HasSubstr(bad.says)));
    EXPECT_THAT(outcome.err, Not(HasSubstr("internal error")));
    // Sanitizers and a busy machine may make it slower than the second that it is for users.
    EXPECT_LT(spent, kPatience);
    EXPECT_THAT(folder.Names(), ElementsAre(bad.name));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BadFiles,
    testing::Values(
        BadFile{"syntax", "a.textproto", "ranks: 4\nmicro_batches 8\n", ":2:"},
        BadFile{"json_syntax", "a.json", "{\"ranks\": 4,\n \"micro_batches\": }", "2"},
        BadFile{"unknown_field", "a.textproto", "ranks: 4\nmicrobatches: 8\n", "micro_batches"},
        BadFile{"missing_field", "a.textproto", Uniform("ranks: 4"), "micro_batches"},
        BadFile{"missing_costs", "a.textproto", kShape, "costs"},
        BadFile{"zero", "a.textproto", Uniform("ranks: 0 micro_batches: 8"), "ranks"},
        BadFile{"negative", "a.textproto", Uniform(kShape, "transfer_us: -1"), "transfer_us"},
        BadFile{"absurd_time", "a.textproto", Uniform(kShape, "launch_us: 1e15"), "launch_us"},
        BadFile{"absurd_bytes", "a.textproto",
                Uniform(kShape, "activation_bytes: 9000000000000000000"), "activation_bytes"},
        BadFile{"nan", "a.textproto", Uniform(kShape, "transfer_us: nan"), "transfer_us"},
        BadFile{"infinite", "a.textproto", Uniform(kShape, "transfer_us: inf"), "transfer_us"},
        BadFile{"overlap", "a.textproto", Uniform(kShape, "overlapped_us: 1.5"), "overlapped_us"},
        BadFile{"binary", "a.textproto", std::string("\0\1\2\377ranks", 9), ""},
        BadFile{"empty", "a.textproto", "", "empty"},
        BadFile{"product", "a.textproto", Uniform("ranks: 30000 micro_batches: 8000000"), "30000"},
        BadFile{"overflow", "a.textproto", Uniform("ranks: 99999999999 micro_batches: 8"), ":1:"},
        BadFile{"ending", "a.yaml", Uniform(kShape), "textproto"},
        BadFile{"deep_json", "a.json", std::string(100000, '['), ""}),
    [](const auto& test) { return test.param.what; });

TEST(BadInput, ADirectoryAMissingFileAndAPipe) {
  const Folder folder;
  for (const std::string& path : {folder.Path(""), folder.Path("none.textproto")}) {
    const Outcome outcome = RunSpiritlevel({"compare", path});
    EXPECT_EQ(outcome.status, 2) << path;
    EXPECT_THAT(outcome.err, HasSubstr(path));
  }
  const std::string pipe = folder.Path("pipe.textproto");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(RunSpiritlevel({"compare", pipe}).status, 2);
}

TEST(BadInput, OddRanksForDualPipe) {
  const Folder folder;
  const std::string file = folder.Write("seven.textproto", Uniform("ranks: 7 micro_batches: 28"));
  const Outcome outcome = RunSpiritlevel({"simulate", file, "--schedule", "dualpipe"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("even number of ranks"), HasSubstr("use 6 or 8 ranks"),
                                 HasSubstr("dualpipe-v")));
}

TEST(BadInput, FlagsThatAreNone) {
  const char* example = "scenarios/example.textproto";
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"compare", example, "--schedule", "zbv"}, "there are zb-v"},
      {{"compare", example, "--posting", "psychic"}, "there is ideal, nccl-fifo, batched"},
      {{"compare", example, "--tail", "long"}, "there is none, barrier, post-validation-strict"},
      {{"compare", example, "--receives", "naive"}, "add --posting nccl-fifo"},
      {{"compare", example, "--channels", "directed"}, "add --posting nccl-fifo"},
      {{"compare", example, "--rejection", "0.1"}, "post-validation-speculative"},
      {{"compare", example, "--weight-grads", "sooner"}, "there is by-micro-batch, by-bucket"},
      {{"compare", example, "--weight-grads", "by-bucket"}, "data_parallel"},
      {{"compare", example, "--tail", "post-validation-speculative", "--rejection", "2"}, "0 to 1"},
      {{"compare", example, "--iterations", "0"}, "--iterations"},
      {{"compare", example, "--iterations", "99999999999999999999"}, "--iterations"},
      {{"compare", example, "--iterations", "two"}, "--iterations"},
      {{"compare", example, "--group", "-3"}, "--group"},
      {{"compare", example, "--stages-per-rank", "1000000"}, "--stages-per-rank"},
      {{"compare", example, "--no-such-flag"}, "--no-such-flag"},
      {{"compare"}, "SCENARIO"},
      {{"comparr", example}, "there is no command"},
      {{}, "subcommand"},
      {{"export", example, "--schedule", "1f1b", "--format", "svg", "-o", "x"}, "torch-csv"},
      {{"export", example, "--schedule", "1f1b"}, "--output"},
      {{"check", "scenarios"}, "scenarios"},
      {{"simulate", example, "--schedule-file", "none.csv"}, "none.csv"},
  };
  for (const auto& [arguments, says] : cases) {
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(arguments);
    EXPECT_THAT(outcome.err, HasSubstr(says)) << testing::PrintToString(arguments);
  }
}

TEST(BadInput, AnOutputThatCannotBeWritten) {
  const Folder folder;
  const char* example = "scenarios/example.textproto";
  const std::string nowhere = folder.Path("none/out.json");
  const Outcome missing = RunSpiritlevel({"compare", example, "--json", nowhere});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr(nowhere));
  const Outcome directory = RunSpiritlevel({"compare", example, "--json", folder.Path("")});
  EXPECT_EQ(directory.status, 2);
  EXPECT_EQ(RunSpiritlevel({"compare", example, "--json", "/dev/full"}).status, 2);
  EXPECT_THAT(folder.Names(), ElementsAre());
}

TEST(BadInput, AnOutputThatIsTheInput) {
  const Folder folder;
  const std::string file = folder.Write("s.textproto", Uniform(kShape));
  const std::string link = folder.Path("link.textproto");
  std::filesystem::create_symlink(file, link);
  for (const std::string& output : {file, link}) {
    const Outcome outcome = RunSpiritlevel({"export", file, "--schedule", "1f1b", "-o", output});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("would be written over"));
    EXPECT_EQ(RunSpiritlevel({"compare", file, "--json", output}).status, 2);
    EXPECT_EQ(RunSpiritlevel({"check", file}).status, 0) << "the scenario is as it was";
  }
}

TEST(BadInput, TimesThatSumToMoreThanAnIntegerHolds) {
  const Folder folder;
  const std::string day =
      "costs { uniform { forward_us: 86400000000 input_grad_us: 86400000000 "
      "weight_grad_us: 86400000000 } }\n";
  const std::string long_run = folder.Write("a.textproto", "ranks: 1 micro_batches: 8800 " + day);
  const Outcome many =
      RunSpiritlevel({"simulate", long_run, "--schedule", "1f1b", "--iterations", "100"});
  EXPECT_EQ(many.status, 2) << many.out;
  // Two would fit, but the period takes four, so that fewer are no way out.
  EXPECT_THAT(many.err, AllOf(HasSubstr("100 iterations"), HasSubstr("fewer micro_batches"),
                              Not(HasSubstr("use at most"))));
  const std::string shorter = folder.Write("c.textproto", "ranks: 1 micro_batches: 880 " + day);
  const auto run = [&](const char* iterations) {
    return RunSpiritlevel({"simulate", shorter, "--schedule", "1f1b", "--iterations", iterations});
  };
  EXPECT_THAT(run("1000").err, HasSubstr("use at most 20 iterations"));
  EXPECT_EQ(run("20").status, 0);

  // Launch delays count for each op, so more stages a rank take more time.
  const std::string launch =
      folder.Write("b.textproto", Uniform("ranks: 2 micro_batches: 64 launch_us: 86400000000"));
  const Outcome stages =
      RunSpiritlevel({"simulate", launch, "--schedule", "interleaved", "--stages-per-rank", "512"});
  EXPECT_EQ(stages.status, 2) << stages.out;
  EXPECT_THAT(stages.err, HasSubstr("too long to be counted"));
}

TEST(BadInput, WhatDoesNotFitInMemoryIsRefusedBeforeItTakesAny) {
  const Folder folder;
  const std::string file = folder.Write("a.textproto", Uniform(kShape));
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = RunSpiritlevel(
      {"simulate", file, "--schedule", "zb-v", "--stages-per-rank", "1", "--iterations", "10000"});
  EXPECT_EQ(outcome.status, 0) << "small enough: " << outcome.err;
  const std::string large = folder.Write("b.textproto", Uniform("ranks: 8 micro_batches: 1000000"));
  const Outcome refused =
      RunSpiritlevel({"simulate", large, "--schedule", "zb-v", "--iterations", "10000"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("of memory"), HasSubstr("use at most")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30 * kPatience);
}

TEST(BadInput, NothingThatCommandsATerminalIsEchoed) {
  const std::string escape = "\033[31m";
  const Folder folder;
  const std::string named = folder.Write(escape + "\n.textproto", Uniform(kShape));
  std::string text = RunSpiritlevel({"compare", named}).out;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"compare", folder.Path(escape + ".json")},
        {"compare", named, "--schedule", escape},
        {"compare", named, "--tail", escape + "\377"},
        {"compare", named, "--iterations", escape},
        {escape}}) {
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 2);
    text += outcome.err;
  }
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\033")), Not(HasSubstr("\377"))));
}

TEST(BadInput, FlagsWithNothingInThemAreNotIgnored) {
  const char* example = "scenarios/example.textproto";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"compare", example, "--json", ""},
        {"compare", example, "--group", "0"},
        {"compare", example, "--stages-per-rank", "0"}}) {
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(arguments);
    EXPECT_NE(outcome.err, "");
  }
}

TEST(BadInput, AScheduleFileForAnotherShape) {
  const Folder folder;
  const std::string csv = folder.Write("s.csv", "0F0,0B0\n1F0,1B0\n");
  const Outcome outcome =
      RunSpiritlevel({"simulate", "scenarios/example.textproto", "--schedule-file", csv});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("2 ranks and 1 micro-batches"));
}

TEST(BadInput, HostileScheduleFiles) {
  const Folder folder;
  for (const std::string& text :
       {std::string(), std::string("\0\0\0", 3), std::string("0F0,0Q0\n"),
        std::string("65535F2147483647,0F0\n"), std::string("0F99999999999\n"),
        std::string("\n\n\n"), std::string(100000, ','), std::string("(0F0;0B0\n")}) {
    const std::string csv = folder.Write("bad.csv", text);
    const Outcome outcome = RunSpiritlevel({"check", csv});
    EXPECT_EQ(outcome.status, 2) << text.substr(0, 40) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(csv));
  }
}

TEST(BadInput, TwoOutputsOfOneFileAreRefusedBeforeAnythingIsPlayed) {
  const Folder folder;
  const std::string file = folder.Write("s.textproto", Uniform(kShape));
  const std::string out = folder.Path("out");
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"compare", file, "--json", out, "--html", folder.Path("./out")},
           {"simulate", file, "--schedule", "1f1b", "--trace", out, "--html", out},
           {"compare", file, "--json", "-", "--html", "/dev/stdout"}}) {
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("goes too"));
  }
  EXPECT_THAT(folder.Names(), ElementsAre("s.textproto"));
}

TEST(BadInput, CalibrateRefusesAnOutputThatItCouldNotWriteBeforeItMeasures) {
  const Folder folder;
  const std::string directory = folder.Path("d.textproto");
  std::filesystem::create_directory(directory);
  const std::string dangling = folder.Path("l.textproto");
  std::filesystem::create_symlink("nowhere/p.textproto", dangling);
  for (const std::string& output :
       {directory, dangling, folder.Path(std::string(300, 'n') + ".textproto")}) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = RunSpiritlevel({"calibrate", "--quick", "-o", output});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("--output: "));
  }
}

// A thousand parts for each W of 32 x 16, ten thousand times over.
TEST(BadInput, PartsOfOpsCountAmongWhatMustFit) {
  const Folder folder;
  const std::string file = folder.Write(
      "s.textproto", Uniform("ranks: 16 micro_batches: 32", "reduction_us: 3000 buckets: 1000"));
  const Outcome outcome = RunSpiritlevel({"simulate", file, "--schedule", "1f1b", "--weight-grads",
                                          "by-bucket", "--iterations", "10000"});
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("parts of ops"), HasSubstr("by-micro-batch")));
}

}  // namespace
}  // namespace spiritlevel
