// RMSNorm (Zhang and Sennrich 2019, eq. 4) and LayerNorm (Ba, Kiros and Hinton 2016, section 3),
// over the columns of each row, and their gradients.
//
//   X, Y, dX, dY [rows, cols]   weight, bias [cols]   one statistic a row, kept from F for B and W
//
//   RMSNorm    y = w x r,            r = 1 / sqrt(mean(x^2) + epsilon)
//   LayerNorm  y = w (x - m) r + b,  r = 1 / sqrt(var(x) + epsilon), m = mean(x)
#pragma once

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

void RmsNormForward(ConstMatrix x, const float* weight, float epsilon, Matrix y,
                    float* inverse_rms);
// dx = r g - x r^3 mean(g x), with g = w dy.
void RmsNormInputGrad(ConstMatrix x, const float* weight, const float* inverse_rms, ConstMatrix dy,
                      Matrix dx);
// dw += the column sums of dy x r.
void RmsNormWeightGrad(ConstMatrix x, const float* inverse_rms, ConstMatrix dy, float* dweight);

void LayerNormForward(ConstMatrix x, const float* weight, const float* bias, float epsilon,
                      Matrix y, float* mean, float* inverse_deviation);
// dx = r (g - mean(g) - z mean(g z)), with g = w dy and z = (x - m) r.
void LayerNormInputGrad(ConstMatrix x, const float* weight, const float* mean,
                        const float* inverse_deviation, ConstMatrix dy, Matrix dx);
// dw += the column sums of dy z, db += those of dy.
void LayerNormWeightGrad(ConstMatrix x, const float* mean, const float* inverse_deviation,
                         ConstMatrix dy, float* dweight, float* dbias);

}  // namespace spiritlevel::cpu
