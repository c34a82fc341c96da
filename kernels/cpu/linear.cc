#include "kernels/cpu/linear.h"

#include "kernels/cpu/blas.h"

namespace spiritlevel::cpu {

void LinearForward(ConstMatrix x, ConstMatrix w, const float* bias, Matrix y) {
  if (bias == nullptr) {
    Gemm(1, x, Transpose::kNo, w, Transpose::kNo, 0, y);
    return;
  }
  for (int64_t i = 0; i < y.rows(); ++i) {
    float* const row = y.row(i);
    for (int64_t j = 0; j < y.cols(); ++j) row[j] = bias[j];
  }
  Gemm(1, x, Transpose::kNo, w, Transpose::kNo, 1, y);
}

void LinearInputGrad(ConstMatrix dy, ConstMatrix w, Matrix dx) {
  Gemm(1, dy, Transpose::kNo, w, Transpose::kYes, 0, dx);
}

void LinearWeightGrad(ConstMatrix x, ConstMatrix dy, Matrix dw, float* dbias) {
  Gemm(1, x, Transpose::kYes, dy, Transpose::kNo, 1, dw);
  if (dbias == nullptr) return;
  for (int64_t i = 0; i < dy.rows(); ++i) {
    const float* const row = dy.row(i);
    for (int64_t j = 0; j < dy.cols(); ++j) dbias[j] += row[j];
  }
}

}  // namespace spiritlevel::cpu
