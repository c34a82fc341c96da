// Attention's calls as its kernels take them.
#pragma once

#include <climits>
#include <cmath>

#include "base/check.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/attention_softmax.h"

namespace spiritlevel::cuda {

// A matrix whose rows are tokens, sequence after sequence, and whose columns are heads.
template <typename T>
struct HeadMatrix {
  T* data;
  int64_t stride;

  // The elements of one head, those of the next token `stride` behind.
  SPIRITLEVEL_HOST_DEVICE T* At(const AttentionGeometry& g, int batch, int head, int token) const {
    const int64_t row = static_cast<int64_t>(batch) * g.sequence + token;
    return data + row * stride + static_cast<int64_t>(head) * g.head_dim;
  }
};

// A matrix [batch heads, sequence] of one number for each row of queries.
template <typename T>
struct RowNumbers {
  T* data;
  int64_t stride;

  SPIRITLEVEL_HOST_DEVICE T* At(const AttentionGeometry& g, int batch, int head) const {
    return data + (static_cast<int64_t>(batch) * g.heads + head) * stride;
  }
};

template <typename T>
struct ForwardArguments {
  AttentionGeometry g;
  HeadMatrix<const T> q;
  HeadMatrix<const T> k;
  HeadMatrix<const T> v;
  HeadMatrix<T> out;
  RowNumbers<float> log_sum_exp;
};

template <typename T>
struct BackwardArguments {
  AttentionGeometry g;
  HeadMatrix<const T> q;
  HeadMatrix<const T> k;
  HeadMatrix<const T> v;
  HeadMatrix<const T> out;
  RowNumbers<const float> log_sum_exp;
  HeadMatrix<const T> dout;
  HeadMatrix<T> dq;
  HeadMatrix<T> dk;
  HeadMatrix<T> dv;
  RowNumbers<float> delta;  // rowsum(dOut out), in the workspace
};

inline AttentionGeometry GeometryOf(const AttentionShape& s) {
  SPIRITLEVEL_CHECK(s.head_dim <= kMostHeadDim, "a head has at most 256 columns");
  SPIRITLEVEL_CHECK(s.sequence <= INT_MAX / 2 && s.batch * s.heads <= INT_MAX,
                    "a device's kernel counts in 32 bits");
  const float scale = s.scale != 0 ? s.scale : 1 / std::sqrt(static_cast<float>(s.head_dim));
  return {.batch = static_cast<int>(s.batch),
          .sequence = static_cast<int>(s.sequence),
          .heads = static_cast<int>(s.heads),
          .kv_heads = static_cast<int>(s.kv_heads),
          .head_dim = static_cast<int>(s.head_dim),
          .causal = s.causal,
          .scale = scale};
}

template <typename T>
HeadMatrix<T> HeadsOf(const View& view) {
  return {static_cast<T*>(view.data), view.stride};
}
template <typename T>
RowNumbers<T> NumbersOf(const View& view) {
  return {static_cast<T*>(view.data), view.stride};
}

template <typename T>
ForwardArguments<T> ArgumentsOf(const AttentionForward& call) {
  return {.g = GeometryOf(call.shape),
          .q = HeadsOf<const T>(call.q),
          .k = HeadsOf<const T>(call.k),
          .v = HeadsOf<const T>(call.v),
          .out = HeadsOf<T>(call.out),
          .log_sum_exp = NumbersOf<float>(call.log_sum_exp)};
}

template <typename T>
BackwardArguments<T> ArgumentsOf(const AttentionBackward& call) {
  return {.g = GeometryOf(call.shape),
          .q = HeadsOf<const T>(call.q),
          .k = HeadsOf<const T>(call.k),
          .v = HeadsOf<const T>(call.v),
          .out = HeadsOf<const T>(call.out),
          .log_sum_exp = NumbersOf<const float>(call.log_sum_exp),
          .dout = HeadsOf<const T>(call.dout),
          .dq = HeadsOf<T>(call.dq),
          .dk = HeadsOf<T>(call.dk),
          .dv = HeadsOf<T>(call.dv),
          .delta = {static_cast<float*>(call.workspace.data), call.shape.sequence}};
}

// Whether rows are read 16 bytes at a time, as the kernels for tensor cores do.
inline bool FitsTensorCores(const View& view, int64_t head_dim) {
  return view.type == ElementType::kBFloat16 && head_dim % 8 == 0 && view.stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}
inline bool FitsTensorCores(const AttentionForward& call) {
  for (const View* const view : {&call.q, &call.k, &call.v, &call.out}) {
    if (!FitsTensorCores(*view, call.shape.head_dim)) return false;
  }
  return true;
}
inline bool FitsTensorCores(const AttentionBackward& call) {
  for (const View* const view :
       {&call.q, &call.k, &call.v, &call.out, &call.dout, &call.dq, &call.dk, &call.dv}) {
    if (!FitsTensorCores(*view, call.shape.head_dim)) return false;
  }
  return true;
}

}  // namespace spiritlevel::cuda
