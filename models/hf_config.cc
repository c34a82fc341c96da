#include "models/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "models/hf_fields.h"
#include "models/hf_refusal.h"
#include "models/parameters.h"

namespace spiritlevel {
namespace {

using nlohmann::json;

// What the classes below share, by the field names that most of them use.
Architecture ReadSizes(HfFields* fields) {
  Architecture a;
  a.layers = fields->Required("num_hidden_layers", kMaxModelLayers);
  a.hidden = fields->Required("hidden_size", kMaxModelWidth);
  a.heads = fields->Required("num_attention_heads", kMaxModelHeads);
  a.ffn = fields->Required("intermediate_size", kMaxModelFfn);
  a.vocabulary = fields->Required("vocab_size", kMaxModelVocabulary);
  a.max_positions = fields->Optional("max_position_embeddings", kMaxModelPositions).value_or(0);
  return a;
}

void ReadKvHeads(HfFields* fields, Architecture* a) {
  a->kv_heads =
      fields->OrTake("num_key_value_heads", kMaxModelHeads, a->heads, "num_attention_heads");
}

int64_t HeadDimByDivision(int64_t hidden, int64_t heads, const char* hidden_name,
                          const char* heads_name) {
  if (hidden % heads == 0) return hidden / heads;
  throw InputError(
      fmt::format("{}: {} does not divide {} = {}", heads_name, heads, hidden_name, hidden),
      "write head_dim as in the model's own config.json");
}

void ReadHeadDim(HfFields* fields, Architecture* a) {
  if (const auto given = fields->Optional("head_dim", kMaxModelWidth)) {
    a->head_dim = *given;
    return;
  }
  a->head_dim =
      fields->OrTake("head_dim", kMaxModelWidth,
                     HeadDimByDivision(a->hidden, a->heads, "hidden_size", "num_attention_heads"),
                     "hidden_size / num_attention_heads");
}

// These two classes do not divide.
void ReadHeadDimOfClass(HfFields* fields, int64_t class_default, Architecture* a) {
  a->head_dim = fields->OrTake("head_dim", kMaxModelWidth, class_default, "the class's own");
}

void ReadAttentionBias(HfFields* fields, Architecture* a) {
  a->qkv_bias = a->attention_output_bias = fields->Flag("attention_bias", false);
}

void ReadAttentionDropout(HfFields* fields, Architecture* a) {
  a->attention_dropout = fields->Probability("attention_dropout", 0) > 0;
}

// A list with a word for each layer, which newer configs have.
bool ReadLayerTypes(const HfFields& fields, int64_t window, Architecture* a) {
  const json* types = fields.Find("layer_types");
  if (types == nullptr) return false;
  const auto layers = static_cast<size_t>(a->layers);
  if (!types->is_array() || types->size() != layers) {
    throw InputError(fmt::format("layer_types: is not a list of {} entries", layers),
                     "write one for each layer, or leave it out");
  }
  for (const json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      throw InputError(fmt::format("layer_types: {} is not understood", ShortText(type)),
                       "there are full_attention and sliding_attention");
    }
    a->windows.push_back(type == "sliding_attention" ? window : 0);
  }
  return true;
}

template <class HasWindow>
void SetWindows(int64_t window, HasWindow&& has_window, Architecture* a) {
  for (int64_t layer = 0; layer < a->layers; ++layer) {
    a->windows.push_back(has_window(layer) ? window : 0);
  }
}

int64_t ReadWindow(HfFields* fields) {
  return fields->OrTake("sliding_window", kMaxModelPositions, 4096, "the class's own");
}

Architecture ReadLlama(HfFields* fields) {
  Architecture a = ReadSizes(fields);
  ReadKvHeads(fields, &a);
  ReadHeadDim(fields, &a);
  ReadAttentionBias(fields, &a);
  a.mlp_bias = fields->Flag("mlp_bias", false);
  a.tied_embeddings = fields->Flag("tie_word_embeddings", false);
  ReadAttentionDropout(fields, &a);
  return a;
}

Architecture ReadMistral(HfFields* fields) {
  Architecture a = ReadSizes(fields);
  ReadKvHeads(fields, &a);
  ReadHeadDim(fields, &a);
  a.tied_embeddings = fields->Flag("tie_word_embeddings", false);
  ReadAttentionDropout(fields, &a);
  if (fields->IsNull("sliding_window")) return a;
  const int64_t window = ReadWindow(fields);
  if (!ReadLayerTypes(*fields, window, &a))
    SetWindows(
        window, [](int64_t) { return true; }, &a);
  return a;
}

void ReadQwenWindows(HfFields* fields, Architecture* a) {
  if (!fields->Flag("use_sliding_window", false)) return;
  const int64_t window = ReadWindow(fields);
  if (ReadLayerTypes(*fields, window, a)) return;
  const int64_t full = fields->OrTake("max_window_layers", kMaxModelLayers, 28, "the class's own");
  SetWindows(
      window, [full](int64_t layer) { return layer >= full; }, a);
}

Architecture ReadQwen2(HfFields* fields) {
  Architecture a = ReadSizes(fields);
  ReadKvHeads(fields, &a);
  ReadHeadDim(fields, &a);
  a.qkv_bias = true;  // the class has no switch for it
  a.tied_embeddings = fields->Flag("tie_word_embeddings", false);
  ReadAttentionDropout(fields, &a);
  ReadQwenWindows(fields, &a);
  return a;
}

Architecture ReadQwen3(HfFields* fields) {
  Architecture a = ReadSizes(fields);
  ReadKvHeads(fields, &a);
  ReadHeadDimOfClass(fields, 128, &a);
  ReadAttentionBias(fields, &a);
  a.qk_norms = true;
  a.tied_embeddings = fields->Flag("tie_word_embeddings", false);
  ReadAttentionDropout(fields, &a);
  ReadQwenWindows(fields, &a);
  return a;
}

Architecture ReadGemma2(HfFields* fields) {
  Architecture a = ReadSizes(fields);
  ReadKvHeads(fields, &a);
  ReadHeadDimOfClass(fields, 256, &a);
  ReadAttentionBias(fields, &a);
  a.post_norms = true;
  a.tied_embeddings = fields->Flag("tie_word_embeddings", true);
  a.attention_softcap = fields->IsPositive("attn_logit_softcapping");
  a.final_softcap = fields->IsPositive("final_logit_softcapping");
  ReadAttentionDropout(fields, &a);
  if (fields->IsNull("sliding_window")) return a;
  const int64_t window = ReadWindow(fields);
  if (!ReadLayerTypes(*fields, window, &a)) {
    SetWindows(
        window, [](int64_t layer) { return layer % 2 == 0; }, &a);
  }
  return a;
}

Architecture ReadGptNeoX(HfFields* fields) {
  Architecture a = ReadSizes(fields);
  a.kv_heads = a.heads;
  a.head_dim = HeadDimByDivision(a.hidden, a.heads, "hidden_size", "num_attention_heads");
  a.gated_mlp = false;
  a.norm = NormKind::kLayer;
  a.norm_bias = true;
  a.qkv_bias = a.attention_output_bias = fields->Flag("attention_bias", true);
  a.mlp_bias = true;
  a.parallel_residual = fields->Flag("use_parallel_residual", true);
  a.tied_embeddings = fields->Flag("tie_word_embeddings", false);
  ReadAttentionDropout(fields, &a);
  a.residual_dropout = a.embedding_dropout = fields->Probability("hidden_dropout", 0) > 0;
  return a;
}

Architecture ReadGpt2(HfFields* fields) {
  Architecture a;
  a.layers = fields->Required("n_layer", kMaxModelLayers);
  a.hidden = fields->Required("n_embd", kMaxModelWidth);
  a.heads = a.kv_heads = fields->Required("n_head", kMaxModelHeads);
  a.head_dim = HeadDimByDivision(a.hidden, a.heads, "n_embd", "n_head");
  a.ffn = fields->OrTake("n_inner", kMaxModelFfn, 4 * a.hidden, "4 n_embd");
  a.vocabulary = fields->Required("vocab_size", kMaxModelVocabulary);
  a.max_positions = fields->Required("n_positions", kMaxModelPositions);
  a.learned_positions = true;
  a.gated_mlp = false;
  a.norm = NormKind::kLayer;
  a.norm_bias = true;
  a.qkv_bias = a.attention_output_bias = a.mlp_bias = true;
  a.tied_embeddings = fields->Flag("tie_word_embeddings", true);
  a.embedding_dropout = fields->Probability("embd_pdrop", 0.1) > 0;
  a.residual_dropout = fields->Probability("resid_pdrop", 0.1) > 0;
  a.attention_dropout = fields->Probability("attn_pdrop", 0.1) > 0;
  return a;
}

struct ModelClass {
  const char* name;
  const char* model_type;
  Architecture (*read)(HfFields*);
};

constexpr std::array kClasses{
    ModelClass{"LlamaForCausalLM", "llama", ReadLlama},
    ModelClass{"Qwen2ForCausalLM", "qwen2", ReadQwen2},
    ModelClass{"Qwen3ForCausalLM", "qwen3", ReadQwen3},
    ModelClass{"MistralForCausalLM", "mistral", ReadMistral},
    ModelClass{"Gemma2ForCausalLM", "gemma2", ReadGemma2},
    ModelClass{"GPTNeoXForCausalLM", "gpt_neox", ReadGptNeoX},
    ModelClass{"GPT2LMHeadModel", "gpt2", ReadGpt2},
};

std::string FirstArchitecture(const json& list) {
  if (!list.is_array() || list.empty() || !list[0].is_string()) {
    throw InputError(fmt::format("architectures: {} is not a list of class names", ShortText(list)),
                     "write it as [\"LlamaForCausalLM\"]");
  }
  if (list.size() > 1) {
    throw InputError(fmt::format("architectures: names {} classes", list.size()),
                     "keep the one that is meant");
  }
  return list[0].get<std::string>();
}

const ModelClass& ClassByModelType(const json& config, HfFields* fields) {
  const std::optional<std::string> type = fields->Text("model_type");
  if (!type || type->empty()) {
    throw NotHuggingFace("it has no model_type and no architectures", config);
  }
  for (const ModelClass& c : kClasses) {
    if (*type != c.model_type) continue;
    fields->Assume(fmt::format("architectures absent: taken as {} from model_type", c.name));
    return c;
  }
  const std::string shown = ShortText(*type);
  if (!fields->Has("num_hidden_layers") && !fields->Has("n_layer")) {
    throw NotHuggingFace(
        fmt::format("it has no architectures, and model_type {} is none of theirs", shown), config);
  }
  throw RefusedClass(fmt::format("(absent; model_type is {})", shown), config);
}

const ModelClass& ClassOf(const json& config, HfFields* fields) {
  const json* architectures = fields->Find("architectures");
  if (architectures == nullptr) return ClassByModelType(config, fields);
  const std::string name = FirstArchitecture(*architectures);
  for (const ModelClass& c : kClasses) {
    if (name != c.name) continue;
    const std::optional<std::string> type = fields->Text("model_type");
    if (type && *type != c.model_type) {
      throw InputError(fmt::format("model_type: {} is not that of {}", ShortText(*type), name),
                       fmt::format("write {}, or the class that belongs to it", c.model_type));
    }
    return c;
  }
  throw RefusedClass(ShortText(name), config);
}

// An activation takes one pass over the data, whichever it is; but one that nobody knows may be
// more than that.
std::string ReadActivation(const HfFields& fields) {
  constexpr std::array kKnown{
      "silu",       "swish", "gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh",
      "quick_gelu", "relu"};
  std::string activation;
  for (const char* key : {"hidden_act", "hidden_activation", "activation_function"}) {
    const std::optional<std::string> name = fields.Text(key);
    if (!name) continue;
    if (std::find(kKnown.begin(), kKnown.end(), *name) == kKnown.end()) {
      throw InputError(fmt::format("{}: {} is not understood", key, ShortText(*name)),
                       fmt::format("there are {}", fmt::join(kKnown, ", ")));
    }
    activation = *name;
  }
  return activation;
}

void CheckSizes(const Architecture& a) {
  if (a.heads % a.kv_heads != 0) {
    throw InputError(fmt::format("num_key_value_heads: {} does not divide num_attention_heads = {}",
                                 a.kv_heads, a.heads),
                     "each key head serves the same number of query heads");
  }
  if (a.q_width() > kMaxModelFfn) {
    throw InputError(fmt::format("head_dim: {} heads of {} are too wide", a.heads, a.head_dim),
                     fmt::format("keep their product at {} or less", kMaxModelFfn));
  }
  if (CountParameters(a).total() > kMaxModelParameters) {
    throw InputError(fmt::format("num_hidden_layers: {} parameters are beyond any machine",
                                 CountParameters(a).total()),
                     fmt::format("keep them at {} or less", kMaxModelParameters));
  }
}

Architecture Read(const json& config) {
  HfFields fields(config);
  const ModelClass& model_class = ClassOf(config, &fields);
  if (!PartsNotUnderstood(config).empty()) throw RefusedClass(model_class.name, config);
  std::string activation = ReadActivation(fields);
  Architecture a = model_class.read(&fields);
  a.activation = std::move(activation);
  a.name = model_class.name;
  CheckSizes(a);
  a.assumptions = fields.TakeAssumptions();
  return a;
}

}  // namespace

Architecture ParseHfConfig(std::string_view text, std::string_view file) {
  try {
    return Read(ParseConfigText(text));
  } catch (const InputError& error) {
    throw error.At(file);
  }
}

namespace {

std::string ReadConfig(const std::filesystem::path& path) {
  try {
    return ReadFile(path, kMaxConfigBytes);
  } catch (const InputError& error) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) throw;  // whoever named it knows from where
    throw InputError(error.problem(), "give the model's config.json, not its weights or a folder");
  }
}

}  // namespace

Architecture LoadHfConfig(const std::filesystem::path& path) {
  return ParseHfConfig(ReadConfig(path), path.string());
}

std::vector<std::string> UnderstoodClasses() {
  std::vector<std::string> names;
  for (const ModelClass& c : kClasses) names.emplace_back(c.name);
  return names;
}

}  // namespace spiritlevel
