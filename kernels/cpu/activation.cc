#include "kernels/cpu/activation.h"

#include "kernels/cpu/exponential.h"

namespace spiritlevel::cpu {
namespace {

constexpr float kRootTwoOverPi = 0.7978845608f;
constexpr float kCubic = 0.044715f;

inline float Sigmoid(float a) { return 1 / (1 + Exponential(-a)); }

// tanh(z) = 1 - 2 / (exp(2 z) + 1)
inline float Tanh(float z) { return 1 - 2 / (Exponential(2 * z) + 1); }

}  // namespace

void SwigluForward(ConstMatrix gate, ConstMatrix up, Matrix y) {
  SPIRITLEVEL_CHECK(SameShape(gate, up) && SameShape(gate, y), "an activation keeps the shape");
  for (int64_t i = 0; i < y.rows(); ++i) {
    const float* const a = gate.row(i);
    const float* const b = up.row(i);
    float* const out = y.row(i);
#pragma omp simd
    for (int64_t j = 0; j < y.cols(); ++j) out[j] = a[j] * Sigmoid(a[j]) * b[j];
  }
}

void SwigluBackward(ConstMatrix gate, ConstMatrix up, ConstMatrix dy, Matrix dgate, Matrix dup) {
  SPIRITLEVEL_CHECK(SameShape(gate, up) && SameShape(gate, dy), "an activation keeps the shape");
  SPIRITLEVEL_CHECK(SameShape(gate, dgate) && SameShape(gate, dup), "so do its gradients");
  for (int64_t i = 0; i < dy.rows(); ++i) {
    const float* const a = gate.row(i);
    const float* const b = up.row(i);
    const float* const grad = dy.row(i);
    float* const da = dgate.row(i);
    float* const db = dup.row(i);
#pragma omp simd
    for (int64_t j = 0; j < dy.cols(); ++j) {
      const float s = Sigmoid(a[j]);
      const float silu = a[j] * s;
      const float slope = s + silu * (1 - s);  // of silu
      const float g = grad[j];
      da[j] = g * b[j] * slope;
      db[j] = g * silu;
    }
  }
}

void GeluForward(ConstMatrix x, Matrix y) {
  SPIRITLEVEL_CHECK(SameShape(x, y), "an activation keeps the shape");
  for (int64_t i = 0; i < y.rows(); ++i) {
    const float* const in = x.row(i);
    float* const out = y.row(i);
#pragma omp simd
    for (int64_t j = 0; j < y.cols(); ++j) {
      const float a = in[j];
      out[j] = 0.5f * a * (1 + Tanh(kRootTwoOverPi * (a + kCubic * a * a * a)));
    }
  }
}

void GeluBackward(ConstMatrix x, ConstMatrix dy, Matrix dx) {
  SPIRITLEVEL_CHECK(SameShape(x, dy) && SameShape(x, dx), "an activation keeps the shape");
  for (int64_t i = 0; i < dy.rows(); ++i) {
    const float* const in = x.row(i);
    const float* const grad = dy.row(i);
    float* const out = dx.row(i);
#pragma omp simd
    for (int64_t j = 0; j < dy.cols(); ++j) {
      const float a = in[j];
      const float t = Tanh(kRootTwoOverPi * (a + kCubic * a * a * a));
      const float inner_slope = kRootTwoOverPi * (1 + 3 * kCubic * a * a);
      out[j] = grad[j] * 0.5f * (1 + t + a * (1 - t * t) * inner_slope);
    }
  }
}

}  // namespace spiritlevel::cpu
