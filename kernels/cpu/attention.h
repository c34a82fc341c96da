// Grouped-query attention of one sequence, without ever holding a matrix of its scores.
//
// Scores are made a tile at a time and folded into the output by a running maximum and sum (Milakov
// and Gimelshein 2018, algorithm 3; Dao et al. 2022, algorithm 1). B makes each tile again from Q,
// K and one number a row, the logarithm of its sum of exponentials (Dao 2023, section 3.1.2):
// memory grows with the sequence, not with its square.
//
//   Q, out, dQ, dOut [sequence, heads * head_dim]     K, V, dK, dV [sequence, kv_heads * head_dim]
//   log_sum_exp [heads, sequence]
//
//   P = softmax(scale Q K^T), out = P V
//   dV = P^T dOut,  dS = P (dOut V^T - rowsum(dOut out)),  dQ = scale dS K,  dK = scale dS^T Q
//
// Query heads h * heads / kv_heads ... share K and V head h. Attention has no parameters: all of
// its backward belongs to B. Floating-point operations, where every key is seen: 4 sequence^2 heads
// head_dim forward, 10 backward; causal ones need about half.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

struct AttentionShape {
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;
  bool causal = true;
  float scale = 0;  // 0: 1 / sqrt(head_dim)
};

// Floats of scratch space for one call of either function.
int64_t AttentionWorkspace(const AttentionShape& shape);

void AttentionForward(const AttentionShape& shape, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                      Matrix out, std::span<float> log_sum_exp, std::span<float> workspace);

// Overwrites dq, dk and dv.
void AttentionBackward(const AttentionShape& shape, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                       ConstMatrix out, std::span<const float> log_sum_exp, ConstMatrix dout,
                       Matrix dq, Matrix dk, Matrix dv, std::span<float> workspace);

}  // namespace spiritlevel::cpu
