// Configs of real models, written from their published figures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "models/architecture.h"
#include "models/hf_config.h"

namespace spiritlevel {

nlohmann::json Llama8B();
nlohmann::json Llama405B();
nlohmann::json Qwen06B();
nlohmann::json Mistral7B();
nlohmann::json Gpt2Small();
nlohmann::json NeoX();   // GPT-NeoX, small, parallel residual
nlohmann::json Gemma();  // Gemma 2, small

inline Architecture Parsed(const nlohmann::json& config) {
  return ParseHfConfig(config.dump(), "config.json");
}

// The decoder that the zero-bubble paper's formulas are of (arXiv 2401.10241, table 1): LayerNorm,
// plain MLP of 4 h, as many key heads as heads, dropout after attention and after the MLP.
Architecture PaperGpt(int64_t layers, int64_t hidden, int64_t heads, bool dropout);

}  // namespace spiritlevel
