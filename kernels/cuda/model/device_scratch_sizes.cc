#include "kernels/cuda/model/device_scratch_sizes.h"

#include <algorithm>

#include "kernels/cuda/model/block_pass.h"

namespace spiritlevel::cuda {
namespace {

// The terms of each sum are the pieces that one frame of block_parts.cc, attention_block.cc,
// mlp_block.cc or end_blocks.cc takes.
class Counter {
 public:
  explicit Counter(const cpu::ModelShape& s) : s_(s), element_(SizeOf(StorageOf(s))) {}

  Bytes LayerForward() const { return Rows(s_.hidden); }
  Bytes LayerInputGrad() const {
    const Bytes attend = Rows(s_.q_width()) + ScratchBytes(AttentionWorkspace(AttentionOf(s_)));
    return std::max({attend, Rows(s_.intermediate), Rows(s_.hidden)});
  }
  Bytes LayerWeightGrad() const {
    if (!s_.biases) return NormWeightGrad();
    return std::max(
        {NormWeightGrad(), Sums(1, s_.qkv_width()), Sums(1, s_.hidden), Sums(1, s_.up_width())});
  }
  Bytes NormWeightGrad() const { return Sums(s_.norm == cpu::NormKind::kLayer ? 2 : 1, s_.hidden); }

 private:
  Bytes Rows(int64_t width) const { return ScratchBytes(s_.tokens() * width * element_); }
  Bytes Sums(int64_t of_each, int64_t width) const {
    return ScratchBytes(of_each * ColumnSumsWorkspace(s_.tokens(), width) *
                        SizeOf(ElementType::kFloat32));
  }

  const cpu::ModelShape& s_;
  Bytes element_;
};

}  // namespace

DeviceScratchSizes DeviceScratchSizesOf(const cpu::ModelShape& shape,
                                        const cpu::StageRange& range) {
  const Counter count(shape);
  DeviceScratchSizes sizes;
  if (range.layers > 0) {
    sizes = {.forward = count.LayerForward(),
             .input_grad = count.LayerInputGrad(),
             .weight_grad = count.LayerWeightGrad()};
  }
  if (range.head) sizes.weight_grad = std::max(sizes.weight_grad, count.NormWeightGrad());
  return sizes;
}

}  // namespace spiritlevel::cuda
