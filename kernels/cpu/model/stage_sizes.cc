#include "kernels/cpu/model/stage_sizes.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/model/scratch_sizes.h"

namespace spiritlevel::cpu {
namespace {

constexpr Bytes kFloat = 4;
constexpr Bytes kInt = 4;

// A block's bytes; see block_state.h for the tensors.
struct BlockBytes {
  Bytes activation = 0;
  Bytes held_before = 0;  // of it, what is there before F: the tokens or the targets
  Bytes input = 0;        // of it, the block's input
  Bytes output = 0;
  Bytes weight_state = 0;
  Bytes made_by_b = 0;  // until B of the block ends; of the stream one tensor more than before
};

class Counter {
 public:
  explicit Counter(const ModelShape& s)
      : s_(s),
        element_(SizeOf(s.storage)),
        x_(s.tokens() * s.hidden * element_),
        statistics_((s.norm == NormKind::kLayer ? 2 : 1) * kFloat * s.tokens()) {}

  BlockBytes Embedding() const {
    const Bytes tokens = kInt * s_.tokens();
    return {.activation = tokens, .held_before = tokens, .output = x_, .weight_state = tokens + x_};
  }

  BlockBytes Layer() const {
    BlockBytes layer = s_.is_mixture() ? Mixture() : Mlp();
    const Bytes norm = x_ + statistics_ + x_;  // its output is kept for the product behind it
    const Bytes qkv = Rows(s_.qkv_width());
    const Bytes out = Rows(s_.q_width());
    layer.activation += 2 * norm + qkv + out + kFloat * s_.tokens() * s_.heads;
    layer.weight_state += 2 * (norm + x_) + qkv + out + x_;
    layer.made_by_b += qkv + 3 * x_;  // of attention, and the MLP norm's gradient
    layer.input = x_;
    layer.output = x_;
    return layer;
  }

  BlockBytes Head() const {
    const Bytes logits = kFloat * s_.tokens() * s_.vocabulary;
    const Bytes norm = x_ + statistics_ + x_;
    const Bytes targets = kInt * s_.tokens();
    return {.activation = norm + logits + targets + 2 * kFloat * s_.tokens(),
            .held_before = targets,
            .input = x_,
            .weight_state = norm + x_ + logits,
            .made_by_b = 2 * x_};
  }

 private:
  Bytes Rows(int64_t width) const { return s_.tokens() * width * element_; }

  // What differs between the two kinds.
  BlockBytes Mlp() const {
    const Bytes up_and_act = Rows(s_.up_width()) + Rows(s_.intermediate);
    return {.activation = up_and_act, .weight_state = up_and_act + x_, .made_by_b = x_};
  }
  BlockBytes Mixture() const {
    const Bytes slots = s_.experts * CapacityOf(s_);
    const Bytes in_slots = slots * (s_.hidden + s_.up_width() + s_.intermediate) * element_;
    const Bytes gradient = slots * s_.hidden * element_;
    const Bytes router = kFloat * s_.tokens() * s_.experts;
    const Bytes filled = kInt * s_.experts;
    return {.activation = in_slots + router + kInt * slots + filled,
            .weight_state = in_slots + gradient + router + filled,
            .made_by_b = gradient + router};
  }

  const ModelShape& s_;
  Bytes element_;
  Bytes x_;
  Bytes statistics_;
};

std::vector<BlockBytes> BlocksOf(const ModelShape& shape, const StageRange& range) {
  const Counter count(shape);
  std::vector<BlockBytes> blocks;
  if (range.embedding) blocks.push_back(count.Embedding());
  blocks.insert(blocks.end(), static_cast<size_t>(range.layers), count.Layer());
  if (range.head) blocks.push_back(count.Head());
  return blocks;
}

void CountStates(const std::vector<BlockBytes>& blocks, StageSizes* sizes) {
  sizes->input = blocks.front().input;
  sizes->output = blocks.back().output;
  for (const BlockBytes& block : blocks) {
    sizes->activation += block.activation;
    sizes->weight_state += block.weight_state;
    sizes->kept += block.held_before;
  }
  sizes->kept += sizes->input;
}

// F that keeps all only grows. One that does not has, beside what it keeps, one block at a time,
// with the block's input and output.
PassBytes ForwardOf(const std::vector<BlockBytes>& blocks, bool recompute, Bytes scratch,
                    const StageSizes& sizes) {
  PassBytes pass{.before = sizes.input, .after = sizes.kept + sizes.output};
  if (!recompute) {
    pass.peak = pass.after + scratch;
    return pass;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockBytes& block = blocks[i];
    const Bytes own = block.activation - block.held_before - (i == 0 ? block.input : 0);
    pass.peak = std::max(pass.peak, sizes.kept + own + block.output + scratch);
  }
  return pass;
}

// From the last block down: those below hold their activations, those above, where W comes later,
// their weight states, and one gradient goes down between them.
Bytes PeakOfBackward(const std::vector<BlockBytes>& blocks, bool fused) {
  Bytes below = 0;
  for (const BlockBytes& block : blocks) below += block.activation;
  Bytes above = 0;
  Bytes peak = 0;
  for (size_t i = blocks.size(); i-- > 0;) {
    peak = std::max(peak, below + above + blocks[i].output + blocks[i].made_by_b);
    below -= blocks[i].activation;
    if (!fused) above += blocks[i].weight_state;
  }
  return peak;
}

// A backward that begins with running F again.
PassBytes FromKept(const PassBytes& backward, const StageSizes& sizes) {
  return {.before = sizes.kept + sizes.output,
          .after = backward.after,
          .peak = std::max(sizes.recompute.peak + sizes.output, backward.peak)};
}

void CountFixed(const ModelShape& shape, const StageRange& range, StageSizes* sizes) {
  int64_t elements = 0;
  for (const ParameterInfo& info : ParametersOf(shape, range)) elements += info.size();
  const bool bf16 = shape.storage == DType::kBFloat16;
  sizes->parameters = elements * SizeOf(shape.storage);
  sizes->gradients = elements * kFloat;
  sizes->optimizer = elements * kFloat * (bf16 ? 3 : 2);
  sizes->snapshot = sizes->parameters + sizes->optimizer;
  sizes->constants = range.layers > 0 ? shape.sequence * shape.head_dim * kFloat : 0;
}

}  // namespace

StageSizes SizesOf(const ModelShape& shape, const StageRange& range) {
  CheckModelShape(shape);
  CheckStageRange(shape, range);
  const std::vector<BlockBytes> blocks = BlocksOf(shape, range);
  const ScratchSizes scratch = ScratchSizesOf(shape, range);
  StageSizes sizes;
  CountFixed(shape, range, &sizes);
  CountStates(blocks, &sizes);
  if (!shape.recompute) sizes.kept = sizes.activation;
  sizes.forward = ForwardOf(blocks, shape.recompute, scratch.forward, sizes);
  sizes.recompute = {.before = sizes.kept,
                     .after = sizes.activation,
                     .peak = sizes.activation + sizes.output + scratch.forward};
  // The gradients are as large as the messages of F that they answer.
  const Bytes before = sizes.activation + sizes.output;
  sizes.input_grad = {.before = before,
                      .after = sizes.weight_state + sizes.input,
                      .peak = PeakOfBackward(blocks, false) + scratch.input_grad};
  sizes.weight_grad = {
      .before = sizes.weight_state, .after = 0, .peak = sizes.weight_state + scratch.weight_grad};
  sizes.fused_backward = {
      .before = before,
      .after = sizes.input,
      .peak = PeakOfBackward(blocks, true) + std::max(scratch.input_grad, scratch.weight_grad)};
  sizes.input_grad_from_kept =
      shape.recompute ? FromKept(sizes.input_grad, sizes) : sizes.input_grad;
  sizes.fused_backward_from_kept =
      shape.recompute ? FromKept(sizes.fused_backward, sizes) : sizes.fused_backward;
  return sizes;
}

Bytes WeightStateOfBlock(const ModelShape& shape, const StageRange& range, int block) {
  const std::vector<BlockBytes> blocks = BlocksOf(shape, range);
  SPIRITLEVEL_CHECK(block >= 0 && block < static_cast<int>(blocks.size()), "a block of the stage");
  return blocks[static_cast<size_t>(block)].weight_state;
}

}  // namespace spiritlevel::cpu
