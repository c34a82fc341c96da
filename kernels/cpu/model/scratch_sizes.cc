#include "kernels/cpu/model/scratch_sizes.h"

#include <algorithm>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/model/scratch.h"

namespace spiritlevel::cpu {
namespace {

// The terms of each sum are the pieces that one frame of block_parts.cc, attention_block.cc,
// mlp_block.cc, mixture_block.cc or end_blocks.cc takes.
class Counter {
 public:
  explicit Counter(const ModelShape& s)
      : s_(s), bf16_(s.storage == DType::kBFloat16), x_(Wide(s.tokens(), s.hidden)) {}

  Bytes LayerForward() const {
    const Bytes qkv = x_ + Weights(s_.hidden, s_.qkv_width()) + qkv_();
    const Bytes attend = qkv_() + out_() + attention_room();
    const Bytes output = fp32_x() + out_() + Weights(s_.q_width(), s_.hidden);
    return std::max(
        {norm(), qkv, attend, output, s_.is_mixture() ? MixtureForward() : MlpForward()});
  }

  Bytes LayerInputGrad() const {
    const Bytes attend = ScratchBytes(s_.tokens() * s_.q_width()) + x_ +
                         Wide(s_.q_width(), s_.hidden) + qkv_() + qkv_() + out_() +
                         attention_room();
    const Bytes qkv = x_ + qkv_() + Wide(s_.hidden, s_.qkv_width());
    return std::max(
        {attend, qkv, norm_back(), drop(), s_.is_mixture() ? MixtureInputGrad() : MlpInputGrad()});
  }

  Bytes LayerWeightGrad() const {
    const Bytes attention = std::max(x_ + qkv_(), out_() + x_);
    return std::max({x_ + x_, attention, s_.is_mixture() ? MixtureWeightGrad() : MlpWeightGrad()});
  }

  Bytes EmbeddingForward() const { return drop(); }
  Bytes EmbeddingWeightGrad() const { return x_; }

  Bytes HeadForward() const { return std::max(norm(), x_ + Wide(s_.vocabulary, s_.hidden)); }
  Bytes HeadInputGrad() const {
    return std::max(x_ + Wide(s_.vocabulary, s_.hidden), x_ + x_ + Wide(1, s_.hidden) + x_);
  }
  Bytes HeadWeightGrad() const { return x_ + x_; }

 private:
  // A tensor as fp32: itself, or a copy.
  Bytes Wide(int64_t rows, int64_t cols) const { return bf16_ ? ScratchBytes(rows * cols) : 0; }
  Bytes Weights(int64_t in, int64_t out) const {
    return Wide(in, out) + (s_.biases ? Wide(1, out) : 0);
  }

  Bytes fp32_x() const { return ScratchBytes(s_.tokens() * s_.hidden); }
  Bytes qkv_() const { return Wide(s_.tokens(), s_.qkv_width()); }
  Bytes out_() const { return Wide(s_.tokens(), s_.q_width()); }
  Bytes drop() const { return s_.dropout > 0 ? x_ : 0; }
  Bytes norm() const {
    return x_ + (s_.norm == NormKind::kLayer ? 2 : 1) * Wide(1, s_.hidden) + x_;
  }
  Bytes norm_back() const { return fp32_x() + x_ + Wide(1, s_.hidden) + x_; }
  Bytes attention_room() const {
    return ScratchBytes(AttentionWorkspace({.sequence = s_.sequence,
                                            .heads = s_.heads,
                                            .kv_heads = s_.kv_heads,
                                            .head_dim = s_.head_dim}));
  }

  Bytes MlpForward() const {
    const Bytes up = Wide(s_.tokens(), s_.up_width());
    const Bytes act = Wide(s_.tokens(), s_.intermediate);
    return std::max({up + x_ + Weights(s_.hidden, s_.up_width()), up + act,
                     fp32_x() + act + Weights(s_.intermediate, s_.hidden)});
  }
  Bytes MlpInputGrad() const {
    const Bytes up = Wide(s_.tokens(), s_.up_width());
    return std::max(
        ScratchBytes(s_.tokens() * s_.intermediate) + x_ + Wide(s_.intermediate, s_.hidden) + up,
        x_ + up + Wide(s_.hidden, s_.up_width()));
  }
  Bytes MlpWeightGrad() const {
    return x_ + std::max(Wide(s_.tokens(), s_.up_width()), Wide(s_.tokens(), s_.intermediate));
  }

  // An expert may have all of its slots filled.
  Bytes Slots(int64_t width) const { return Wide(CapacityOf(s_), width); }
  Bytes SlotsInFp32(int64_t width) const { return ScratchBytes(CapacityOf(s_) * width); }
  Bytes MixtureForward() const {
    const Bytes route = x_ + Wide(s_.hidden, s_.experts);
    const Bytes expert = Slots(s_.up_width()) + Slots(s_.hidden) + Wide(s_.hidden, s_.up_width()) +
                         Slots(s_.intermediate) + SlotsInFp32(s_.hidden) +
                         Wide(s_.intermediate, s_.hidden);
    return std::max(route, fp32_x() + expert);
  }
  Bytes MixtureInputGrad() const {
    const Bytes expert = Slots(s_.hidden) + SlotsInFp32(s_.intermediate) +
                         Wide(s_.intermediate, s_.hidden) + Slots(s_.intermediate) +
                         Slots(s_.up_width()) + SlotsInFp32(s_.hidden) +
                         Wide(s_.hidden, s_.up_width());
    const Bytes branch = s_.dropout > 0 ? fp32_x() : x_;
    return x_ + branch + std::max(expert, Wide(s_.hidden, s_.experts));
  }
  Bytes MixtureWeightGrad() const {
    return std::max(x_, Slots(s_.hidden) + std::max(Slots(s_.up_width()), Slots(s_.intermediate)));
  }

  const ModelShape& s_;
  bool bf16_;
  Bytes x_;
};

}  // namespace

ScratchSizes ScratchSizesOf(const ModelShape& shape, const StageRange& range) {
  const Counter count(shape);
  ScratchSizes sizes;
  const auto add = [&](Bytes forward, Bytes input_grad, Bytes weight_grad) {
    sizes.forward = std::max(sizes.forward, forward);
    sizes.input_grad = std::max(sizes.input_grad, input_grad);
    sizes.weight_grad = std::max(sizes.weight_grad, weight_grad);
  };
  if (range.embedding) {
    add(count.EmbeddingForward(), count.EmbeddingForward(), count.EmbeddingWeightGrad());
  }
  if (range.layers > 0) {
    add(count.LayerForward(), count.LayerInputGrad(), count.LayerWeightGrad());
  }
  if (range.head) add(count.HeadForward(), count.HeadInputGrad(), count.HeadWeightGrad());
  return sizes;
}

}  // namespace spiritlevel::cpu
