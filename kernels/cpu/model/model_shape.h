// ModelShape: a decoder-only transformer, and the runs of its layers that are stages.
//
//   x = embedding[token]                                          (dropout)
//   each layer:  x = x + attention(norm(x))                       (dropout on what is added)
//                x = x + mlp(norm(x))                             (dropout on what is added)
//   logits = norm(x) head^T, loss = cross-entropy of the next token
//
// q and k are rotated (Su et al. 2021, section 3.2.2). A mixture of experts replaces each layer's
// MLP by `experts` gated ones: each token goes to the `top_k` to which the router's softmax gives
// most, and gets their results times these probabilities (Fedus, Zoph and Shazeer 2022, section
// 2.1). An expert takes CapacityOf() tokens of a micro-batch: first choices before second ones,
// each in the order of tokens; what is left over passes by the MLP.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/model/tensor.h"

namespace spiritlevel::cpu {

enum class NormKind : uint8_t { kRms, kLayer };
enum class MlpKind : uint8_t { kSwiglu, kGelu, kMixtureOfExperts };

struct ModelShape {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;      // divides heads
  int64_t head_dim = 0;      // even
  int64_t intermediate = 0;  // of the MLP, or of each expert
  int64_t vocabulary = 0;
  int64_t sequence = 0;
  int64_t sequences = 1;  // in a micro-batch

  NormKind norm = NormKind::kRms;
  float norm_epsilon = 1e-5f;
  MlpKind mlp = MlpKind::kSwiglu;
  int64_t experts = 0;  // of a mixture
  int64_t top_k = 0;
  double capacity_factor = 1.25;
  bool biases = false;  // of attention and a dense MLP; experts, router and head have none
  double rope_theta = 10'000;
  double dropout = 0;  // probability
  bool tied_embeddings = false;
  // Of parameters, activations and their gradients. Sums, statistics, logits and the gradients of
  // parameters are fp32 always.
  DType storage = DType::kFloat32;
  bool recompute = false;  // F keeps only its stage's input

  uint64_t seed = 1;  // of parameters and dropout

  int64_t tokens() const { return sequence * sequences; }
  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  // Of the product that comes before the activation.
  int64_t up_width() const { return mlp == MlpKind::kGelu ? intermediate : 2 * intermediate; }
  bool is_mixture() const { return mlp == MlpKind::kMixtureOfExperts; }
};

// Throws InputError, naming the field, unless the model can be run.
void CheckModelShape(const ModelShape& shape);

// Tokens of a micro-batch that one expert takes: ceil(factor * tokens * top_k / experts), at most
// all of them.
int64_t CapacityOf(const ModelShape& shape);

// A run of layers. The first of all stages has the embedding, the last the final norm, the head and
// the loss.
struct StageRange {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool embedding = false;
  bool head = false;

  // Blocks are numbered in model order: the embedding, the layers, the head.
  int num_blocks() const { return static_cast<int>(layers) + embedding + head; }

  friend bool operator==(const StageRange&, const StageRange&) = default;
};

// Throws InputError unless it is a run of the model's layers with something in it; an embedding
// is before layer 0 only, a head behind the last only.
void CheckStageRange(const ModelShape& shape, const StageRange& range);

// `stages` runs of layers as equal as can be, the first ones longer. Throws InputError if a stage
// would be empty.
std::vector<StageRange> EvenStages(const ModelShape& shape, int stages);

struct ParameterInfo {
  enum class Kind : uint8_t { kWeight, kTable, kOnes, kZeros };  // how it is initialised

  std::string name;  // "layers.3.attention.qkv.weight"
  int64_t rows = 0;
  int64_t cols = 0;
  Kind kind = Kind::kWeight;
  int64_t fan_in = 0;
  int block = 0;               // of its stage
  std::string begins_as = "";  // with the bits of the parameter of this name

  int64_t size() const { return rows * cols; }
};

// Of a stage, in model order; a layer's are
//   attention.norm.weight [.bias]   attention.qkv.weight [.bias]   attention.output.weight [.bias]
//   mlp.norm.weight [.bias]         mlp.up.weight [.bias]          mlp.down.weight [.bias]
// where a gated MLP's `up` holds gate and up side by side. A mixture of experts has
//   mlp.router.weight, then mlp.experts.N.up.weight and mlp.experts.N.down.weight for each N.
// Before them "embedding.weight", behind them "head.norm.weight" [.bias] and "head.weight", both
// [vocabulary, hidden]. With tied embeddings "head.weight" is a copy of "embedding.weight": it
// begins with the same bits, and who runs the stages adds the two gradients up in each step.
std::vector<ParameterInfo> ParametersOf(const ModelShape& shape, const StageRange& range);

}  // namespace spiritlevel::cpu
