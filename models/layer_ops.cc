#include "models/layer_ops.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "base/check.h"
#include "models/kept_tensors.h"

namespace spiritlevel {
namespace {

// Writes the kernels of a block: each method adds one operation of the model to all three passes.
// B runs them from last to first, so what is added to it is put in front at the end.
class BlockWriter {
 public:
  BlockWriter(const Architecture& a, const BlockShape& shape) : a_(a), shape_(shape) {}

  // Products of one input with weights that lie side by side are one product.
  void Projection(const char* name, int64_t in, int64_t out) {
    const int64_t t = shape_.tokens();
    Forward(name, Gemm{.m = t, .n = out, .k = in, .use = Gemm::Use::kForward});
    InputGrad(name, Gemm{.m = t, .n = in, .k = out, .use = Gemm::Use::kInputGrad});
    WeightGrad(name, Gemm{.m = in, .n = out, .k = t, .use = Gemm::Use::kWeightGrad});
  }

  void Normalise(const char* name, int64_t rows, int64_t width) {
    const auto part = [&](Norm::Part p) {
      return Norm{.rows = rows, .width = width, .part = p, .element = shape_.element()};
    };
    Forward(name, part(Norm::Part::kForward));
    if (shape_.norm_grads_in_w) {
      InputGrad(name, part(Norm::Part::kInputGrad));
      WeightGrad(name, part(Norm::Part::kWeightGrad));
    } else {
      InputGrad(name, part(Norm::Part::kBackward));
    }
  }

  // `forward` and `backward`: elements read and written for each token; `extra`: bytes on top in
  // both.
  void Stream(const char* name, int64_t forward, int64_t backward, Bytes extra = 0) {
    const Bytes each = shape_.tokens() * shape_.element();
    Forward(name, Elementwise{each * forward + extra});
    if (backward > 0) InputGrad(name, Elementwise{each * backward + extra});
  }

  void Attend(int64_t window) {
    Attention attention{.batch = shape_.micro_batch,
                        .heads = a_.heads,
                        .kv_heads = a_.kv_heads,
                        .sequence = shape_.sequence,
                        .head_dim = a_.head_dim,
                        .causal = true,
                        .window = window < shape_.sequence ? window : 0,
                        .backward = false,
                        .element = shape_.element()};
    Forward("attention", attention);
    attention.backward = true;
    InputGrad("attention", attention);
    if (!shape_.stored_attention) return;
    // Scores written, read by the softmax, probabilities written, read by the product.
    const int64_t rows_of_keys = a_.heads * shape_.sequence;
    const Bytes masks = a_.attention_dropout ? rows_of_keys * shape_.tokens() : 0;
    Stream("attention matrix", 4 * rows_of_keys, 4 * rows_of_keys, masks);
  }

  void Forward(const char* name, Kernel kernel) { work_.forward.push_back({name, kernel}); }
  void InputGrad(const char* name, Kernel kernel) { backwards_.push_back({name, kernel}); }
  void WeightGrad(const char* name, Kernel kernel) { work_.weight_grad.push_back({name, kernel}); }

  BlockWork Take(std::vector<KeptTensor> kept) {
    work_.input_grad.assign(backwards_.rbegin(), backwards_.rend());
    work_.kept = std::move(kept);
    return std::move(work_);
  }

  Bytes mask_bytes(bool dropout) const { return dropout ? shape_.tokens() * a_.hidden : 0; }

 private:
  const Architecture& a_;
  const BlockShape& shape_;
  BlockWork work_;
  std::vector<NamedKernel> backwards_;
};

void WriteAttention(const Architecture& a, const BlockShape& shape, int64_t window,
                    BlockWriter* block) {
  const int64_t t = shape.tokens();
  block->Normalise("attention norm", t, a.hidden);
  block->Projection("q, k, v projection", a.hidden, a.qkv_width());
  if (a.qk_norms) block->Normalise("q and k norms", t * (a.heads + a.kv_heads), a.head_dim);
  if (!a.learned_positions) {
    const int64_t rotated = a.q_width() + a.kv_width();
    block->Stream("rotation of q and k", 2 * rotated, 2 * rotated);
  }
  block->Attend(window);
  block->Projection("attention output", a.q_width(), a.hidden);
  if (a.post_norms) block->Normalise("norm after attention", t, a.hidden);
}

void WriteMlp(const Architecture& a, const BlockShape& shape, BlockWriter* block) {
  const int64_t t = shape.tokens();
  block->Normalise("MLP norm", t, a.hidden);
  block->Projection(a.gated_mlp ? "gate and up projection" : "up projection", a.hidden,
                    a.gated_mlp ? 2 * a.ffn : a.ffn);
  // gate, up -> product, and back product's gradient, gate, up -> two gradients.
  if (a.gated_mlp) {
    block->Stream("activation", 3 * a.ffn, 5 * a.ffn);
  } else {
    block->Stream("activation", 2 * a.ffn, 3 * a.ffn);
  }
  block->Projection("down projection", a.ffn, a.hidden);
  if (a.post_norms) block->Normalise("norm after MLP", t, a.hidden);
}

}  // namespace

const std::vector<NamedKernel>& BlockWork::kernels(Pass pass) const {
  SPIRITLEVEL_CHECK(pass != Pass::kBW, "a fused backward is listed as its two halves");
  return pass == Pass::kF ? forward : pass == Pass::kB ? input_grad : weight_grad;
}

BlockWork LayerWork(const Architecture& a, const BlockShape& shape, int64_t layer) {
  BlockWriter block(a, shape);
  // In B the gradients of a branch and of the way around it are added.
  const Bytes mask = block.mask_bytes(a.residual_dropout);
  WriteAttention(a, shape, a.window(layer), &block);
  if (!a.parallel_residual) block.Stream("residual addition", 3 * a.hidden, 3 * a.hidden, mask);
  WriteMlp(a, shape, &block);
  if (a.parallel_residual) {
    block.Stream("residual addition", 4 * a.hidden, 4 * a.hidden, 2 * mask);
  } else {
    block.Stream("residual addition", 3 * a.hidden, 3 * a.hidden, mask);
  }
  return block.Take(LayerTensorsKept(a, shape));
}

BlockWork EmbeddingWork(const Architecture& a, const BlockShape& shape) {
  BlockWriter block(a, shape);
  Embedding embedding{
      .tokens = shape.tokens(), .width = a.hidden, .backward = false, .element = shape.element()};
  block.Forward("embedding", embedding);
  embedding.backward = true;
  block.WeightGrad("embedding", embedding);
  if (a.learned_positions) {
    block.Forward("positions", Elementwise{3 * LayerInputBytes(a, shape)});
    block.WeightGrad("positions", Elementwise{2 * LayerInputBytes(a, shape)});
  }
  if (a.embedding_dropout) {
    block.Stream("embedding dropout", 2 * a.hidden, 2 * a.hidden, block.mask_bytes(true));
  }
  return block.Take(EmbeddingTensorsKept(a, shape));
}

BlockWork HeadWork(const Architecture& a, const BlockShape& shape) {
  BlockWriter block(a, shape);
  block.Normalise("final norm", shape.tokens(), a.hidden);
  block.Projection("head", a.hidden, a.vocabulary);
  if (a.final_softcap) block.Stream("logit soft cap", 2 * a.vocabulary, 3 * a.vocabulary);
  Loss loss{.tokens = shape.tokens(),
            .vocabulary = a.vocabulary,
            .backward = false,
            .element = shape.element()};
  block.Forward("loss", loss);
  loss.backward = true;
  block.InputGrad("loss", loss);
  return block.Take(HeadTensorsKept(a, shape));
}

double FlopsOf(const std::vector<NamedKernel>& kernels) {
  return std::accumulate(kernels.begin(), kernels.end(), 0.0,
                         [](double sum, const NamedKernel& k) { return sum + Flops(k.kernel); });
}

void CheckShape(const Architecture& a, const BlockShape& shape) {
  if (shape.sequence < 1 || shape.sequence > kMaxModelPositions) {
    throw InputError(
        fmt::format("sequence: {} is not between 1 and {}", shape.sequence, kMaxModelPositions),
        "use the number of tokens in a sequence");
  }
  constexpr int64_t kMaxMicroBatch = 1 << 20;
  if (shape.micro_batch < 1 || shape.micro_batch > kMaxMicroBatch) {
    throw InputError(
        fmt::format("micro-batch: {} is not between 1 and {}", shape.micro_batch, kMaxMicroBatch),
        "use the number of sequences in a micro-batch");
  }
  if (a.learned_positions && shape.sequence > a.max_positions) {
    throw InputError(fmt::format("sequence: {} is more than the {} positions that the model has",
                                 shape.sequence, a.max_positions),
                     fmt::format("use {} or less", a.max_positions));
  }
  // An upper bound on the elements that all layers and the head keep and touch for each token.
  const double widths = 16.0 * static_cast<double>(a.hidden + a.qkv_width() + a.ffn);
  const double matrix =
      shape.stored_attention ? 10.0 * static_cast<double>(a.heads * shape.sequence) : 0;
  const double per_token = static_cast<double>(a.layers) * (widths + matrix) +
                           16.0 * static_cast<double>(a.hidden + a.vocabulary);
  const double tokens =
      static_cast<double>(shape.sequence) * static_cast<double>(shape.micro_batch);
  if (4 * tokens * per_token > static_cast<double>(kMaxBytes)) {
    throw InputError(fmt::format("sequence: micro-batches of {} x {} tokens fit no machine",
                                 shape.micro_batch, shape.sequence),
                     "use shorter sequences or fewer in a micro-batch");
  }
}

}  // namespace spiritlevel
