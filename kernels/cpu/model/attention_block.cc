#include <utility>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/model/block_pass.h"
#include "kernels/cpu/model/rotation.h"

namespace spiritlevel::cpu {
namespace {

AttentionShape AttentionOf(const ModelShape& s) {
  return {.sequence = s.sequence, .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim};
}

// The parts of [t, q and k and v] that belong to one sequence.
template <typename T>
struct Qkv {
  BasicMatrix<T> q, k, v;
};

template <typename T>
Qkv<T> PartsOf(const ModelShape& s, const BasicMatrix<T>& qkv, int64_t sequence) {
  const BasicMatrix<T> rows = qkv.Rows(sequence * s.sequence, s.sequence);
  return {rows.Columns(0, s.q_width()), rows.Columns(s.q_width(), s.kv_width()),
          rows.Columns(s.q_width() + s.kv_width(), s.kv_width())};
}

Matrix RotatedColumns(const ModelShape& s, Matrix qkv) {
  return qkv.Columns(0, s.q_width() + s.kv_width());
}

void Project(const PassContext& pass, const LayerParameters& at, AttentionActivation* kept) {
  const ModelShape& s = *pass.shape;
  kept->qkv = pass.New(TensorUse::kWaitingForB, s.tokens(), s.qkv_width());
  Frame frame(pass.scratch);
  const Matrix qkv = frame.Write(&kept->qkv);
  ForwardLinear(pass, at.qkv, frame.Read(kept->norm.y), qkv, &frame);
  Rotate(pass.rotation->floats(), s.head_dim, Turn::kForward, RotatedColumns(s, qkv));
  frame.Store(qkv, &kept->qkv);
}

void Attend(const PassContext& pass, AttentionActivation* kept) {
  const ModelShape& s = *pass.shape;
  const AttentionShape shape = AttentionOf(s);
  kept->out = pass.New(TensorUse::kWaitingForB, s.tokens(), s.q_width());
  kept->log_sum_exp = pass.NewFloats(TensorUse::kWaitingForB, s.sequences * s.heads, s.sequence);
  Frame frame(pass.scratch);
  const ConstMatrix qkv = frame.Read(kept->qkv);
  const Matrix out = frame.Write(&kept->out);
  const int64_t workspace = AttentionWorkspace(shape);
  const Matrix room = frame.New(1, workspace);
  for (int64_t i = 0; i < s.sequences; ++i) {
    const Qkv<const float> of = PartsOf(s, qkv, i);
    AttentionForward(
        shape, of.q, of.k, of.v, out.Rows(i * s.sequence, s.sequence),
        {kept->log_sum_exp.floats().row(i * s.heads), static_cast<size_t>(s.heads * s.sequence)},
        {room.data(), static_cast<size_t>(workspace)});
  }
  frame.Store(out, &kept->out);
}

void AttendBackward(const PassContext& pass, const AttentionActivation& kept, ConstMatrix dout,
                    Matrix dqkv, Frame* frame) {
  const ModelShape& s = *pass.shape;
  const AttentionShape shape = AttentionOf(s);
  const ConstMatrix qkv = frame->Read(kept.qkv);
  const ConstMatrix out = frame->Read(kept.out);
  const int64_t workspace = AttentionWorkspace(shape);
  const Matrix room = frame->New(1, workspace);
  for (int64_t i = 0; i < s.sequences; ++i) {
    const Qkv<const float> of = PartsOf(s, qkv, i);
    const Qkv<float> grad = PartsOf(s, dqkv, i);
    AttentionBackward(
        shape, of.q, of.k, of.v, out.Rows(i * s.sequence, s.sequence),
        {kept.log_sum_exp.floats().row(i * s.heads), static_cast<size_t>(s.heads * s.sequence)},
        dout.Rows(i * s.sequence, s.sequence), grad.q, grad.k, grad.v,
        {room.data(), static_cast<size_t>(workspace)});
  }
}

Tensor QkvGradient(const PassContext& pass, const LayerParameters& at,
                   const AttentionActivation& kept, const Tensor& dy) {
  const ModelShape& s = *pass.shape;
  Tensor gradient = pass.New(TensorUse::kWaitingForW, s.tokens(), s.qkv_width());
  Frame frame(pass.scratch);
  const Matrix dout = frame.New(s.tokens(), s.q_width());
  LinearInputGrad(frame.Read(dy), frame.Read(pass.value(at.attention_output.weight)), dout);
  const Matrix dqkv = frame.Write(&gradient);
  AttendBackward(pass, kept, dout, dqkv, &frame);
  Rotate(pass.rotation->floats(), s.head_dim, Turn::kBack, RotatedColumns(s, dqkv));
  frame.Store(dqkv, &gradient);
  return gradient;
}

}  // namespace

Tensor ForwardAttention(const PassContext& pass, const LayerParameters& at, Tensor x,
                        AttentionActivation* kept) {
  const ModelShape& s = *pass.shape;
  ForwardNorm(pass, at.attention_norm, std::move(x), &kept->norm);
  Project(pass, at, kept);
  Attend(pass, kept);
  Tensor sum = pass.New(TensorUse::kWaitingForB, s.tokens(), s.hidden);
  Frame frame(pass.scratch);
  const Matrix y = frame.New(s.tokens(), s.hidden);
  ForwardLinear(pass, at.attention_output, frame.Read(kept->out), y, &frame);
  pass.Drop(DropoutSite::Place::kAttention, y);
  Add(kept->norm.x, y, &sum);
  return sum;
}

void AttentionInputGrad(const PassContext& pass, const LayerParameters& at,
                        AttentionActivation* kept, LayerWeightState* state, Tensor* stream) {
  const ModelShape& s = *pass.shape;
  Tensor dy = TakeBranchGradient(pass, DropoutSite::Place::kAttention, stream);
  Tensor dqkv = QkvGradient(pass, at, *kept, dy);
  Tensor dnorm = pass.New(TensorUse::kWaitingForW, s.tokens(), s.hidden);
  {
    Frame frame(pass.scratch);
    const Matrix out = frame.Write(&dnorm);
    LinearInputGrad(frame.Read(dqkv), frame.Read(pass.value(at.qkv.weight)), out);
    frame.Store(out, &dnorm);
  }
  ReturnBranchGradient(pass, at.attention_norm, dy, &kept->norm, std::move(dnorm),
                       &state->attention_norm, stream);
  Keep(std::move(kept->norm.y), &state->qkv.x);
  Keep(std::move(dqkv), &state->qkv.dy);
  Keep(std::move(kept->out), &state->attention_output.x);
  Keep(std::move(dy), &state->attention_output.dy);
}

}  // namespace spiritlevel::cpu
