// Reads a Hugging Face config.json. Understood are the dense decoders that UnderstoodClasses()
// lists; everything else is refused by name with what would be needed, never approximated.
//
//   const Architecture a = LoadHfConfig("Llama-3.1-8B/config.json");
//   a.assumptions;  // {"head_dim absent: taken as hidden_size / num_attention_heads = 128"}
//
// Whatever is wrong is an InputError "FILE: FIELD: what" with a way out, within a second, for any
// input: text that is no JSON, nesting, sizes and types nobody meant.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "models/architecture.h"

namespace spiritlevel {

// `file` stands in messages only.
Architecture ParseHfConfig(std::string_view text, std::string_view file);

Architecture LoadHfConfig(const std::filesystem::path& path);

std::vector<std::string> UnderstoodClasses();

// Real ones have a few kilobytes.
inline constexpr size_t kMaxConfigBytes = size_t{1} << 18;
inline constexpr int kMaxConfigNesting = 100;

}  // namespace spiritlevel
