// A model and a scenario to verify, small enough for a test, and how they are asked for.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/cores.h"
#include "tests/cli/run_binary.h"

namespace spiritlevel {

using nlohmann::json;

inline constexpr const char* kVerifyConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
  "max_position_embeddings": 64, "tie_word_embeddings": false, "hidden_act": "silu",
  "rms_norm_eps": 1e-05, "attention_bias": false, "mlp_bias": false
})";

inline constexpr const char* kVerifyTyped =
    "name: \"typed\" ranks: 4 micro_batches: 4 costs { uniform { forward_us: 900 input_grad_us: "
    "1000 weight_grad_us: 700 transfer_us: 100 activation_bytes: 1000 weight_state_bytes: 400 } }";

class VerifyCommand : public testing::Test {
 protected:
  std::string Model(int ranks, const std::string& more = "") const {
    folder_.Write("config.json", kVerifyConfig);
    return folder_.Write("s.textproto",
                         "ranks: " + std::to_string(ranks) +
                             " micro_batches: 4 model { config: \"config.json\" sequence_length: "
                             "16 split: \"even\" " +
                             more + " }");
  }

  static json Parsed(const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out);
  }

  static std::vector<std::string> Quick(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "verify");
    for (const char* word : {"--rounds", "1", "--iterations", "2", "--seconds", "0"}) {
      arguments.emplace_back(word);
    }
    return arguments;
  }

  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  static bool HasTwoCores() { return cpu::UsableCores().size() >= 2; }

  const Folder folder_;
};

}  // namespace spiritlevel
