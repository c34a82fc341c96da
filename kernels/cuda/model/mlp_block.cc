#include <utility>

#include "kernels/cuda/model/block_pass.h"

namespace spiritlevel::cuda {
namespace {

using cpu::MlpKind;

// A gated MLP's `up` is gate and up side by side.
void Activate(const PassContext& pass, const View& up, const View& act) {
  const cpu::ModelShape& s = *pass.shape;
  if (s.mlp == MlpKind::kGelu) {
    pass.Post(GeluForward{.x = up, .y = act});
  } else {
    pass.Post(SwigluForward{.gate = up.Columns(0, s.intermediate),
                            .up = up.Columns(s.intermediate, s.intermediate),
                            .y = act});
  }
}

// Replaces `up` by its gradient.
void ActivationInputGrad(const PassContext& pass, const View& dact, const View& up) {
  const cpu::ModelShape& s = *pass.shape;
  if (s.mlp == MlpKind::kGelu) {
    pass.Post(GeluBackward{.x = up, .dy = dact, .dx = up});
    return;
  }
  const View gate = up.Columns(0, s.intermediate);
  const View factor = up.Columns(s.intermediate, s.intermediate);
  pass.Post(SwigluBackward{.gate = gate, .up = factor, .dy = dact, .dgate = gate, .dup = factor});
}

void UpGradient(const PassContext& pass, const LayerParameters& at, const View& dy,
                const View& up) {
  const cpu::ModelShape& s = *pass.shape;
  Frame frame(pass.scratch);
  const View dact = frame.New(dy.type, s.tokens(), s.intermediate);
  LinearInputGrad(pass, at.down, dy, dact);
  ActivationInputGrad(pass, dact, up);
}

}  // namespace

DeviceTensor ForwardMlp(const PassContext& pass, const LayerParameters& at, DeviceTensor x,
                        MlpActivation* kept) {
  const cpu::ModelShape& s = *pass.shape;
  ForwardNorm(pass, at.mlp_norm, std::move(x), &kept->norm);
  kept->up = pass.New(TensorUse::kWaitingForB, s.tokens(), s.up_width());
  ForwardLinear(pass, at.up, kept->norm.y.view(), kept->up.view());
  kept->act = pass.New(TensorUse::kWaitingForB, s.tokens(), s.intermediate);
  Activate(pass, kept->up.view(), kept->act.view());
  return AddBranch(pass, at.down, DropoutPlace::kMlp, kept->act, kept->norm);
}

void MlpInputGrad(const PassContext& pass, const LayerParameters& at, MlpActivation* kept,
                  LayerWeightState* state, DeviceTensor* stream) {
  const cpu::ModelShape& s = *pass.shape;
  DeviceTensor dy = TakeBranchGradient(pass, DropoutPlace::kMlp, stream);
  UpGradient(pass, at, dy.view(), kept->up.view());
  DeviceTensor dnorm = pass.New(TensorUse::kWaitingForW, s.tokens(), s.hidden);
  LinearInputGrad(pass, at.up, kept->up.view(), dnorm.view());
  ReturnBranchGradient(pass, at.mlp_norm, dy, &kept->norm, std::move(dnorm), &state->mlp_norm,
                       stream);
  Keep(std::move(kept->norm.y), &state->up.x);
  Keep(std::move(kept->up), &state->up.dy);
  Keep(std::move(kept->act), &state->down.x);
  Keep(std::move(dy), &state->down.dy);
}

}  // namespace spiritlevel::cuda
