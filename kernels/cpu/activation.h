// The activations of an MLP, element by element; all matrices of one call have one shape.
//
//   SwiGLU (Shazeer 2020, eq. 6)              y = silu(gate) up,  silu(a) = a / (1 + exp(-a))
//   GELU, tanh form (Hendrycks and Gimpel 2016, section 2)
//                                             y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
//
// They have no parameters, hence no W. Exponentials are within 3e-7 (exponential.h).
#pragma once

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

void SwigluForward(ConstMatrix gate, ConstMatrix up, Matrix y);
// `dgate` and `dup` may be `gate` and `up` themselves.
void SwigluBackward(ConstMatrix gate, ConstMatrix up, ConstMatrix dy, Matrix dgate, Matrix dup);

void GeluForward(ConstMatrix x, Matrix y);
// `dx` may be `x` itself.
void GeluBackward(ConstMatrix x, ConstMatrix dy, Matrix dx);

}  // namespace spiritlevel::cpu
