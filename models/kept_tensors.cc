#include "models/kept_tensors.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace spiritlevel {
namespace {

constexpr Bytes kFloat = 4;  // statistics and log-sum-exps are float32 whatever the dtype
constexpr Bytes kTokenId = 8;

class TensorList {
 public:
  TensorList(const Architecture& a, const BlockShape& shape)
      : a_(a), tokens_(shape.tokens()), element_(shape.element()), split_(shape.norm_grads_in_w) {}

  // `width` elements of the dtype for each token.
  void FromF(const char* name, int64_t width, NeededBy needed_by) {
    Add(name, tokens_ * width * element_, Pass::kF, needed_by);
  }
  void FromFInBytes(const char* name, Bytes per_token, NeededBy needed_by) {
    Add(name, tokens_ * per_token, Pass::kF, needed_by);
  }
  // Gradients of outputs, without which there is no gradient of weights.
  void FromB(std::string name, int64_t width) {
    Add(std::move(name), tokens_ * width * element_, Pass::kB, NeededBy::kW);
  }
  void Mask(const char* name, bool dropout, int64_t width) {
    if (dropout) FromFInBytes(name, width, NeededBy::kB);
  }

  // What a norm leaves: its input, and mean (LayerNorm only) and scale of each row. Where its own
  // parameters wait for W, so do these and the gradient of its output.
  void NormOf(const char* input, const char* statistics, int64_t rows, int64_t width) {
    FromF(input, rows * width, norm_input_needed_by());
    NormOfKeptInput(input, statistics, rows, width);
  }
  void NormOfKeptInput(const char* input, const char* statistics, int64_t rows, int64_t width) {
    StatisticsOf(statistics, rows);
    if (split_) FromB(fmt::format("gradient after the norm of {}", input), rows * width);
  }

  std::vector<KeptTensor> Take() { return std::move(tensors_); }

 private:
  void StatisticsOf(const char* name, int64_t rows) {
    const Bytes each = a_.norm == NormKind::kLayer ? 2 * kFloat : kFloat;
    FromFInBytes(name, rows * each, norm_input_needed_by());
  }
  NeededBy norm_input_needed_by() const { return split_ ? NeededBy::kBoth : NeededBy::kB; }

  void Add(std::string name, Bytes bytes, Pass made_by, NeededBy needed_by) {
    tensors_.push_back({std::move(name), bytes, made_by, needed_by});
  }

  const Architecture& a_;
  int64_t tokens_;
  Bytes element_;
  bool split_;
  std::vector<KeptTensor> tensors_;
};

void AddAttentionMatrix(const Architecture& a, const BlockShape& shape, TensorList* list) {
  const int64_t row_of_keys = a.heads * shape.sequence;
  if (a.attention_softcap) list->FromF("capped attention scores", row_of_keys, NeededBy::kB);
  list->FromF("attention probabilities", row_of_keys, NeededBy::kB);
  if (!a.attention_dropout) return;
  list->Mask("attention dropout mask", true, row_of_keys);
  list->FromF("attention probabilities after dropout", row_of_keys, NeededBy::kB);
}

void AddAttention(const Architecture& a, const BlockShape& shape, TensorList* list) {
  list->NormOf("layer input", "attention norm statistics", 1, a.hidden);
  list->FromF("attention norm output", a.hidden, NeededBy::kW);
  if (a.qk_norms) {
    list->NormOf("q and k before their norms", "q and k norm statistics", a.heads + a.kv_heads,
                 a.head_dim);
  }
  list->FromF("q, k, v", a.qkv_width(), NeededBy::kB);
  if (shape.stored_attention) {
    AddAttentionMatrix(a, shape, list);
    list->FromF("attention result", a.q_width(), NeededBy::kW);
  } else {
    list->FromFInBytes("log-sum-exp of attention", a.heads * kFloat, NeededBy::kB);
    // Its product with its own gradient stands in for the probabilities that were not kept.
    list->FromF("attention result", a.q_width(), NeededBy::kBoth);
  }
  if (a.post_norms) {
    list->NormOf("attention output", "statistics of the norm after attention", 1, a.hidden);
  }
  list->Mask("attention output dropout mask", a.residual_dropout, a.hidden);
}

void AddMlp(const Architecture& a, TensorList* list) {
  if (a.parallel_residual) {
    list->NormOfKeptInput("layer input for the MLP", "MLP norm statistics", 1, a.hidden);
  } else {
    list->NormOf("MLP residual input", "MLP norm statistics", 1, a.hidden);
  }
  list->FromF("MLP norm output", a.hidden, NeededBy::kW);
  list->FromF(a.gated_mlp ? "gate and up" : "up", a.gated_mlp ? 2 * a.ffn : a.ffn, NeededBy::kB);
  list->FromF("down projection input", a.ffn, NeededBy::kW);
  if (a.post_norms) {
    list->NormOf("MLP output", "statistics of the norm after MLP", 1, a.hidden);
  }
  list->Mask("MLP output dropout mask", a.residual_dropout, a.hidden);
}

void AddGradients(const Architecture& a, TensorList* list) {
  list->FromB("gradient of q, k, v", a.qkv_width());
  list->FromB(a.gated_mlp ? "gradient of gate and up" : "gradient of up",
              a.gated_mlp ? 2 * a.ffn : a.ffn);
  // Both branches of a parallel layer start from the gradient of the layer's output, unless a
  // dropout stands between.
  if (a.parallel_residual && !a.residual_dropout) {
    list->FromB("gradient of the layer output", a.hidden);
    return;
  }
  list->FromB("gradient of the attention output", a.hidden);
  list->FromB("gradient of the MLP output", a.hidden);
}

template <class Wanted>
Bytes SumOf(const BlockWork& work, Wanted&& wanted) {
  Bytes sum = 0;
  for (const KeptTensor& tensor : work.kept) sum += wanted(tensor) ? tensor.bytes : 0;
  return sum;
}

}  // namespace

std::vector<KeptTensor> LayerTensorsKept(const Architecture& a, const BlockShape& shape) {
  TensorList list(a, shape);
  AddAttention(a, shape, &list);
  AddMlp(a, &list);
  AddGradients(a, &list);
  return list.Take();
}

std::vector<KeptTensor> EmbeddingTensorsKept(const Architecture& a, const BlockShape& shape) {
  TensorList list(a, shape);
  list.FromFInBytes("token ids", kTokenId, NeededBy::kW);
  list.Mask("embedding dropout mask", a.embedding_dropout, a.hidden);
  list.FromB("gradient of the embedding output", a.hidden);
  return list.Take();
}

std::vector<KeptTensor> HeadTensorsKept(const Architecture& a, const BlockShape& shape) {
  TensorList list(a, shape);
  list.NormOf("final norm input", "final norm statistics", 1, a.hidden);
  list.FromF("head input", a.hidden, NeededBy::kW);
  if (a.final_softcap) list.FromF("capped logits", a.vocabulary, NeededBy::kB);
  list.FromFInBytes("log-probabilities (float32)", a.vocabulary * kFloat, NeededBy::kB);
  list.FromFInBytes("labels", kTokenId, NeededBy::kB);
  list.FromB("gradient of the logits", a.vocabulary);
  return list.Take();
}

Bytes KeptAfterForward(const BlockWork& work) {
  return SumOf(work, [](const KeptTensor& k) { return k.made_by == Pass::kF; });
}

Bytes KeptAfterInputGrad(const BlockWork& work) {
  return SumOf(work, [](const KeptTensor& k) { return k.needed_by != NeededBy::kB; });
}

Bytes GradientsForW(const BlockWork& work) {
  return SumOf(work, [](const KeptTensor& k) { return k.made_by == Pass::kB; });
}

Bytes LayerInputBytes(const Architecture& a, const BlockShape& shape) {
  return shape.tokens() * a.hidden * shape.element();
}

}  // namespace spiritlevel
