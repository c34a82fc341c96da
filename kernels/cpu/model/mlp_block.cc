#include <utility>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/model/block_pass.h"
#include "kernels/cpu/model/mlp_activation.h"

namespace spiritlevel::cpu {
namespace {

void Up(const PassContext& pass, const LayerParameters& at, MlpActivation* kept) {
  const ModelShape& s = *pass.shape;
  kept->up = pass.New(TensorUse::kWaitingForB, s.tokens(), s.up_width());
  Frame frame(pass.scratch);
  const Matrix up = frame.Write(&kept->up);
  ForwardLinear(pass, at.up, frame.Read(kept->norm.y), up, &frame);
  frame.Store(up, &kept->up);
}

void Activate(const PassContext& pass, MlpActivation* kept) {
  const ModelShape& s = *pass.shape;
  kept->act = pass.New(TensorUse::kWaitingForB, s.tokens(), s.intermediate);
  Frame frame(pass.scratch);
  const Matrix act = frame.Write(&kept->act);
  ForwardMlpActivation(s, frame.Read(kept->up), act);
  frame.Store(act, &kept->act);
}

// Leaves the gradient of `up` in its place.
void UpGradient(const PassContext& pass, const LayerParameters& at, const Tensor& dy, Tensor* up) {
  const ModelShape& s = *pass.shape;
  Frame frame(pass.scratch);
  const Matrix dact = frame.New(s.tokens(), s.intermediate);
  LinearInputGrad(frame.Read(dy), frame.Read(pass.value(at.down.weight)), dact);
  const Matrix values = frame.Change(up);
  MlpActivationInputGrad(s, dact, values);
  frame.Store(values, up);
}

}  // namespace

Tensor ForwardMlp(const PassContext& pass, const LayerParameters& at, Tensor x,
                  MlpActivation* kept) {
  const ModelShape& s = *pass.shape;
  ForwardNorm(pass, at.mlp_norm, std::move(x), &kept->norm);
  Up(pass, at, kept);
  Activate(pass, kept);
  Tensor sum = pass.New(TensorUse::kWaitingForB, s.tokens(), s.hidden);
  Frame frame(pass.scratch);
  const Matrix y = frame.New(s.tokens(), s.hidden);
  ForwardLinear(pass, at.down, frame.Read(kept->act), y, &frame);
  pass.Drop(DropoutSite::Place::kMlp, y);
  Add(kept->norm.x, y, &sum);
  return sum;
}

void MlpInputGrad(const PassContext& pass, const LayerParameters& at, MlpActivation* kept,
                  LayerWeightState* state, Tensor* stream) {
  const ModelShape& s = *pass.shape;
  Tensor dy = TakeBranchGradient(pass, DropoutSite::Place::kMlp, stream);
  UpGradient(pass, at, dy, &kept->up);
  Tensor dnorm = pass.New(TensorUse::kWaitingForW, s.tokens(), s.hidden);
  {
    Frame frame(pass.scratch);
    const Matrix out = frame.Write(&dnorm);
    LinearInputGrad(frame.Read(kept->up), frame.Read(pass.value(at.up.weight)), out);
    frame.Store(out, &dnorm);
  }
  ReturnBranchGradient(pass, at.mlp_norm, dy, &kept->norm, std::move(dnorm), &state->mlp_norm,
                       stream);
  Keep(std::move(kept->norm.y), &state->up.x);
  Keep(std::move(kept->up), &state->up.dy);
  Keep(std::move(kept->act), &state->down.x);
  Keep(std::move(dy), &state->down.dy);
}

}  // namespace spiritlevel::cpu
