#include "kernels/cpu/norm.h"

#include <cmath>

namespace spiritlevel::cpu {
namespace {

float Mean(float sum, int64_t count) { return sum / static_cast<float>(count); }

}  // namespace

void RmsNormForward(ConstMatrix x, const float* weight, float epsilon, Matrix y,
                    float* inverse_rms) {
  SPIRITLEVEL_CHECK(SameShape(x, y), "a norm keeps the shape");
  const int64_t cols = x.cols();
  for (int64_t i = 0; i < x.rows(); ++i) {
    const float* const in = x.row(i);
    float* const out = y.row(i);
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < cols; ++j) squares += in[j] * in[j];
    const float r = 1 / std::sqrt(Mean(squares, cols) + epsilon);
    for (int64_t j = 0; j < cols; ++j) out[j] = weight[j] * in[j] * r;
    inverse_rms[i] = r;
  }
}

void RmsNormInputGrad(ConstMatrix x, const float* weight, const float* inverse_rms, ConstMatrix dy,
                      Matrix dx) {
  SPIRITLEVEL_CHECK(SameShape(x, dy) && SameShape(x, dx), "a norm keeps the shape");
  const int64_t cols = x.cols();
  for (int64_t i = 0; i < x.rows(); ++i) {
    const float* const in = x.row(i);
    const float* const grad = dy.row(i);
    float* const out = dx.row(i);
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < cols; ++j) dot += weight[j] * grad[j] * in[j];
    const float r = inverse_rms[i];
    const float pull = r * r * r * Mean(dot, cols);
    for (int64_t j = 0; j < cols; ++j) out[j] = r * weight[j] * grad[j] - pull * in[j];
  }
}

void RmsNormWeightGrad(ConstMatrix x, const float* inverse_rms, ConstMatrix dy, float* dweight) {
  SPIRITLEVEL_CHECK(SameShape(x, dy), "a norm keeps the shape");
  for (int64_t i = 0; i < x.rows(); ++i) {
    const float* const in = x.row(i);
    const float* const grad = dy.row(i);
    const float r = inverse_rms[i];
    for (int64_t j = 0; j < x.cols(); ++j) dweight[j] += grad[j] * in[j] * r;
  }
}

void LayerNormForward(ConstMatrix x, const float* weight, const float* bias, float epsilon,
                      Matrix y, float* mean, float* inverse_deviation) {
  SPIRITLEVEL_CHECK(SameShape(x, y), "a norm keeps the shape");
  const int64_t cols = x.cols();
  for (int64_t i = 0; i < x.rows(); ++i) {
    const float* const in = x.row(i);
    float* const out = y.row(i);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < cols; ++j) sum += in[j];
    const float m = Mean(sum, cols);
    // In a second pass: mean(x^2) - m^2 loses all digits where the mean is large.
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < cols; ++j) squares += (in[j] - m) * (in[j] - m);
    const float r = 1 / std::sqrt(Mean(squares, cols) + epsilon);
    for (int64_t j = 0; j < cols; ++j) out[j] = weight[j] * (in[j] - m) * r + bias[j];
    mean[i] = m;
    inverse_deviation[i] = r;
  }
}

void LayerNormInputGrad(ConstMatrix x, const float* weight, const float* mean,
                        const float* inverse_deviation, ConstMatrix dy, Matrix dx) {
  SPIRITLEVEL_CHECK(SameShape(x, dy) && SameShape(x, dx), "a norm keeps the shape");
  const int64_t cols = x.cols();
  for (int64_t i = 0; i < x.rows(); ++i) {
    const float* const in = x.row(i);
    const float* const grad = dy.row(i);
    float* const out = dx.row(i);
    const float m = mean[i];
    const float r = inverse_deviation[i];
    float sum = 0;
    float dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t j = 0; j < cols; ++j) {
      const float g = weight[j] * grad[j];
      sum += g;
      dot += g * (in[j] - m) * r;
    }
    const float mean_g = Mean(sum, cols);
    const float mean_gz = Mean(dot, cols);
    for (int64_t j = 0; j < cols; ++j) {
      out[j] = r * (weight[j] * grad[j] - mean_g - (in[j] - m) * r * mean_gz);
    }
  }
}

void LayerNormWeightGrad(ConstMatrix x, const float* mean, const float* inverse_deviation,
                         ConstMatrix dy, float* dweight, float* dbias) {
  SPIRITLEVEL_CHECK(SameShape(x, dy), "a norm keeps the shape");
  for (int64_t i = 0; i < x.rows(); ++i) {
    const float* const in = x.row(i);
    const float* const grad = dy.row(i);
    const float m = mean[i];
    const float r = inverse_deviation[i];
    for (int64_t j = 0; j < x.cols(); ++j) {
      dweight[j] += grad[j] * (in[j] - m) * r;
      dbias[j] += grad[j];
    }
  }
}

}  // namespace spiritlevel::cpu
