// Architecture: a dense decoder, as much of it as its parameters, passes and memory depend on.
//
// Every layer is the same but for the window of its attention. hf_config.h reads one from a
// Hugging Face config.json; parameters.h counts it; layer_ops.h lists its work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spiritlevel {

enum class NormKind : uint8_t { kRms, kLayer };

struct Architecture {
  std::string name;  // the class: "LlamaForCausalLM"

  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // fewer than heads: grouped-query attention
  int64_t head_dim = 0;  // heads * head_dim need not be `hidden`
  int64_t ffn = 0;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;  // the longest sequence; 0: unknown

  bool learned_positions = false;  // a table; else q and k are rotated
  bool tied_embeddings = false;    // the head is the embedding
  bool gated_mlp = true;           // down(act(gate x) * up x); else down(act(up x))
  std::string activation;          // of the MLP, as the config names it: "silu"; empty: it does not
  bool parallel_residual = false;  // x + attention(norm x) + mlp(norm x)

  NormKind norm = NormKind::kRms;
  bool norm_bias = false;
  bool post_norms = false;  // two more norms a layer, on what attention and MLP give
  bool qk_norms = false;    // of head_dim elements each

  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;

  // By layer, how many tokens its attention sees back; 0: all. Empty: 0 for every layer.
  std::vector<int64_t> windows;
  bool attention_softcap = false;
  bool final_softcap = false;

  bool embedding_dropout = false;
  bool residual_dropout = false;   // on what attention and MLP give
  bool attention_dropout = false;  // on the attention's probabilities

  // What the config did not say, and what was taken instead; one line each.
  std::vector<std::string> assumptions;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  int norms_per_layer() const { return post_norms ? 4 : 2; }

  friend bool operator==(const Architecture&, const Architecture&) = default;
};

// Larger ones are typing errors; the bounds keep every count and every product of ours in int64.
inline constexpr int64_t kMaxModelLayers = 10'000;
inline constexpr int64_t kMaxModelWidth = 1 << 20;  // hidden, head_dim
inline constexpr int64_t kMaxModelHeads = 1 << 16;
inline constexpr int64_t kMaxModelFfn = 1 << 22;
inline constexpr int64_t kMaxModelVocabulary = 1 << 24;
inline constexpr int64_t kMaxModelPositions = 1 << 28;
inline constexpr int64_t kMaxModelParameters = int64_t{1} << 45;

}  // namespace spiritlevel
