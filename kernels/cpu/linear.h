// A linear layer, Y = X W + b, and its two gradients, each on its own so that a pipeline can run
// them at different times.
//
//   X [rows, in]   W [in, out]   b [out]   Y [rows, out]
//
// 2 * rows * in * out floating-point operations each.
#pragma once

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

// `bias` may be null.
void LinearForward(ConstMatrix x, ConstMatrix w, const float* bias, Matrix y);

// The part of B: dX = dY W^T. Needs neither X nor Y.
void LinearInputGrad(ConstMatrix dy, ConstMatrix w, Matrix dx);

// The part of W: dW += X^T dY, and db += the column sums of dY unless `dbias` is null.
void LinearWeightGrad(ConstMatrix x, ConstMatrix dy, Matrix dw, float* dbias);

}  // namespace spiritlevel::cpu
