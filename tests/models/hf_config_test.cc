// What is understood of configs: exact parameter totals, defaults written down, refusals by name.
#include "models/hf_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "models/parameters.h"
#include "tests/base/input_error_of.h"
#include "tests/models/configs.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

int64_t TotalOf(const json& config) { return CountParameters(Parsed(config)).total(); }

json Without(json config, const char* key) {
  config.erase(key);
  return config;
}

json With(json config, const char* key, json value) {
  config[key] = std::move(value);
  return config;
}

std::string Refusal(const json& config) {
  return InputErrorOf([&] { Parsed(config); });
}

TEST(Parameters, AreThePublishedTotalsToTheLastDigit) {
  EXPECT_EQ(TotalOf(Llama8B()), 8'030'261'248);
  EXPECT_EQ(TotalOf(Llama405B()), 405'853'388'800);
  EXPECT_EQ(TotalOf(Qwen06B()), 596'049'920);
  EXPECT_EQ(TotalOf(Mistral7B()), 7'241'732'096);
  EXPECT_EQ(TotalOf(Gpt2Small()), 124'439'808);
}

// C50: 16 heads of 128 make q twice as wide as the model; dividing instead loses 15 %.
TEST(Parameters, TakeTheHeadDimThatTheConfigSays) {
  EXPECT_EQ(TotalOf(With(Qwen06B(), "head_dim", 64)), 507'965'952);
  EXPECT_EQ(TotalOf(With(Qwen06B(), "tie_word_embeddings", false)), 751'632'384);
}

TEST(Parameters, OfTheWorkedPartsSumToTheTotal) {
  const ParameterCount count = CountParameters(Parsed(Llama8B()));
  EXPECT_EQ(count.embedding, 525'336'576);
  EXPECT_EQ(count.head, 525'336'576);
  EXPECT_EQ(count.final_norm, 4096);
  EXPECT_EQ(count.per_layer(), 218'112'000);
  EXPECT_EQ(count.total(), 2 * 525'336'576 + 4096 + 32 * int64_t{218'112'000});
}

// n_positions * n_embd + vocabulary * n_embd + 12 layers + the last norm.
TEST(Parameters, CountLearnedPositionsAndEveryBias) {
  const ParameterCount count = CountParameters(Parsed(Gpt2Small()));
  EXPECT_EQ(count.positions, 1024 * 768);
  EXPECT_EQ(count.head, 0);
  EXPECT_EQ(count.final_norm, 2 * 768);
  EXPECT_EQ(count.per_layer(), 12 * 768 * 768 + 13 * 768);
}

TEST(Parameters, CountTheBiasesThatTheConfigAsksFor) {
  const int64_t without = TotalOf(Llama8B());
  const int64_t attention = 4096 + 1024 + 1024 + 4096;
  const int64_t mlp = 14336 + 14336 + 4096;
  EXPECT_EQ(TotalOf(With(Llama8B(), "attention_bias", true)), without + 32 * attention);
  EXPECT_EQ(TotalOf(With(Llama8B(), "mlp_bias", true)), without + 32 * mlp);
}

TEST(HfConfig, EveryDefaultTakenIsWrittenDown) {
  EXPECT_THAT(Parsed(Without(Llama8B(), "num_key_value_heads")).assumptions,
              Contains("num_key_value_heads absent: taken as num_attention_heads = 32"));
  EXPECT_THAT(Parsed(Llama8B()).assumptions,
              ElementsAre("head_dim absent: taken as hidden_size / num_attention_heads = 128"));
  EXPECT_THAT(Parsed(With(Llama8B(), "head_dim", 128)).assumptions, IsEmpty());
  EXPECT_THAT(Parsed(Without(Llama8B(), "architectures")).assumptions,
              Contains("architectures absent: taken as LlamaForCausalLM from model_type"));
  EXPECT_THAT(Parsed(Without(Llama8B(), "tie_word_embeddings")).assumptions,
              Contains("tie_word_embeddings absent: taken as false, as the class does"));
  EXPECT_THAT(Parsed(Without(Qwen06B(), "head_dim")).assumptions,
              Contains("head_dim absent: taken as the class's own = 128"));
  EXPECT_THAT(Parsed(Gpt2Small()).assumptions,
              AllOf(Contains("n_inner absent: taken as 4 n_embd = 3072"),
                    Contains("tie_word_embeddings absent: taken as true, as the class does"),
                    Contains("resid_pdrop absent: taken as 0.1, as the class does")));
}

TEST(HfConfig, NullIsTheSameAsAbsent) {
  EXPECT_EQ(Parsed(With(Llama8B(), "num_key_value_heads", nullptr)),
            Parsed(Without(Llama8B(), "num_key_value_heads")));
}

TEST(HfConfig, WindowsAreOnTheLayersThatHaveThem) {
  EXPECT_THAT(Parsed(Mistral7B()).windows, testing::Each(4096));
  EXPECT_THAT(Parsed(With(Mistral7B(), "sliding_window", nullptr)).windows, IsEmpty());
  const Architecture gemma = Parsed(Gemma());
  EXPECT_EQ(gemma.window(0), 4096);
  EXPECT_EQ(gemma.window(1), 0);
  json qwen = With(Qwen06B(), "use_sliding_window", true);
  qwen["sliding_window"] = 1000;
  qwen["max_window_layers"] = 20;
  EXPECT_EQ(Parsed(qwen).window(19), 0);
  EXPECT_EQ(Parsed(qwen).window(20), 1000);
  EXPECT_THAT(Parsed(With(Qwen06B(), "sliding_window", 1000)).windows, IsEmpty());
}

TEST(HfConfig, AListOfLayerTypesWinsOverTheRuleOfTheClass) {
  json types(26, "full_attention");
  types[3] = "sliding_attention";
  const Architecture gemma = Parsed(With(Gemma(), "layer_types", types));
  EXPECT_EQ(gemma.window(0), 0);
  EXPECT_EQ(gemma.window(3), 4096);
  EXPECT_THAT(Refusal(With(Gemma(), "layer_types", {"full_attention"})),
              HasSubstr("layer_types: is not a list of 26 entries"));
  types[3] = "chunked_attention";
  EXPECT_THAT(Refusal(With(Gemma(), "layer_types", types)),
              HasSubstr("\"chunked_attention\" is not understood"));
}

TEST(HfConfig, AnUnknownClassIsRefusedWithWhatIsMissing) {
  json config = Llama8B();
  config["architectures"] = {"MixtralForCausalLM"};
  config["model_type"] = "mixtral";
  config["num_local_experts"] = 8;
  EXPECT_THAT(Refusal(config),
              AllOf(HasSubstr("config.json: architectures: \"MixtralForCausalLM\""),
                    HasSubstr("mixture-of-experts layers (num_local_experts: 8)"),
                    HasSubstr("understood are LlamaForCausalLM")));
  config["architectures"] = {"FalconForCausalLM"};
  config.erase("num_local_experts");
  EXPECT_THAT(Refusal(config), HasSubstr("how its layers are built"));
}

TEST(HfConfig, PartsThatAreNotModelledAreRefusedInAKnownClassToo) {
  EXPECT_THAT(Refusal(With(Llama8B(), "num_local_experts", 4)), HasSubstr("mixture-of-experts"));
  EXPECT_THAT(Refusal(With(Llama8B(), "kv_lora_rank", 512)), HasSubstr("multi-head latent"));
  EXPECT_THAT(Refusal(With(Llama8B(), "quantization_config", {{"quant_method", "fp8"}})),
              HasSubstr("quantised"));
  EXPECT_THAT(Refusal(With(Gpt2Small(), "add_cross_attention", true)), HasSubstr("encoder"));
  EXPECT_THAT(Refusal(With(Llama8B(), "hidden_act", "maxout")),
              HasSubstr("hidden_act: \"maxout\" is not understood"));
  EXPECT_THAT(Refusal(With(Llama8B(), "model_type", "qwen2")),
              HasSubstr("\"qwen2\" is not that of LlamaForCausalLM"));
  EXPECT_EQ(Refusal(With(Llama8B(), "num_local_experts", nullptr)), "");
}

TEST(HfConfig, AFileOfAnotherProgramIsRefusedWithItsNamesForThings) {
  EXPECT_THAT(Refusal({{"dim", 7168}, {"n_layers", 61}, {"n_heads", 128}}),
              AllOf(HasSubstr("is not a Hugging Face config: it has no model_type"),
                    HasSubstr("dim for hidden_size"), HasSubstr("n_layers for num_hidden_layers")));
  EXPECT_THAT(Refusal({{"model_type", "dense"}, {"hidden_size", 16384}, {"layer_num", 128}}),
              AllOf(HasSubstr("is not a Hugging Face config"), HasSubstr("\"dense\" is none"),
                    HasSubstr("layer_num for num_hidden_layers")));
}

TEST(HfConfig, WhatDoesNotDivideIsRefused) {
  EXPECT_THAT(Refusal(With(Llama8B(), "num_key_value_heads", 5)),
              HasSubstr("5 does not divide num_attention_heads = 32"));
  EXPECT_THAT(Refusal(With(Llama8B(), "num_attention_heads", 24)),
              AllOf(HasSubstr("24 does not divide hidden_size = 4096"), HasSubstr("head_dim")));
}

class PublicConfigs : public testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("SPIRITLEVEL_PUBLIC_DATA");
    if (root == nullptr || *root == '\0') GTEST_SKIP() << "SPIRITLEVEL_PUBLIC_DATA is not set";
    folder_ = std::filesystem::path(root) / "hf_config";
    if (!std::filesystem::is_directory(folder_)) GTEST_SKIP() << folder_ << " is not there";
  }

  std::filesystem::path folder_;
};

TEST_F(PublicConfigs, HaveTheirPublishedTotals) {
  const std::pair<const char*, int64_t> totals[] = {
      {"Llama-3.1-8B.json", 8'030'261'248},         {"Llama-3.1-70B-Instruct.json", 70'553'706'496},
      {"Llama-3.1-70B.aws.json", 70'553'706'496},   {"Llama-3.2-3B.json", 3'212'749'824},
      {"Qwen2.5-14B.json", 14'770'033'664},         {"Qwen3-8B.json", 8'190'735'360},
      {"Qwen3-32B.json", 32'762'123'264},           {"Gemma-2-27B.tf5.json", 27'227'128'320},
      {"GPT-NeoX-6.9B-h2ogpt.json", 6'857'302'016},
  };
  for (const auto& [name, total] : totals) {
    EXPECT_EQ(CountParameters(LoadHfConfig(folder_ / name)).total(), total) << name;
  }
  EXPECT_EQ(CountParameters(LoadHfConfig(folder_ / "Qwen3-32B.json")).per_layer(), 487'598'336);
}

TEST_F(PublicConfigs, OfOtherKindsAreRefusedByName) {
  const std::pair<const char*, const char*> reasons[] = {
      {"DBRX-16x13B.json", "DbrxForCausalLM"},
      {"DeepSeek-V2-Lite-shape.json", "multi-head latent attention"},
      {"DeepSeek-V3.json", "multi-token prediction"},
      {"Mixtral-8x7B-v0.1.json", "MixtralForCausalLM"},
      {"Mixtral-8x7B.aws-modified.json", "num_local_experts: 8"},
      {"Qwen3-30B-A3B.json", "Qwen3MoeForCausalLM"},
      {"DeepSeek-V3.native_671B.json", "is not a Hugging Face config"},
      {"SimuMax.llama3-405b.json", "is not a Hugging Face config"},
  };
  for (const auto& [name, reason] : reasons) {
    const std::filesystem::path path = folder_ / name;
    const std::string message = InputErrorOf([&] { LoadHfConfig(path); });
    EXPECT_THAT(message, AllOf(HasSubstr(name), HasSubstr(reason)));
  }
}

}  // namespace
}  // namespace spiritlevel
