// What stands between the two products of an MLP. Internal to the model.
#pragma once

#include "kernels/cpu/activation.h"
#include "kernels/cpu/model/model_shape.h"

namespace spiritlevel::cpu {

// A gated MLP's `up` is gate and up side by side.
inline void ForwardMlpActivation(const ModelShape& s, ConstMatrix up, Matrix act) {
  if (s.mlp == MlpKind::kGelu) {
    GeluForward(up, act);
  } else {
    SwigluForward(up.Columns(0, s.intermediate), up.Columns(s.intermediate, s.intermediate), act);
  }
}

// Replaces `up` by its gradient.
inline void MlpActivationInputGrad(const ModelShape& s, ConstMatrix dact, Matrix up) {
  if (s.mlp == MlpKind::kGelu) {
    GeluBackward(up, dact, up);
    return;
  }
  const Matrix gate = up.Columns(0, s.intermediate);
  const Matrix factor = up.Columns(s.intermediate, s.intermediate);
  SwigluBackward(gate, factor, dact, gate, factor);
}

}  // namespace spiritlevel::cpu
