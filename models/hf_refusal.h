// Why a config is refused: what it would take to understand it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace spiritlevel {

// Parts of a model that no Architecture describes, each with the field that asks for it:
// "mixture-of-experts layers (num_local_experts: 8)". Empty for a plain dense decoder.
std::vector<std::string> PartsNotUnderstood(const nlohmann::json& config);

// For a class that we do not know, and for a known one with parts that we do not understand.
InputError RefusedClass(std::string_view class_name, const nlohmann::json& config);

// For a file that no Hugging Face model wrote. Says which fields it calls otherwise.
InputError NotHuggingFace(std::string_view reason, const nlohmann::json& config);

}  // namespace spiritlevel
