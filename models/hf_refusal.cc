#include "models/hf_refusal.h"

#include <fmt/format.h>

#include <array>

#include "models/hf_config.h"
#include "models/hf_fields.h"

namespace spiritlevel {
namespace {

using nlohmann::json;

struct Sign {
  const char* key;
  const char* part;
  bool (*asks)(const json& value);
};

bool IsSet(const json& value) {
  return !value.is_null() && value != false && !(value.is_structured() && value.empty());
}
bool MoreThanOne(const json& value) { return value.is_number() && value > 1; }
bool MoreThanNone(const json& value) { return value.is_number() && value > 0; }

constexpr const char* kExperts = "mixture-of-experts layers";
constexpr const char* kSeveralModels = "a text model inside another model's config";
constexpr const char* kCrossAttention = "attention to an encoder";

constexpr std::array kSigns{
    Sign{"num_local_experts", kExperts, MoreThanOne},
    Sign{"num_experts", kExperts, MoreThanOne},
    Sign{"n_routed_experts", kExperts, MoreThanOne},
    Sign{"moe_num_experts", kExperts, MoreThanOne},
    Sign{"kv_lora_rank", "multi-head latent attention", MoreThanNone},
    Sign{"num_nextn_predict_layers", "multi-token prediction layers", MoreThanNone},
    Sign{"text_config", kSeveralModels, IsSet},
    Sign{"vision_config", kSeveralModels, IsSet},
    Sign{"is_encoder_decoder", kCrossAttention, IsSet},
    Sign{"add_cross_attention", kCrossAttention, IsSet},
    Sign{"quantization_config", "training of quantised weights", IsSet},
};

void AddParts(const json& object, const std::string& prefix, std::vector<std::string>* parts) {
  for (const Sign& sign : kSigns) {
    const auto found = object.find(sign.key);
    if (found == object.end() || !sign.asks(*found)) continue;
    parts->push_back(fmt::format("{} ({}{}: {})", sign.part, prefix, sign.key, ShortText(*found)));
  }
}

// What other programs call the fields of a Hugging Face config.
struct Alias {
  const char* theirs;
  const char* ours;
};
constexpr std::array kAliases{
    Alias{"dim", "hidden_size"},
    Alias{"n_layers", "num_hidden_layers"},
    Alias{"layer_num", "num_hidden_layers"},
    Alias{"n_heads", "num_attention_heads"},
    Alias{"head_num", "num_attention_heads"},
    Alias{"kv_head_num", "num_key_value_heads"},
    Alias{"head_size", "head_dim"},
    Alias{"inter_dim", "intermediate_size"},
};

std::vector<std::string> OtherNames(const json& config) {
  std::vector<std::string> names;
  for (const Alias& alias : kAliases) {
    if (config.contains(alias.theirs) && !config.contains(alias.ours)) {
      names.push_back(fmt::format("{} for {}", alias.theirs, alias.ours));
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> PartsNotUnderstood(const json& config) {
  std::vector<std::string> parts;
  AddParts(config, "", &parts);
  for (const char* nested : {"ffn_config", "attn_config"}) {  // as DBRX groups them
    const auto found = config.find(nested);
    if (found != config.end() && found->is_object()) {
      AddParts(*found, std::string(nested) + ".", &parts);
    }
  }
  return parts;
}

InputError RefusedClass(std::string_view class_name, const json& config) {
  const std::vector<std::string> parts = PartsNotUnderstood(config);
  return InputError(fmt::format("architectures: {} is not understood; missing: {}", class_name,
                                parts.empty() ? "how its layers are built"
                                              : fmt::format("{}", fmt::join(parts, ", "))),
                    fmt::format("understood are {}; for others give the costs in a scenario",
                                fmt::join(UnderstoodClasses(), ", ")));
}

InputError NotHuggingFace(std::string_view reason, const json& config) {
  const std::vector<std::string> names = OtherNames(config);
  return InputError(
      fmt::format("is not a Hugging Face config: {}{}", reason,
                  names.empty() ? "" : fmt::format(" (it writes {})", fmt::join(names, ", "))),
      "give the config.json that lies beside the model's weights on Hugging Face");
}

}  // namespace spiritlevel
