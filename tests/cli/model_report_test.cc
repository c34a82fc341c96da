// What is said of a scenario with a model: how it is cut, what its times are worth, what they rest
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "calibrate/profile_file.h"
#include "tests/cli/made_up_profile.h"
#include "tests/cli/run_binary.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kScenario = "scenarios/tinyllama-p4-m16.textproto";
constexpr const char* kConfig = "scenarios/tinyllama-1.1b.json";

class ModelReport : public testing::Test {
 protected:
  ModelReport()
      : profile_(folder_.Write("machine.textproto",
                               ProfileText(MadeUpCalibration(), ProfileFormat::kText))) {
    std::filesystem::copy_file(kConfig, folder_.Path("config.json"));
  }

  std::string Scenario(const std::string& more) const {
    return folder_.Write("s.textproto",
                         "ranks: 4 micro_batches: 16 model { config: \"config.json\" "
                         "sequence_length: 128 split: \"balanced\" " +
                             more + " }");
  }
  json JsonOf(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--profile", profile_, "--json", folder_.Path("r.json")});
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::ifstream file(folder_.Path("r.json"));
    return json::parse(file);
  }

  const Folder folder_;
  const std::string profile_;
};

int64_t Busiest(const json& result) {
  const auto busy = result["busy_ns"].get<std::vector<int64_t>>();
  return *std::max_element(busy.begin(), busy.end());
}

const json& Named(const json& all, const std::string& schedule) {
  for (const json& r : all["results"]) {
    if (r["schedule"] == schedule) return r;
  }
  ADD_FAILURE() << "no result for " << schedule;
  return all["results"][0];
}

// 22 layers and a head on 4 ranks: a V that is cut for its ranks is no worse than the line, which
// has fewer places to cut. Cut stage by stage its first rank, with the head, would have more.
TEST_F(ModelReport, AVIsCutForItsRanks) {
  const json all = JsonOf({"compare", kScenario});
  const int64_t line = Busiest(Named(all, "1f1b"));
  for (const char* v : {"zb-v", "v-half", "v-min"}) {
    EXPECT_LE(Busiest(Named(all, v)), line) << v;
    for (const json& split : all["provenance"]["model"]["splits"]) {
      if (split["placement"].get<std::string>().find("V") == std::string::npos) continue;
      EXPECT_LT(split["layers_per_stage"][0].get<int>() + split["layers_per_stage"][7].get<int>(),
                split["layers_per_stage"][1].get<int>() + split["layers_per_stage"][6].get<int>());
    }
  }
}

TEST_F(ModelReport, TheHeadersSayWhatWasPlayed) {
  for (const Outcome& outcome :
       {RunSpiritlevel({"compare", kScenario, "--profile", profile_, "--schedule", "1f1b",
                        "--schedule", "zb-v"}),
        RunSpiritlevel({"simulate", kScenario, "--profile", profile_, "--schedule", "1f1b"})}) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("layers 6 6 6 4 (linear)"),
                                   HasSubstr("micro-batches of 1 x 1024 tokens, recompute none")));
  }
}

// C27 of the field's cases.
TEST_F(ModelReport, RecomputationBesideASplitBackwardIsWarnedOf) {
  const json once = JsonOf(
      {"compare", Scenario("recompute: \"full\""), "--schedule", "1f1b", "--schedule", "zb-h1"});
  EXPECT_THAT(Named(once, "zb-h1")["reason"].get<std::string>(),
              AllOf(HasSubstr("recomputes twice"), HasSubstr("full-again-in-w")));
  EXPECT_EQ(Named(once, "1f1b")["reason"], "");
  EXPECT_THAT(once["advice"].get<std::string>(),
              AllOf(HasSubstr("use zb-h1"), HasSubstr("recomputes twice")));
  const json twice =
      JsonOf({"compare", Scenario("recompute: \"full-again-in-w\""), "--schedule", "zb-h1"});
  EXPECT_EQ(Named(twice, "zb-h1")["reason"], "");
  EXPECT_GT(Named(twice, "zb-h1")["step_ns"], Named(once, "zb-h1")["step_ns"]);
  const json none = JsonOf({"compare", Scenario(""), "--schedule", "zb-h1"});
  EXPECT_THAT(none["advice"].get<std::string>(), Not(HasSubstr("recomputes")));
}

TEST_F(ModelReport, AProfileThatWasTypedInIsCalledSo) {
  Calibration typed = MadeUpCalibration();
  typed.date = typed.machine.cpu = "";
  for (PrimitiveResult& result : typed.primitives) result.measurements.clear();
  folder_.Write("machine.textproto", ProfileText(typed, ProfileFormat::kText));
  const Outcome outcome = RunSpiritlevel({"compare", kScenario, "--profile", profile_});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("on a profile that was typed in, float32"),
                                 Not(HasSubstr("unknown"))));
  const json from = JsonOf({"compare", kScenario, "--schedule", "1f1b"})["provenance"];
  EXPECT_EQ(from["profile"]["typed_in"], true);
}

TEST_F(ModelReport, AModelsConfigIsNoProfile) {
  const Outcome outcome = RunSpiritlevel({"compare", kScenario, "--profile", kConfig});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("this is a model's config, not a device profile"),
                                 HasSubstr("spiritlevel calibrate")));
  // What is neither keeps its own complaint.
  const std::string neither = folder_.Write("n.textproto", "nonsense: 1\n");
  EXPECT_THAT(RunSpiritlevel({"compare", kScenario, "--profile", neither}).err,
              Not(HasSubstr("model's config")));
}

// Kernels that no profile has a time of by themselves.
TEST_F(ModelReport, SaysWhichKernelsArePricedAsOthers) {
  const auto assumed = [&](const std::string& config) {
    folder_.Write("m.json", config);
    const json model = JsonOf({"model", folder_.Path("m.json"), "--sequence", "64"});
    return model["assumptions"].dump();
  };
  EXPECT_THAT(
      assumed(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
                          "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 100,
                          "n_positions": 128})"),
      AllOf(HasSubstr("a LayerNorm takes"), HasSubstr("a GELU takes"), Not(HasSubstr("window"))));
  const std::string mistral = R"({"architectures": ["MistralForCausalLM"],
      "model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 64,
      "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2,
      "vocab_size": 100, "max_position_embeddings": 128, "sliding_window": )";
  EXPECT_THAT(assumed(mistral + "16}"),
              AllOf(HasSubstr("attention with a window takes"), Not(HasSubstr("LayerNorm"))));
  // Wider than the sequence, it is none.
  EXPECT_THAT(assumed(mistral + "64}"), Not(HasSubstr("with a window takes")));
}

TEST_F(ModelReport, ATiedEmbeddingIsHeldTwiceButInAV) {
  folder_.Write("config.json", [] {
    std::ifstream file(kConfig);
    json config = json::parse(file);
    config["tie_word_embeddings"] = true;
    return config.dump();
  }());
  const json line =
      JsonOf({"compare", Scenario(""), "--schedule", "1f1b", "--schedule", "interleaved"});
  EXPECT_THAT(line["provenance"]["model"]["assumptions"].dump(),
              HasSubstr("the last stage, placement linear, looped: 65536000 parameters more"));
  const json v = JsonOf({"compare", Scenario(""), "--schedule", "zb-v"});
  EXPECT_THAT(v["provenance"]["model"]["assumptions"].dump(),
              Not(HasSubstr("tied embedding is held")));
}

TEST_F(ModelReport, ModelSaysBalanceAndWhichStageNeedsMost) {
  const Outcome flops = RunSpiritlevel(
      {"model", kConfig, "--ranks", "4", "--sequence", "128", "--layers-per-stage", "6,6,6,4"});
  EXPECT_EQ(flops.status, 0) << flops.err;
  EXPECT_THAT(flops.out,
              AllOf(HasSubstr("holds most parameters"), HasSubstr("needs most memory under 1f1b"),
                    HasSubstr("balance by FLOPs")));
  const json balanced = JsonOf({"model", kConfig, "--ranks", "4", "--split", "balanced"});
  EXPECT_EQ(balanced["balance"]["by"], "time");
  EXPECT_GT(balanced["balance"]["share"].get<double>(), 0.9);
  EXPECT_EQ(balanced["stages"][3]["layers"], 4);
  EXPECT_NEAR(balanced["balance"]["speedup"].get<double>(),
              4 * balanced["balance"]["share"].get<double>(), 1e-9);
  const Outcome without = RunSpiritlevel({"model", kConfig, "--ranks", "4", "--split", "balanced"});
  EXPECT_EQ(without.status, 2);
  EXPECT_THAT(without.err, HasSubstr("--profile"));
}

}  // namespace
}  // namespace spiritlevel
