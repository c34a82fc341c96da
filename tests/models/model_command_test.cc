// `spiritlevel model FILE` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/model_costs.h"
#include "tests/cli/run_binary.h"
#include "tests/models/configs.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

class ModelCommand : public testing::Test {
 protected:
  Outcome Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"model", file_});
    return RunSpiritlevel(arguments);
  }
  json RunForJson(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--json", "-"});
    const Outcome outcome = Run(std::move(arguments));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
  }

  Folder folder_;
  std::string file_ = folder_.Write("config.json", Llama8B().dump());
};

TEST_F(ModelCommand, PrintsWhatWasUnderstood) {
  const Outcome outcome = Run({});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("LlamaForCausalLM: 32 layers, 8 030 261 248 parameters"),
                    HasSubstr("head_dim absent: taken as hidden_size / num_attention_heads = 128"),
                    HasSubstr("--sequence absent: taken as 4096"), HasSubstr("gate projection"),
                    HasSubstr("log-sum-exp of attention")));
}

TEST_F(ModelCommand, WritesTheSameAsJson) {
  const json j = RunForJson({"--ranks", "4"});
  EXPECT_EQ(j["parameters"], 8'030'261'248);
  EXPECT_EQ(j["layers"], 32);
  int64_t parts = 0;
  for (const auto& part : j["parts"]) parts += part.get<int64_t>();
  EXPECT_EQ(parts, j["parameters"]);
  EXPECT_THAT(j["assumptions"].get<std::vector<std::string>>(),
              Contains("--dtype absent: taken as bfloat16"));
  EXPECT_EQ(j["stages"].size(), 4);
  EXPECT_EQ(j["most_parameters_stage"], 3);
  Bytes kept_for_b = 0;
  for (const auto& tensor : j["layer"]["tensors"]) {
    if (tensor["made_by"] == "F") kept_for_b += tensor["bytes"].get<Bytes>();
  }
  EXPECT_EQ(kept_for_b, j["layer"]["activation_bytes"]);
}

TEST_F(ModelCommand, TakesUnevenStagesAndAllItsOptions) {
  const json j = RunForJson({"--layers-per-stage", "9,9,8,6", "--sequence", "2048", "--micro-batch",
                             "2", "--dtype", "float16", "--recompute", "full"});
  EXPECT_EQ(j["stages"].size(), 4);
  EXPECT_EQ(j["stages"][3]["layers"], 6);
  const ModelRun run{.sequence_length = 2048,
                     .micro_batch_size = 2,
                     .dtype = DType::kFloat16,
                     .ranks = 4,
                     .layers_per_stage = {9, 9, 8, 6},
                     .recompute = {Recompute::kFull}};
  const StageMemory memory = StageMemories(Parsed(Llama8B()), run)[1];
  EXPECT_EQ(j["stages"][1]["activation_bytes"], memory.after_forward);
  EXPECT_EQ(j["stages"][1]["weight_state_bytes"], memory.after_input_grad);
  EXPECT_GT(RunForJson({"--stored-attention"})["layer"]["activation_bytes"],
            RunForJson({})["layer"]["activation_bytes"]);
  EXPECT_GT(RunForJson({"--norm-grads-in-w"})["layer"]["change_at_b_bytes"], 0);
}

// A list of layers ends where it ends: what follows is the file.
TEST_F(ModelCommand, TakesItsFileLast) {
  const Outcome outcome = RunSpiritlevel({"model", "--layers-per-stage", "16,16", file_});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(ModelCommand, RefusesWithTheFileAndAWayOut) {
  const auto refusal = [&](std::vector<std::string> arguments) {
    const Outcome outcome = Run(std::move(arguments));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(refusal({"--ranks", "5"}),
              AllOf(HasSubstr(file_), HasSubstr("32 are configured"), HasSubstr("make 30"),
                    HasSubstr("layers per stage 7,7,6,6,6")));
  EXPECT_THAT(refusal({"--layers-per-stage", "16,15"}), HasSubstr("make 31"));
  EXPECT_THAT(refusal({"--dtype", "int8"}), HasSubstr("--dtype: there is no dtype \"int8\""));
  EXPECT_THAT(refusal({"--recompute", "half"}),
              HasSubstr("--recompute: there is no recomputation \"half\""));
  EXPECT_THAT(refusal({"--sequence", "-1"}), HasSubstr("sequence: -1"));
  EXPECT_THAT(refusal({"--micro-batch", "0"}), HasSubstr("micro-batch: 0"));
  EXPECT_THAT(refusal({"--ranks", "-1"}), HasSubstr("--ranks: -1"));
  file_ = folder_.Write("other.json", R"({"dim": 7168, "n_layers": 61})");
  EXPECT_THAT(refusal({}), HasSubstr("is not a Hugging Face config"));
  file_ = folder_.Path("absent.json");
  EXPECT_THAT(refusal({}), HasSubstr("absent.json"));
}

TEST_F(ModelCommand, DoesNotWriteOverItsConfig) {
  EXPECT_EQ(Run({"--json", file_}).status, 2);
  EXPECT_EQ(Run({}).status, 0);
}

}  // namespace
}  // namespace spiritlevel
