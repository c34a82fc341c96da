#include "kernels/cpu/model/model_shape.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spiritlevel::cpu {
namespace {

// Larger ones are typing errors; the bound keeps every product of two sizes in an int64.
constexpr int64_t kMost = 1 << 24;

void RequireSize(int64_t size, const char* field, const char* way_out = "") {
  if (size >= 1 && size <= kMost) return;
  throw InputError(std::string(field) + ": " + std::to_string(size) + " is not from 1 to " +
                       std::to_string(kMost),
                   way_out);
}

void Require(bool fulfilled, std::string what, std::string way_out) {
  if (!fulfilled) throw InputError(std::move(what), std::move(way_out));
}

void CheckMixture(const ModelShape& s) {
  if (!s.is_mixture()) {
    Require(s.experts == 0 && s.top_k == 0, "experts: only a mixture of experts has some",
            "leave experts and top_k out, or choose a mixture of experts");
    return;
  }
  RequireSize(s.experts, "experts");
  RequireSize(s.top_k, "top_k");
  Require(s.top_k <= s.experts, "top_k: a token cannot go to more experts than there are",
          "use 1 to " + std::to_string(s.experts));
  Require(std::isfinite(s.capacity_factor) && s.capacity_factor > 0 && s.capacity_factor <= 1e6,
          "capacity_factor: not a positive number",
          "1 is room for as many tokens as an expert gets on the average");
}

void CheckNumbers(const ModelShape& s) {
  Require(std::isfinite(s.norm_epsilon) && s.norm_epsilon > 0,
          "norm_epsilon: not a positive number", "1e-5 is usual");
  Require(std::isfinite(s.rope_theta) && s.rope_theta > 1, "rope_theta: not a number above 1",
          "10000 is usual");
  Require(s.dropout >= 0 && s.dropout < 1, "dropout: not a probability below 1", "0 for none");
}

class ParameterList {
 public:
  explicit ParameterList(const ModelShape& shape) : shape_(shape) {}

  void Norm(const std::string& name, int block) {
    Add({.name = name + ".weight",
         .rows = 1,
         .cols = shape_.hidden,
         .kind = ParameterInfo::Kind::kOnes,
         .block = block});
    if (shape_.norm == NormKind::kLayer) Bias(name, shape_.hidden, block);
  }
  void Linear(const std::string& name, int64_t in, int64_t out, int block) {
    Add({.name = name + ".weight", .rows = in, .cols = out, .fan_in = in, .block = block});
  }
  void Bias(const std::string& name, int64_t out, int block) {
    Add({.name = name + ".bias",
         .rows = 1,
         .cols = out,
         .kind = ParameterInfo::Kind::kZeros,
         .block = block});
  }
  void LinearWithBias(const std::string& name, int64_t in, int64_t out, int block) {
    Linear(name, in, out, block);
    if (shape_.biases) Bias(name, out, block);
  }
  void Table(const std::string& name, int block, std::string begins_as = "") {
    Add({.name = name + ".weight",
         .rows = shape_.vocabulary,
         .cols = shape_.hidden,
         .kind = ParameterInfo::Kind::kTable,
         .block = block,
         .begins_as = std::move(begins_as)});
  }
  void Layer(int64_t layer, int block) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    Norm(name + "attention.norm", block);
    LinearWithBias(name + "attention.qkv", shape_.hidden, shape_.qkv_width(), block);
    LinearWithBias(name + "attention.output", shape_.q_width(), shape_.hidden, block);
    Norm(name + "mlp.norm", block);
    if (shape_.is_mixture()) {
      Experts(name, block);
      return;
    }
    LinearWithBias(name + "mlp.up", shape_.hidden, shape_.up_width(), block);
    LinearWithBias(name + "mlp.down", shape_.intermediate, shape_.hidden, block);
  }
  std::vector<ParameterInfo> Take() { return std::move(infos_); }

 private:
  void Experts(const std::string& layer, int block) {
    Linear(layer + "mlp.router", shape_.hidden, shape_.experts, block);
    for (int64_t e = 0; e < shape_.experts; ++e) {
      const std::string expert = layer + "mlp.experts." + std::to_string(e);
      Linear(expert + ".up", shape_.hidden, shape_.up_width(), block);
      Linear(expert + ".down", shape_.intermediate, shape_.hidden, block);
    }
  }
  void Add(ParameterInfo info) { infos_.push_back(std::move(info)); }

  const ModelShape& shape_;
  std::vector<ParameterInfo> infos_;
};

}  // namespace

void CheckModelShape(const ModelShape& s) {
  RequireSize(s.layers, "layers");
  RequireSize(s.hidden, "hidden");
  RequireSize(s.heads, "heads");
  RequireSize(s.kv_heads, "kv_heads", "use the number of heads where keys have as many");
  RequireSize(s.head_dim, "head_dim");
  RequireSize(s.intermediate, "intermediate");
  RequireSize(s.vocabulary, "vocabulary");
  RequireSize(s.sequence, "sequence");
  RequireSize(s.sequences, "sequences");
  Require(s.heads % s.kv_heads == 0,
          "kv_heads: " + std::to_string(s.kv_heads) + " does not divide the " +
              std::to_string(s.heads) + " heads",
          "each key head serves as many query heads as the next");
  Require(s.head_dim % 2 == 0, "head_dim: " + std::to_string(s.head_dim) + " is odd",
          "its elements are rotated in pairs");
  for (const int64_t width : {s.tokens(), s.qkv_width(), s.up_width()}) {
    RequireSize(width, "tokens of a micro-batch, heads * head_dim, intermediate");
  }
  Require(s.storage == DType::kFloat32 || s.storage == DType::kBFloat16,
          "storage: parameters are stored as float32 or bfloat16", "");
  CheckMixture(s);
  CheckNumbers(s);
}

int64_t CapacityOf(const ModelShape& s) {
  const auto choices = static_cast<double>(s.tokens() * s.top_k);
  const double fair = s.capacity_factor * choices / static_cast<double>(s.experts);
  // One token sends an expert one of its choices at most.
  return std::clamp(static_cast<int64_t>(std::ceil(std::min(fair, choices))), int64_t{1},
                    s.tokens());
}

void CheckStageRange(const ModelShape& s, const StageRange& r) {
  Require(r.first_layer >= 0 && r.layers >= 0 && r.first_layer <= s.layers - r.layers,
          "stage: layers " + std::to_string(r.first_layer) + " to " +
              std::to_string(r.first_layer + r.layers - 1) + " are not all there",
          "the model has " + std::to_string(s.layers));
  Require(r.num_blocks() > 0, "stage: nothing is in it", "give it a layer");
  Require(!r.embedding || r.first_layer == 0, "stage: the embedding is not before layer 0",
          "put it on the first stage");
  Require(!r.head || r.first_layer + r.layers == s.layers,
          "stage: the head is not behind the last layer", "put it on the last stage");
}

std::vector<StageRange> EvenStages(const ModelShape& s, int stages) {
  Require(stages >= 1 && stages <= s.layers,
          "stages: " + std::to_string(stages) + " of " + std::to_string(s.layers) + " layers",
          "use 1 to " + std::to_string(s.layers));
  std::vector<StageRange> ranges;
  int64_t next = 0;
  for (int i = 0; i < stages; ++i) {
    const int64_t layers = s.layers / stages + (i < s.layers % stages ? 1 : 0);
    ranges.push_back(
        {.first_layer = next, .layers = layers, .embedding = i == 0, .head = i == stages - 1});
    next += layers;
  }
  return ranges;
}

std::vector<ParameterInfo> ParametersOf(const ModelShape& shape, const StageRange& range) {
  ParameterList list(shape);
  int block = 0;
  if (range.embedding) list.Table("embedding", block++);
  for (int64_t i = 0; i < range.layers; ++i) list.Layer(range.first_layer + i, block++);
  if (range.head) {
    list.Norm("head.norm", block);
    list.Table("head", block, shape.tied_embeddings ? "embedding.weight" : "");
  }
  return list.Take();
}

}  // namespace spiritlevel::cpu
