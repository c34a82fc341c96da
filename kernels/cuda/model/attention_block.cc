#include <utility>

#include "kernels/cuda/model/block_pass.h"

namespace spiritlevel::cuda {
namespace {

// The parts of [t, q and k and v].
struct Qkv {
  View q, k, v;
};

Qkv PartsOf(const cpu::ModelShape& s, const View& qkv) {
  return {qkv.Columns(0, s.q_width()), qkv.Columns(s.q_width(), s.kv_width()),
          qkv.Columns(s.q_width() + s.kv_width(), s.kv_width())};
}

void RotateQueriesAndKeys(const PassContext& pass, bool back, const View& qkv) {
  const cpu::ModelShape& s = *pass.shape;
  pass.Post(Rotate{.table = pass.rotation->view(),
                   .head_dim = s.head_dim,
                   .back = back,
                   .x = qkv.Columns(0, s.q_width() + s.kv_width())});
}

DeviceTensor QkvGradient(const PassContext& pass, const LayerParameters& at,
                         const AttentionActivation& kept, const DeviceTensor& dy) {
  const cpu::ModelShape& s = *pass.shape;
  const AttentionShape shape = AttentionOf(s);
  DeviceTensor gradient = pass.New(TensorUse::kWaitingForW, s.tokens(), s.qkv_width());
  Frame frame(pass.scratch);
  const View dout = frame.New(dy.type(), s.tokens(), s.q_width());
  LinearInputGrad(pass, at.attention_output, dy.view(), dout);
  const Qkv of = PartsOf(s, kept.qkv.view());
  const Qkv grad = PartsOf(s, gradient.view());
  pass.Post(AttentionBackward{
      .shape = shape,
      .q = of.q,
      .k = of.k,
      .v = of.v,
      .out = kept.out.view(),
      .log_sum_exp = kept.log_sum_exp.view(),
      .dout = dout,
      .dq = grad.q,
      .dk = grad.k,
      .dv = grad.v,
      .workspace = frame.New(ElementType::kFloat32, 1,
                             AttentionWorkspace(shape) / SizeOf(ElementType::kFloat32))});
  RotateQueriesAndKeys(pass, /*back=*/true, gradient.view());
  return gradient;
}

}  // namespace

AttentionShape AttentionOf(const cpu::ModelShape& shape) {
  return {.batch = shape.sequences,
          .sequence = shape.sequence,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim};
}

DeviceTensor ForwardAttention(const PassContext& pass, const LayerParameters& at, DeviceTensor x,
                              AttentionActivation* kept) {
  const cpu::ModelShape& s = *pass.shape;
  ForwardNorm(pass, at.attention_norm, std::move(x), &kept->norm);
  kept->qkv = pass.New(TensorUse::kWaitingForB, s.tokens(), s.qkv_width());
  ForwardLinear(pass, at.qkv, kept->norm.y.view(), kept->qkv.view());
  RotateQueriesAndKeys(pass, /*back=*/false, kept->qkv.view());
  kept->out = pass.New(TensorUse::kWaitingForB, s.tokens(), s.q_width());
  kept->log_sum_exp = pass.NewFloats(TensorUse::kWaitingForB, s.sequences * s.heads, s.sequence);
  const Qkv of = PartsOf(s, kept->qkv.view());
  pass.Post(AttentionForward{.shape = AttentionOf(s),
                             .q = of.q,
                             .k = of.k,
                             .v = of.v,
                             .out = kept->out.view(),
                             .log_sum_exp = kept->log_sum_exp.view()});
  return AddBranch(pass, at.attention_output, DropoutPlace::kAttention, kept->out, kept->norm);
}

void AttentionInputGrad(const PassContext& pass, const LayerParameters& at,
                        AttentionActivation* kept, LayerWeightState* state, DeviceTensor* stream) {
  const cpu::ModelShape& s = *pass.shape;
  DeviceTensor dy = TakeBranchGradient(pass, DropoutPlace::kAttention, stream);
  DeviceTensor dqkv = QkvGradient(pass, at, *kept, dy);
  DeviceTensor dnorm = pass.New(TensorUse::kWaitingForW, s.tokens(), s.hidden);
  LinearInputGrad(pass, at.qkv, dqkv.view(), dnorm.view());
  ReturnBranchGradient(pass, at.attention_norm, dy, &kept->norm, std::move(dnorm),
                       &state->attention_norm, stream);
  Keep(std::move(kept->norm.y), &state->qkv.x);
  Keep(std::move(dqkv), &state->qkv.dy);
  Keep(std::move(kept->out), &state->attention_output.x);
  Keep(std::move(dy), &state->attention_output.dy);
}

}  // namespace spiritlevel::cuda
