// SwiGLU and GELU: formulas as in kernels/cpu/activation.h.
#pragma once

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/groups.h"

namespace spiritlevel::cuda {

SPIRITLEVEL_HOST_DEVICE inline float Sigmoid(float a) { return 1 / (1 + Exponential(-a)); }
// tanh(z) = 1 - 2 / (exp(2 z) + 1)
SPIRITLEVEL_HOST_DEVICE inline float Tanh(float z) { return 1 - 2 / (Exponential(2 * z) + 1); }

inline constexpr float kRootTwoOverPi = 0.7978845608f;
inline constexpr float kGeluCubic = 0.044715f;

SPIRITLEVEL_HOST_DEVICE inline float Gelu(float a) {
  return 0.5f * a * (1 + Tanh(kRootTwoOverPi * (a + kGeluCubic * a * a * a)));
}

SPIRITLEVEL_HOST_DEVICE inline float GeluSlope(float a) {
  const float t = Tanh(kRootTwoOverPi * (a + kGeluCubic * a * a * a));
  const float inner_slope = kRootTwoOverPi * (1 + 3 * kGeluCubic * a * a);
  return 0.5f * (1 + t + a * (1 - t * t) * inner_slope);
}

template <typename T>
struct SwigluForwardGroup {
  Rows<const T> gate;
  Rows<const T> up;
  Rows<T> y;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    const Pack a = gate.Load(row, col, count);
    const Pack b = up.Load(row, col, count);
    Pack out;
    for (int k = 0; k < kGroup; ++k) out.at[k] = a.at[k] * Sigmoid(a.at[k]) * b.at[k];
    y.Store(row, col, count, out);
  }
};

template <typename T>
struct SwigluBackwardGroup {
  Rows<const T> gate;
  Rows<const T> up;
  Rows<const T> dy;
  Rows<T> dgate;
  Rows<T> dup;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    const Pack a = gate.Load(row, col, count);
    const Pack b = up.Load(row, col, count);
    const Pack g = dy.Load(row, col, count);
    Pack da;
    Pack db;
    for (int k = 0; k < kGroup; ++k) {
      const float s = Sigmoid(a.at[k]);
      const float silu = a.at[k] * s;
      const float slope = s + silu * (1 - s);  // of silu
      da.at[k] = g.at[k] * b.at[k] * slope;
      db.at[k] = g.at[k] * silu;
    }
    dgate.Store(row, col, count, da);
    dup.Store(row, col, count, db);
  }
};

template <typename T>
struct GeluForwardGroup {
  Rows<const T> x;
  Rows<T> y;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    Pack pack = x.Load(row, col, count);
    for (int k = 0; k < kGroup; ++k) pack.at[k] = Gelu(pack.at[k]);
    y.Store(row, col, count, pack);
  }
};

template <typename T>
struct GeluBackwardGroup {
  Rows<const T> x;
  Rows<const T> dy;
  Rows<T> dx;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    Pack pack = x.Load(row, col, count);
    const Pack g = dy.Load(row, col, count);
    for (int k = 0; k < kGroup; ++k) pack.at[k] = g.at[k] * GeluSlope(pack.at[k]);
    dx.Store(row, col, count, pack);
  }
};

template <typename Grid>
void Compute(const SwigluForward& call, const Grid& grid) {
  WithStorage(call.y.type, [&](auto element) {
    using T = decltype(element);
    RunGroups(SwigluForwardGroup<T>{RowsOf<const T>(call.gate), RowsOf<const T>(call.up),
                                    RowsOf<T>(call.y)},
              ExtentOf(call.gate, call.up, call.y), grid);
  });
}

template <typename Grid>
void Compute(const SwigluBackward& call, const Grid& grid) {
  WithStorage(call.dy.type, [&](auto element) {
    using T = decltype(element);
    RunGroups(SwigluBackwardGroup<T>{RowsOf<const T>(call.gate), RowsOf<const T>(call.up),
                                     RowsOf<const T>(call.dy), RowsOf<T>(call.dgate),
                                     RowsOf<T>(call.dup)},
              ExtentOf(call.gate, call.up, call.dy, call.dgate, call.dup), grid);
  });
}

template <typename Grid>
void Compute(const GeluForward& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    RunGroups(GeluForwardGroup<T>{RowsOf<const T>(call.x), RowsOf<T>(call.y)},
              ExtentOf(call.x, call.y), grid);
  });
}

template <typename Grid>
void Compute(const GeluBackward& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    RunGroups(
        GeluBackwardGroup<T>{RowsOf<const T>(call.x), RowsOf<const T>(call.dy), RowsOf<T>(call.dx)},
        ExtentOf(call.x, call.dy, call.dx), grid);
  });
}

}  // namespace spiritlevel::cuda
