// The passes of single blocks, as posts to the compute stream. Internal to the model;
// device_stage.h is its face.
//
// In F, `x` goes into what the block keeps and the block's output comes back. In B, `stream` holds
// the gradient of the block's output before and that of its input after; what W needs goes from the
// activation to the weight state, and who calls frees the rest.
#pragma once

#include <cstdint>

#include "kernels/cpu/model/block_pass.h"
#include "kernels/cpu/model/dropout.h"
#include "kernels/cuda/model/block_state.h"
#include "kernels/cuda/model/device_parameters.h"
#include "kernels/cuda/model/device_scratch.h"

namespace spiritlevel::cuda {

using cpu::Affine;
using cpu::HeadParameters;
using cpu::LayerParameters;
using DropoutPlace = cpu::DropoutSite::Place;

// What a pass of a block of one micro-batch works with.
struct PassContext {
  const DeviceContext* device = nullptr;
  const cpu::ModelShape* shape = nullptr;
  const DeviceParameters* parameters = nullptr;
  const DeviceTensor* rotation = nullptr;
  Scratch* scratch = nullptr;
  int64_t iteration = 0;
  int64_t micro_batch = 0;
  int64_t layer = 0;  // of the model

  DeviceTensor New(TensorUse use, int64_t rows, int64_t cols) const {
    return DeviceTensor(*device, use, StorageOf(*shape), rows, cols);
  }
  DeviceTensor NewFloats(TensorUse use, int64_t rows, int64_t cols) const {
    return DeviceTensor(*device, use, ElementType::kFloat32, rows, cols);
  }
  View value(int parameter) const { return parameters->value(parameter).view(); }
  void Post(const Call& call) const { device->Post(call); }
  bool has_dropout() const { return shape->dropout > 0; }
  void Drop(DropoutPlace place, const View& x) const;  // nothing without dropout
};

// What W of a block works with.
struct WeightGradContext {
  const DeviceContext* device = nullptr;
  const cpu::ModelShape* shape = nullptr;
  Scratch* scratch = nullptr;
  DeviceGradients* sums = nullptr;

  View sum(int parameter) const { return sums->sum(parameter).view(); }
};

// --- Parts that blocks share (block_parts.cc)

void ForwardLinear(const PassContext& pass, const Affine& affine, const View& x, const View& y);
void LinearInputGrad(const PassContext& pass, const Affine& affine, const View& dy, const View& dx);
void ForwardNorm(const PassContext& pass, const Affine& affine, DeviceTensor x,
                 NormActivation* norm);
// norm.x + what a branch makes of it: y = input w + b, with dropout.
DeviceTensor AddBranch(const PassContext& pass, const Affine& affine, DropoutPlace place,
                       const DeviceTensor& input, const NormActivation& norm);

// The gradient that a branch gets from the stream it was added to. Without dropout that is the
// stream itself, which is taken and left empty.
DeviceTensor TakeBranchGradient(const PassContext& pass, DropoutPlace place, DeviceTensor* stream);
// And back: stream = stream + the norm's input gradient; where the branch took the stream, it is
// made anew from what was taken.
void ReturnBranchGradient(const PassContext& pass, const Affine& affine, const DeviceTensor& taken,
                          NormActivation* norm, DeviceTensor dy, NormWeightState* state,
                          DeviceTensor* stream);
void NormInputGrad(const PassContext& pass, const Affine& affine, const NormActivation& norm,
                   const View& dy, const View& dx);
// Takes from the activation what W needs; norm.y is for the product behind the norm.
void KeepNorm(NormActivation* norm, DeviceTensor dy, NormWeightState* state);
void Keep(DeviceTensor tensor, DeviceTensor* kept);  // under kWaitingForW

void LinearWeightGrad(const WeightGradContext& pass, const Affine& affine,
                      const LinearWeightState& state);
void NormWeightGrad(const WeightGradContext& pass, const Affine& affine,
                    const NormWeightState& state);

// --- Attention

AttentionShape AttentionOf(const cpu::ModelShape& shape);
DeviceTensor ForwardAttention(const PassContext& pass, const LayerParameters& at, DeviceTensor x,
                              AttentionActivation* kept);
void AttentionInputGrad(const PassContext& pass, const LayerParameters& at,
                        AttentionActivation* kept, LayerWeightState* state, DeviceTensor* stream);

// --- MLP

DeviceTensor ForwardMlp(const PassContext& pass, const LayerParameters& at, DeviceTensor x,
                        MlpActivation* kept);
void MlpInputGrad(const PassContext& pass, const LayerParameters& at, MlpActivation* kept,
                  LayerWeightState* state, DeviceTensor* stream);

// --- Whole blocks

DeviceTensor ForwardEmbedding(const PassContext& pass, int table, const EmbeddingActivation& kept);
void EmbeddingInputGrad(const PassContext& pass, EmbeddingActivation* kept,
                        EmbeddingWeightState* state, DeviceTensor* stream);
void EmbeddingWeightGradInto(const WeightGradContext& pass, int table,
                             const EmbeddingWeightState& state);

void LayerWeightGrad(const WeightGradContext& pass, const LayerParameters& at,
                     const LayerWeightState& state);

// `kept` has the targets already. Returns the losses, [1, t] fp32.
DeviceTensor ForwardHead(const PassContext& pass, const HeadParameters& at, DeviceTensor x,
                         HeadActivation* kept);
void HeadInputGrad(const PassContext& pass, const HeadParameters& at, float loss_scale,
                   HeadActivation* kept, HeadWeightState* state, DeviceTensor* stream);
void HeadWeightGrad(const WeightGradContext& pass, const HeadParameters& at,
                    const HeadWeightState& state);

}  // namespace spiritlevel::cuda
