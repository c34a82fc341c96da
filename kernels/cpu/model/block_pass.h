// The passes of single blocks. Internal to the model; stage.h is its face.
//
// In F, `x` goes into what the block keeps and the block's output comes back. In B, `stream` holds
// the gradient of the block's output before and that of its input after; what W needs goes from the
// activation to the weight state, and who calls frees the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/model/block_state.h"
#include "kernels/cpu/model/dropout.h"
#include "kernels/cpu/model/model_shape.h"
#include "kernels/cpu/model/parameters.h"
#include "kernels/cpu/model/scratch.h"

namespace spiritlevel::cpu {

inline constexpr int kNoParameter = -1;

// Places in a stage's ParameterStore.
struct Affine {
  int weight = kNoParameter;
  int bias = kNoParameter;
};

struct LayerParameters {
  Affine attention_norm;
  Affine qkv;
  Affine attention_output;
  Affine mlp_norm;
  Affine up;    // of expert e: up.weight + 2 e
  Affine down;  // of expert e: down.weight + 2 e
  int router = kNoParameter;
};

// Of a layer whose first parameter is `first`.
LayerParameters LayerParametersAt(const ModelShape& shape, int first);

struct HeadParameters {
  Affine norm;
  int weight = kNoParameter;
};
HeadParameters HeadParametersAt(const ModelShape& shape, int first);

// What a pass of a block of one micro-batch works with.
struct PassContext {
  const ModelShape* shape = nullptr;
  const ParameterStore* parameters = nullptr;
  const Tensor* rotation = nullptr;
  Scratch* scratch = nullptr;
  int64_t iteration = 0;
  int64_t micro_batch = 0;
  int64_t layer = 0;  // of the model

  Tensor New(TensorUse use, int64_t rows, int64_t cols) const {
    return Tensor(parameters->meter(), use, shape->storage, rows, cols);
  }
  Tensor NewFloats(TensorUse use, int64_t rows, int64_t cols) const {
    return Tensor(parameters->meter(), use, DType::kFloat32, rows, cols);
  }
  Tensor NewInts(TensorUse use, int64_t rows, int64_t cols) const {
    return Tensor(parameters->meter(), use, DType::kInt32, rows, cols);
  }
  const Tensor& value(int parameter) const { return parameters->value(parameter); }
  bool has_dropout() const { return shape->dropout > 0; }
  void Drop(DropoutSite::Place place, Matrix x) const;  // nothing without dropout
};

// --- Parts that blocks share (block_parts.cc)

// y = x w + b, both in fp32; who calls stores `y`.
void ForwardLinear(const PassContext& pass, const Affine& affine, ConstMatrix x, Matrix y,
                   Frame* frame);
void ForwardNorm(const PassContext& pass, const Affine& affine, Tensor x, NormActivation* norm);

// The gradient that a branch gets from the stream it was added to. Without dropout that is the
// stream itself, which is taken and left empty.
Tensor TakeBranchGradient(const PassContext& pass, DropoutSite::Place place, Tensor* stream);
// And back: stream = stream + the norm's input gradient; where the branch took the stream, it is
// made anew from what was taken.
void ReturnBranchGradient(const PassContext& pass, const Affine& affine, const Tensor& taken,
                          NormActivation* norm, Tensor dy, NormWeightState* state, Tensor* stream);
void NormInputGrad(const PassContext& pass, const Affine& affine, const NormActivation& norm,
                   const Tensor& dy, Matrix dx, Frame* frame);
// Takes from the activation what W needs; norm.y is for the product behind the norm.
void KeepNorm(NormActivation* norm, Tensor dy, NormWeightState* state);
void Keep(Tensor tensor, Tensor* kept);  // under kWaitingForW

void LinearWeightGradInto(const Affine& affine, const LinearWeightState& state, Scratch* scratch,
                          GradientStore* sums);
void NormWeightGradInto(const ModelShape& shape, const Affine& affine, const NormWeightState& state,
                        Scratch* scratch, GradientStore* sums);

// --- Attention

Tensor ForwardAttention(const PassContext& pass, const LayerParameters& at, Tensor x,
                        AttentionActivation* kept);
void AttentionInputGrad(const PassContext& pass, const LayerParameters& at,
                        AttentionActivation* kept, LayerWeightState* state, Tensor* stream);

// --- MLP, dense and mixture of experts

Tensor ForwardMlp(const PassContext& pass, const LayerParameters& at, Tensor x,
                  MlpActivation* kept);
void MlpInputGrad(const PassContext& pass, const LayerParameters& at, MlpActivation* kept,
                  LayerWeightState* state, Tensor* stream);

Tensor ForwardMixture(const PassContext& pass, const LayerParameters& at, Tensor x,
                      MlpActivation* kept);
void MixtureInputGrad(const PassContext& pass, const LayerParameters& at, MlpActivation* kept,
                      LayerWeightState* state, Tensor* stream);
void MixtureWeightGrad(const ModelShape& shape, const LayerParameters& at,
                       const LayerWeightState& state, Scratch* scratch, GradientStore* sums);

// --- Whole blocks

Tensor ForwardEmbedding(const PassContext& pass, int table, const EmbeddingActivation& kept);
void EmbeddingInputGrad(const PassContext& pass, EmbeddingActivation* kept,
                        EmbeddingWeightState* state, Tensor* stream);
void EmbeddingWeightGradInto(int table, const EmbeddingWeightState& state, Scratch* scratch,
                             GradientStore* sums);

void LayerWeightGrad(const ModelShape& shape, const LayerParameters& at,
                     const LayerWeightState& state, Scratch* scratch, GradientStore* sums);

// `kept` has the targets already. Returns the sum of losses.
double ForwardHead(const PassContext& pass, const HeadParameters& at, Tensor x,
                   HeadActivation* kept);
void HeadInputGrad(const PassContext& pass, const HeadParameters& at, float loss_scale,
                   HeadActivation* kept, HeadWeightState* state, Tensor* stream);
void HeadWeightGrad(const ModelShape& shape, const HeadParameters& at, const HeadWeightState& state,
                    Scratch* scratch, GradientStore* sums);

}  // namespace spiritlevel::cpu
