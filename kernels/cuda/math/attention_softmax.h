// The arithmetic of attention's rows: what all of its kernels do with a score.
//
// Scores pass by in tiles, and what was summed under an earlier maximum is brought to the new one
// (Milakov and Gimelshein 2018, algorithm 3; Dao et al. 2022, algorithm 1). Backward makes weights
// again from one number a row (Dao 2023, section 3.1.2). Exponentials are powers of 2, for which
// devices have an instruction; the factor log2(e) goes into the scale.
#pragma once

#include <cmath>

#include "kernels/cuda/math/attention_tiles.h"
#include "kernels/cuda/math/numbers.h"

namespace spiritlevel::cuda {

inline constexpr float kLog2E = 1.44269504f;

SPIRITLEVEL_HOST_DEVICE inline float Infinity() { return FloatOf(0x7F800000u); }

// The device's own has an error of 2^-22.
SPIRITLEVEL_HOST_DEVICE inline float PowerOfTwo(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

// What is known of a row of queries while the keys pass by. Scores are products, not yet scaled.
struct SoftmaxRow {
  float largest = -Infinity();
  float sum = 0;
};

// Takes the largest score of the next tile, which must not be -inf in a row's first. Returns what
// everything that was summed for the row is to be multiplied by; `sum` has been.
SPIRITLEVEL_HOST_DEVICE inline float RaiseLargest(SoftmaxRow* row, float largest_of_tile,
                                                  float scale_log2) {
  const float before = row->largest;
  const float largest = before > largest_of_tile ? before : largest_of_tile;
  const float shrink = PowerOfTwo((before - largest) * scale_log2);  // of the first tile: 0
  row->largest = largest;
  row->sum *= shrink;
  return shrink;
}

// exp(scale (score - largest)); `shift` is largest * scale_log2, or in backward the row's
// log_sum_exp * log2(e), and then this is the softmax itself. 0 for a score of -inf.
SPIRITLEVEL_HOST_DEVICE inline float WeightOf(float score, float scale_log2, float shift) {
  return PowerOfTwo(score * scale_log2 - shift);
}

SPIRITLEVEL_HOST_DEVICE inline float LogSumExpOf(const SoftmaxRow& row, float scale) {
  return row.largest * scale + logf(row.sum);
}

// dS = P (dP - delta), delta = rowsum(dOut out). The scale is left to the sums over dS.
SPIRITLEVEL_HOST_DEVICE inline float ScoreGradient(float weight, float weight_gradient,
                                                   float delta) {
  return weight * (weight_gradient - delta);
}

// A number as it goes into a product: tensor cores take what is stored.
template <typename T>
SPIRITLEVEL_HOST_DEVICE inline float AsOperand(float value) {
  return ToFloat(FromFloat<T>(value));
}

}  // namespace spiritlevel::cuda
