#include "kernels/cuda/model/device_stage_sizes.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/model/device_parameters.h"
#include "kernels/cuda/model/device_scratch_sizes.h"
#include "kernels/cuda/model/device_stage.h"

namespace spiritlevel::cuda {
namespace {

using cpu::ModelShape;
using cpu::PassBytes;
using cpu::StageRange;
using cpu::StageSizes;

constexpr Bytes kFloat = SizeOf(ElementType::kFloat32);
constexpr Bytes kDouble = SizeOf(ElementType::kFloat64);
constexpr Bytes kInt = SizeOf(ElementType::kInt32);

// A block's bytes; see block_state.h for the tensors.
struct BlockBytes {
  Bytes activation = 0;
  Bytes held_before = 0;  // of it, what is there before F: the tokens or the targets
  Bytes input = 0;        // of it, the block's input
  Bytes output = 0;
  Bytes losses = 0;
  Bytes weight_state = 0;
  Bytes made_by_b = 0;  // until B of the block ends; of the stream one tensor more than before
};

class Counter {
 public:
  explicit Counter(const ModelShape& s)
      : s_(s), element_(SizeOf(StorageOf(s))), x_(Rows(s.hidden)) {}

  BlockBytes Embedding() const {
    const Bytes tokens = kInt * s_.tokens();
    return {.activation = tokens, .held_before = tokens, .output = x_, .weight_state = tokens + x_};
  }

  BlockBytes Layer() const {
    const Bytes attention = Norm() + Rows(s_.qkv_width()) + Rows(s_.q_width());
    const Bytes mlp = Norm() + Rows(s_.up_width()) + Rows(s_.intermediate);
    return {.activation = attention + mlp + kFloat * s_.tokens() * s_.heads,
            .input = x_,
            .output = x_,
            // Beside them, of both branches, the gradients of what is added and of the norm.
            .weight_state = attention + mlp + 4 * x_,
            .made_by_b = Rows(s_.qkv_width()) + 4 * x_};
  }

  BlockBytes Head() const {
    const Bytes logits = kFloat * s_.tokens() * s_.vocabulary;
    const Bytes gradient = Rows(s_.vocabulary);  // in the logits' place where it is fp32, too
    const Bytes targets = kInt * s_.tokens();
    const Bytes of_each_token = kFloat * s_.tokens();
    return {.activation = Norm() + logits + targets + of_each_token,
            .held_before = targets,
            .input = x_,
            .losses = of_each_token,
            .weight_state = Norm() + x_ + gradient,
            .made_by_b = 2 * x_ + (gradient < logits ? gradient : 0)};
  }

 private:
  Bytes Rows(int64_t width) const { return s_.tokens() * width * element_; }
  // Its output is kept for the product behind it.
  Bytes Norm() const {
    return x_ + (s_.norm == cpu::NormKind::kLayer ? 2 : 1) * kFloat * s_.tokens() + x_;
  }

  const ModelShape& s_;
  Bytes element_;
  Bytes x_;
};

std::vector<BlockBytes> BlocksOf(const ModelShape& shape, const StageRange& range) {
  const Counter count(shape);
  std::vector<BlockBytes> blocks;
  if (range.embedding) blocks.push_back(count.Embedding());
  blocks.insert(blocks.end(), static_cast<size_t>(range.layers), count.Layer());
  if (range.head) blocks.push_back(count.Head());
  return blocks;
}

void CountStates(const ModelShape& shape, const std::vector<BlockBytes>& blocks,
                 DeviceStageSizes* sizes) {
  StageSizes& stage = sizes->stage;
  stage.input = blocks.front().input;
  stage.output = blocks.back().output;
  sizes->losses = blocks.back().losses;
  for (const BlockBytes& block : blocks) {
    stage.activation += block.activation;
    stage.weight_state += block.weight_state;
    stage.kept += block.held_before;
  }
  stage.kept += stage.input;
  if (!shape.recompute) stage.kept = stage.activation;
}

// F that keeps all only grows. One that does not has, beside what it keeps, one block at a time,
// with the block's input and output.
PassBytes ForwardOf(const std::vector<BlockBytes>& blocks, bool recompute, Bytes scratch,
                    const DeviceStageSizes& sizes) {
  const StageSizes& stage = sizes.stage;
  PassBytes pass{.before = stage.input, .after = stage.kept + stage.output + sizes.losses};
  if (!recompute) {
    pass.peak = pass.after + scratch;
    return pass;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockBytes& block = blocks[i];
    const Bytes own = block.activation - block.held_before - (i == 0 ? block.input : 0);
    pass.peak = std::max(pass.peak, stage.kept + own + block.output + block.losses + scratch);
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

void CountPasses(const ModelShape& shape, const StageRange& range,
                 const std::vector<BlockBytes>& blocks, DeviceStageSizes* sizes) {
  const DeviceScratchSizes scratch = DeviceScratchSizesOf(shape, range);
  StageSizes& stage = sizes->stage;
  stage.forward = ForwardOf(blocks, shape.recompute, scratch.forward, *sizes);
  stage.recompute = {.before = stage.kept,
                     .after = stage.activation,
                     .peak = stage.activation + stage.output + sizes->losses + scratch.forward};
  // The gradients are as large as the messages of F that they answer.
  const Bytes before = stage.activation + stage.output;
  stage.input_grad = {.before = before,
                      .after = stage.weight_state + stage.input,
                      .peak = PeakOfBackward(blocks, false) + scratch.input_grad};
  stage.weight_grad = {
      .before = stage.weight_state, .after = 0, .peak = stage.weight_state + scratch.weight_grad};
  stage.fused_backward = {
      .before = before,
      .after = stage.input,
      .peak = PeakOfBackward(blocks, true) + std::max(scratch.input_grad, scratch.weight_grad)};
  stage.input_grad_from_kept =
      shape.recompute ? FromKept(stage.input_grad, stage) : stage.input_grad;
  stage.fused_backward_from_kept =
      shape.recompute ? FromKept(stage.fused_backward, stage) : stage.fused_backward;
}

void CountFixed(const ModelShape& shape, const StageRange& range, DeviceStageSizes* sizes) {
  int64_t elements = 0;
  int64_t parameters = 0;
  int64_t workspace = 0;
  for (const cpu::ParameterInfo& info : cpu::ParametersOf(shape, range)) {
    elements += info.size();
    ++parameters;
    workspace = std::max(workspace, SumOfSquaresWorkspace(info.size()));
  }
  StageSizes& stage = sizes->stage;
  const bool has_masters = StorageOf(shape) != ElementType::kFloat32;
  stage.parameters = elements * SizeOf(StorageOf(shape));
  stage.gradients = elements * kFloat;
  stage.optimizer = elements * kFloat * (has_masters ? 3 : 2);
  stage.snapshot = stage.parameters + stage.optimizer;
  stage.constants = range.layers > 0 ? shape.sequence * shape.head_dim * kFloat : 0;
  sizes->squared_norms = (parameters + workspace) * kDouble;
}

}  // namespace

DeviceStageSizes DeviceSizesOf(const ModelShape& shape, const StageRange& range) {
  cpu::CheckModelShape(shape);
  cpu::CheckStageRange(shape, range);
  CheckDeviceModel(shape);
  const std::vector<BlockBytes> blocks = BlocksOf(shape, range);
  DeviceStageSizes sizes;
  CountFixed(shape, range, &sizes);
  CountStates(shape, blocks, &sizes);
  CountPasses(shape, range, blocks, &sizes);
  return sizes;
}

Bytes DeviceWeightStateOfBlock(const ModelShape& shape, const StageRange& range, int block) {
  const std::vector<BlockBytes> blocks = BlocksOf(shape, range);
  SPIRITLEVEL_CHECK(block >= 0 && block < static_cast<int>(blocks.size()), "a block of the stage");
  return blocks[static_cast<size_t>(block)].weight_state;
}

}  // namespace spiritlevel::cuda
