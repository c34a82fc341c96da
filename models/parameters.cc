#include "models/parameters.h"

namespace spiritlevel {
namespace {

class TensorList {
 public:
  void Projection(const char* name, int64_t in, int64_t out, bool bias) {
    tensors_.push_back({name, in * out});
    if (bias) tensors_.push_back({std::string(name) + " bias", out});
  }
  void Norm(const char* name, int64_t width, bool bias) {
    tensors_.push_back({name, width});
    if (bias) tensors_.push_back({std::string(name) + " bias", width});
  }
  std::vector<TensorCount> Take() { return std::move(tensors_); }

 private:
  std::vector<TensorCount> tensors_;
};

std::vector<TensorCount> LayerTensors(const Architecture& a) {
  TensorList list;
  list.Norm("attention norm", a.hidden, a.norm_bias);
  list.Projection("q projection", a.hidden, a.q_width(), a.qkv_bias);
  list.Projection("k projection", a.hidden, a.kv_width(), a.qkv_bias);
  list.Projection("v projection", a.hidden, a.kv_width(), a.qkv_bias);
  if (a.qk_norms) {
    list.Norm("q norm", a.head_dim, a.norm_bias);
    list.Norm("k norm", a.head_dim, a.norm_bias);
  }
  list.Projection("attention output", a.q_width(), a.hidden, a.attention_output_bias);
  if (a.post_norms) list.Norm("norm after attention", a.hidden, a.norm_bias);
  list.Norm("MLP norm", a.hidden, a.norm_bias);
  if (a.gated_mlp) list.Projection("gate projection", a.hidden, a.ffn, a.mlp_bias);
  list.Projection("up projection", a.hidden, a.ffn, a.mlp_bias);
  list.Projection("down projection", a.ffn, a.hidden, a.mlp_bias);
  if (a.post_norms) list.Norm("norm after MLP", a.hidden, a.norm_bias);
  return list.Take();
}

}  // namespace

int64_t ParameterCount::per_layer() const {
  int64_t sum = 0;
  for (const TensorCount& tensor : layer) sum += tensor.parameters;
  return sum;
}

int64_t ParameterCount::total() const {
  return embedding + positions + layers * per_layer() + final_norm + head;
}

ParameterCount CountParameters(const Architecture& a) {
  ParameterCount count;
  count.layers = a.layers;
  count.embedding = a.vocabulary * a.hidden;
  count.positions = a.learned_positions ? a.max_positions * a.hidden : 0;
  count.layer = LayerTensors(a);
  count.final_norm = a.norm_bias ? 2 * a.hidden : a.hidden;
  count.head = a.tied_embeddings ? 0 : a.vocabulary * a.hidden;
  return count;
}

}  // namespace spiritlevel
