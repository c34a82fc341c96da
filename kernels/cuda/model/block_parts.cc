#include <utility>

#include "kernels/cuda/model/block_pass.h"

namespace spiritlevel::cuda {

using cpu::kNoParameter;
using cpu::NormKind;

void PassContext::Drop(DropoutPlace place, const View& x) const {
  if (!has_dropout()) return;
  Post(Dropout{.probability = shape->dropout,
               .seed = shape->seed,
               .iteration = iteration,
               .micro_batch = micro_batch,
               .layer = layer,
               .place = static_cast<uint8_t>(place),
               .x = x});
}

void ForwardLinear(const PassContext& pass, const Affine& affine, const View& x, const View& y) {
  pass.device->Multiply({.a = x, .b = pass.value(affine.weight), .c = y});
  if (affine.bias != kNoParameter) pass.Post(AddBias{.bias = pass.value(affine.bias), .x = y});
}

void LinearInputGrad(const PassContext& pass, const Affine& affine, const View& dy,
                     const View& dx) {
  pass.device->Multiply({.a = dy, .b = pass.value(affine.weight), .transpose_b = true, .c = dx});
}

void ForwardNorm(const PassContext& pass, const Affine& affine, DeviceTensor x,
                 NormActivation* norm) {
  const cpu::ModelShape& s = *pass.shape;
  const bool centred = s.norm == NormKind::kLayer;
  x.Retag(TensorUse::kWaitingForB);
  norm->x = std::move(x);
  norm->statistics = pass.NewFloats(TensorUse::kWaitingForB, centred ? 2 : 1, s.tokens());
  norm->y = pass.New(TensorUse::kWaitingForB, s.tokens(), s.hidden);
  if (centred) {
    pass.Post(LayerNormForward{.x = norm->x.view(),
                               .weight = pass.value(affine.weight),
                               .bias = pass.value(affine.bias),
                               .epsilon = s.norm_epsilon,
                               .y = norm->y.view(),
                               .statistics = norm->statistics.view()});
  } else {
    pass.Post(RmsNormForward{.x = norm->x.view(),
                             .weight = pass.value(affine.weight),
                             .epsilon = s.norm_epsilon,
                             .y = norm->y.view(),
                             .statistics = norm->statistics.view()});
  }
}

DeviceTensor AddBranch(const PassContext& pass, const Affine& affine, DropoutPlace place,
                       const DeviceTensor& input, const NormActivation& norm) {
  const cpu::ModelShape& s = *pass.shape;
  DeviceTensor sum = pass.New(TensorUse::kWaitingForB, s.tokens(), s.hidden);
  Frame frame(pass.scratch);
  const View y = frame.New(sum.type(), s.tokens(), s.hidden);
  ForwardLinear(pass, affine, input.view(), y);
  pass.Drop(place, y);
  pass.Post(Add{.a = norm.x.view(), .b = y, .to = sum.view()});
  return sum;
}

void NormInputGrad(const PassContext& pass, const Affine& affine, const NormActivation& norm,
                   const View& dy, const View& dx) {
  if (pass.shape->norm == NormKind::kLayer) {
    pass.Post(LayerNormInputGrad{.x = norm.x.view(),
                                 .weight = pass.value(affine.weight),
                                 .statistics = norm.statistics.view(),
                                 .dy = dy,
                                 .dx = dx});
  } else {
    pass.Post(RmsNormInputGrad{.x = norm.x.view(),
                               .weight = pass.value(affine.weight),
                               .statistics = norm.statistics.view(),
                               .dy = dy,
                               .dx = dx});
  }
}

DeviceTensor TakeBranchGradient(const PassContext& pass, DropoutPlace place, DeviceTensor* stream) {
  if (!pass.has_dropout()) {
    stream->Retag(TensorUse::kWaitingForW);
    return std::move(*stream);
  }
  DeviceTensor dropped = CopyOf(*pass.device, *stream, TensorUse::kWaitingForW);
  pass.Drop(place, dropped.view());
  return dropped;
}

void ReturnBranchGradient(const PassContext& pass, const Affine& affine, const DeviceTensor& taken,
                          NormActivation* norm, DeviceTensor dy, NormWeightState* state,
                          DeviceTensor* stream) {
  const bool anew = stream->empty();
  if (anew) *stream = pass.New(TensorUse::kWorkspace, taken.rows(), taken.cols());
  {
    Frame frame(pass.scratch);
    const View dx = frame.New(dy.type(), dy.rows(), dy.cols());
    NormInputGrad(pass, affine, *norm, dy.view(), dx);
    pass.Post(Add{.a = anew ? taken.view() : stream->view(), .b = dx, .to = stream->view()});
  }
  KeepNorm(norm, std::move(dy), state);
}

void Keep(DeviceTensor tensor, DeviceTensor* kept) {
  tensor.Retag(TensorUse::kWaitingForW);
  *kept = std::move(tensor);
}

void KeepNorm(NormActivation* norm, DeviceTensor dy, NormWeightState* state) {
  Keep(std::move(norm->x), &state->x);
  Keep(std::move(norm->statistics), &state->statistics);
  Keep(std::move(dy), &state->dy);
}

void LinearWeightGrad(const WeightGradContext& pass, const Affine& affine,
                      const LinearWeightState& state) {
  pass.device->Multiply({.a = state.x.view(),
                         .transpose_a = true,
                         .b = state.dy.view(),
                         .c = pass.sum(affine.weight),
                         .beta = 1});
  if (affine.bias == kNoParameter) return;
  Frame frame(pass.scratch);
  const View dy = state.dy.view();
  pass.device->Post(ColumnSums{
      .x = dy,
      .sums = pass.sum(affine.bias),
      .workspace = frame.New(ElementType::kFloat32, 1, ColumnSumsWorkspace(dy.rows, dy.cols))});
}

void NormWeightGrad(const WeightGradContext& pass, const Affine& affine,
                    const NormWeightState& state) {
  const bool centred = pass.shape->norm == NormKind::kLayer;
  const View x = state.x.view();
  Frame frame(pass.scratch);
  const View workspace =
      frame.New(ElementType::kFloat32, 1, (centred ? 2 : 1) * ColumnSumsWorkspace(x.rows, x.cols));
  if (centred) {
    pass.device->Post(LayerNormWeightGrad{.x = x,
                                          .statistics = state.statistics.view(),
                                          .dy = state.dy.view(),
                                          .dweight = pass.sum(affine.weight),
                                          .dbias = pass.sum(affine.bias),
                                          .workspace = workspace});
  } else {
    pass.device->Post(RmsNormWeightGrad{.x = x,
                                        .statistics = state.statistics.view(),
                                        .dy = state.dy.view(),
                                        .dweight = pass.sum(affine.weight),
                                        .workspace = workspace});
  }
}

void LayerWeightGrad(const WeightGradContext& pass, const LayerParameters& at,
                     const LayerWeightState& state) {
  LinearWeightGrad(pass, at.down, state.down);
  LinearWeightGrad(pass, at.up, state.up);
  NormWeightGrad(pass, at.mlp_norm, state.mlp_norm);
  LinearWeightGrad(pass, at.attention_output, state.attention_output);
  LinearWeightGrad(pass, at.qkv, state.qkv);
  NormWeightGrad(pass, at.attention_norm, state.attention_norm);
}

}  // namespace spiritlevel::cuda
