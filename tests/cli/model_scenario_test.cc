// A scenario with a model, played as the quickstart plays it, on a profile that nobody measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/file.h"
#include "calibrate/profile_file.h"
#include "tests/cli/made_up_profile.h"
#include "tests/cli/run_binary.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kScenario = "scenarios/tinyllama-p4-m16.textproto";
constexpr const char* kTyped = "scenarios/example.textproto";

class ModelScenario : public testing::Test {
 protected:
  ModelScenario()
      : profile_(folder_.Write("machine.textproto",
                               ProfileText(MadeUpCalibration(), ProfileFormat::kText))) {}

  std::vector<std::string> Compare(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"compare", kScenario, "--profile", profile_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  json CompareToJson(std::vector<std::string> more = {}) const {
    const std::string path = folder_.Path("r.json");
    more.insert(more.end(), {"--json", path});
    const Outcome outcome = RunSpiritlevel(Compare(more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::ifstream file(path);
    return json::parse(file);
  }

  const Folder folder_;
  const std::string profile_;
};

json ResultOf(const json& comparison, const std::string& schedule) {
  for (const json& result : comparison["results"]) {
    if (result["schedule"] == schedule) return result;
  }
  ADD_FAILURE() << "no result for " << schedule;
  return {};
}

TEST_F(ModelScenario, EveryScheduleIsPlayedAndSomeDoNotFit) {
  const json all = CompareToJson();
  int fit = 0;
  int too_large = 0;
  for (const json& r : all["results"]) {
    EXPECT_TRUE(r["valid"].get<bool>()) << r["schedule"] << r["reason"];
    (r["fits"].get<bool>() ? fit : too_large) += 1;
    int64_t sum = 0;
    for (const json& busy : r["busy_ns"]) sum += busy.get<int64_t>();
    for (const json& stall : r["stalls_ns"]) sum += stall.get<int64_t>();
    EXPECT_EQ(sum, 4 * r["makespan_ns"].get<int64_t>()) << r["schedule"];
  }
  EXPECT_GE(fit, 3);
  EXPECT_GE(too_large, 2);
  EXPECT_GT(ResultOf(all, "zb-h1")["speedup_over_1f1b"].get<double>(), 1.02);
}

// Parameters, gradients and optimizer of all ranks; DualPipe's hold everything twice.
TEST_F(ModelScenario, TheStaticMemoryIsThatOfEveryParameter) {
  const json all = CompareToJson();
  const auto fixed = [&](const char* schedule) {
    const json r = ResultOf(all, schedule);
    int64_t sum = 0;
    for (size_t rank = 0; rank < 4; ++rank) {
      sum += r["peak_bytes"][rank].get<int64_t>() - r["peak_activation_bytes"][rank].get<int64_t>();
    }
    return sum;
  };
  const int64_t once = 16 * int64_t{1'100'048'384};
  // Peaks of activations may lie elsewhere than those of all, by what is held inside a pass.
  EXPECT_GE(fixed("1f1b"), once);
  EXPECT_LT(fixed("1f1b"), once * 21 / 20);
  EXPECT_GE(fixed("dualpipe"), 2 * once);
}

TEST_F(ModelScenario, TheJsonSaysWhereTheNumbersComeFrom) {
  const json from = CompareToJson()["provenance"];
  EXPECT_EQ(from["costs"], "model");
  EXPECT_EQ(from["scenario_file"], kScenario);
  const json& model = from["model"];
  EXPECT_EQ(model["config_file"], "scenarios/tinyllama-1.1b.json");
  EXPECT_EQ(model["class"], "LlamaForCausalLM");
  EXPECT_EQ(model["layers"], 22);
  EXPECT_EQ(model["parameters"], 1'100'048'384);
  EXPECT_EQ(model["split"], "balanced");
  ASSERT_EQ(model["splits"].size(), 2u);  // 4 stages, and 8
  for (const json& split : model["splits"]) {
    const auto layers = split["layers_per_stage"].get<std::vector<int64_t>>();
    EXPECT_EQ(layers.size(), split["stages"].get<size_t>());
    EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), int64_t{0}), 22);
  }
  EXPECT_EQ(model["recompute"], json({"none"}));
  EXPECT_THAT(model["assumptions"].dump(),
              AllOf(HasSubstr("head_dim"), HasSubstr("a parameter takes 16 bytes: 4 itself")));
  EXPECT_GE(model["not_modelled"].size(), 4u);
  const json& profile = from["profile"];
  EXPECT_EQ(profile["file"], profile_);
  EXPECT_EQ(profile["date"], "2001-02-03");
  EXPECT_EQ(profile["cpu"], "Abacus 3000");
  EXPECT_EQ(profile["dtype"], "float32");
  EXPECT_EQ(profile["library"], "beads 1.0");
  EXPECT_NEAR(profile["held_out_p90"].get<double>(), 0.05, 1e-12);
  EXPECT_EQ(profile["noisy"], false);
}

TEST_F(ModelScenario, ThePageSaysItToo) {
  const std::string page = folder_.Path("r.html");
  ASSERT_EQ(RunSpiritlevel(Compare({"--html", page})).status, 0);
  std::ifstream file(page);
  const std::string html((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(html, AllOf(HasSubstr("LlamaForCausalLM, 22 layers, 1 100 048 384 parameters"),
                          HasSubstr("Abacus 3000"), HasSubstr("<dt>not modelled</dt>"),
                          HasSubstr("balanced split"), Not(HasSubstr("typed into"))));
}

TEST_F(ModelScenario, TheSummaryHasFiveLines) {
  const Outcome outcome = RunSpiritlevel(Compare({"--summary"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 5);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("use "), HasSubstr("as fast as 1f1b"),
                                 HasSubstr("limit of 8 GiB"), HasSubstr("5.0 %")));
  const json all = CompareToJson();
  EXPECT_THAT(all["advice"].get<std::string>(),
              HasSubstr(outcome.out.substr(10, outcome.out.find(':') - 10)));
  EXPECT_THAT(RunSpiritlevel({"compare", kTyped, "--summary"}).out,
              HasSubstr("typed in; nothing was measured here"));
}

TEST_F(ModelScenario, IsSimulatedCheckedAndExported) {
  const Outcome one =
      RunSpiritlevel({"simulate", kScenario, "--profile", profile_, "--schedule", "zb-v"});
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("zb-v"));
  const Outcome all = RunSpiritlevel({"check", kScenario, "--profile", profile_});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.out, AllOf(HasSubstr("does not fit"), Not(HasSubstr("NOT LEGAL"))));
  // An order needs no times.
  const Outcome csv =
      RunSpiritlevel({"export", kScenario, "--schedule", "zb-v", "-o", folder_.Path("zb-v.csv")});
  EXPECT_EQ(csv.status, 0) << csv.err;
}

TEST_F(ModelScenario, WithoutAProfileTheErrorSaysHowToMakeOne) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"compare", kScenario},
                                                  {"check", kScenario},
                                                  {"simulate", kScenario, "--schedule", "1f1b"}}) {
    const Outcome outcome = RunSpiritlevel(command);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr(kScenario), HasSubstr("spiritlevel calibrate -o machine.textproto"),
                      HasSubstr("--profile machine.textproto")));
  }
}

TEST_F(ModelScenario, AProfileForTypedCostsIsRefused) {
  for (const char* command : {"compare", "check"}) {
    const Outcome outcome = RunSpiritlevel({command, kTyped, "--profile", profile_});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("has its costs typed in"));
  }
  const std::string csv = folder_.Write("s.csv", "0F0,0B0\n");
  EXPECT_EQ(RunSpiritlevel({"check", csv, "--profile", profile_}).status, 2);
}

TEST_F(ModelScenario, TheScenariosOwnProfileLiesBesideIt) {
  std::filesystem::copy_file("scenarios/tinyllama-1.1b.json", folder_.Path("config.json"));
  const std::string scenario = folder_.Write(
      "own.textproto",
      "ranks: 2 micro_batches: 4 model { config: \"config.json\" profile: \"machine.textproto\" "
      "sequence_length: 64 layers_per_stage: [12, 10] }");
  const Outcome outcome = RunSpiritlevel({"compare", scenario});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  // Forms with two stages a rank have no such list.
  EXPECT_THAT(outcome.out, HasSubstr("2 entries do not fit 4 stages on 2 ranks"));
  std::filesystem::remove(folder_.Path("machine.textproto"));
  const Outcome missing = RunSpiritlevel({"compare", scenario});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("machine.textproto"));
}

TEST_F(ModelScenario, ReplicasMakeTheStepLonger) {
  std::filesystem::copy_file("scenarios/tinyllama-1.1b.json", folder_.Path("config.json"));
  // Links slow enough that sums do not hide behind the last W.
  Calibration slow = MadeUpCalibration();
  slow.profile.transfer_ns_per_byte = 0.1;
  const std::string profile =
      folder_.Write("slow.textproto", ProfileText(slow, ProfileFormat::kText));
  const auto step = [&](const std::string& more, const std::string& w = "by-micro-batch") {
    const std::string scenario = folder_.Write(
        "d.textproto",
        "ranks: 2 micro_batches: 4 model { config: \"config.json\" sequence_length: 64 " + more +
            " }");
    const std::string path = folder_.Path("d.json");
    const Outcome outcome = RunSpiritlevel({"compare", scenario, "--profile", profile, "--schedule",
                                            "zb-h1", "--json", path, "--weight-grads", w});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::ifstream file(path);
    return json::parse(file)["results"][0]["step_ns"].get<int64_t>();
  };
  EXPECT_GT(step("data_parallel: 8"), step(""));
  EXPECT_LT(step("data_parallel: 8", "by-bucket"), step("data_parallel: 8"));
  EXPECT_GT(step("recompute: \"full\""), step(""));
}

// Of whatever a command has read, nothing is written over.
TEST_F(ModelScenario, AnOutputThatIsTheProfileOrTheConfigIsRefused) {
  const std::string config =
      folder_.Write("config.json", ReadFile("scenarios/tinyllama-1.1b.json"));
  const std::string own = folder_.Write("own.textproto", ReadFile(profile_));
  const std::string scenario = folder_.Write(
      "s.textproto",
      "ranks: 4 micro_batches: 8 model { config: \"config.json\" profile: \"own.textproto\" "
      "sequence_length: 256 split: \"balanced\" }\n");
  const std::vector<std::vector<std::string>> commands = {
      {"compare", scenario, "--json"},
      {"compare", scenario, "--html"},
      {"simulate", scenario, "--schedule", "1f1b", "--json"},
      {"simulate", scenario, "--schedule", "1f1b", "--html"},
      {"simulate", scenario, "--schedule", "1f1b", "--trace"},
      {"export", scenario, "--schedule", "1f1b", "-o"},
      {"search", scenario, "--evaluations", "10", "--export"},
      {"search", scenario, "--evaluations", "10", "--json"},
      {"model", config, "--json"}};
  for (const std::vector<std::string>& command : commands) {
    for (const std::string& input : {config, own, profile_, scenario}) {
      const bool model = command[0] == "model";
      if (model && (input == own || input == scenario)) continue;
      std::vector<std::string> arguments = command;
      arguments.push_back(input);
      if (input == profile_) arguments.insert(arguments.end(), {"--profile", profile_});
      const std::string before = ReadFile(input);
      const Outcome outcome = RunSpiritlevel(arguments);
      EXPECT_EQ(outcome.status, 2) << command[0] << " " << input;
      EXPECT_THAT(outcome.err, HasSubstr("would be written over"));
      EXPECT_EQ(ReadFile(input), before);
    }
  }
}

TEST_F(ModelScenario, AProfileThatCannotBeReadIsNamedWithItsFlag) {
  for (const char* profile : {"nope", "/dev/zero", "."}) {
    const Outcome outcome = RunSpiritlevel({"compare", kScenario, "--profile", profile});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("--profile: "), HasSubstr("calibrate -o")));
  }
  for (const char* command : {"compare", "check", "search"}) {
    const Outcome outcome = RunSpiritlevel({command, kScenario, "--profile", ""});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("--profile: \"\" names no file")) << command;
  }
}

TEST_F(ModelScenario, ModelTakesNothingForZero) {
  const std::string config = "scenarios/tinyllama-1.1b.json";
  for (const char* flag : {"--ranks", "--sequence"}) {
    const Outcome outcome = RunSpiritlevel({"model", config, flag, "0"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(flag), HasSubstr(": 0 is not")));
  }
  EXPECT_EQ(RunSpiritlevel({"model", config, "--profile", ""}).status, 2);
}

}  // namespace
}  // namespace spiritlevel
