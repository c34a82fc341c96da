#include "kernels/cpu/model/routing.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/largest.h"

namespace spiritlevel::cpu {
namespace {

// The column that is `rank`-th in descending order, of equal ones the first. Experts are few.
int64_t ColumnOfRank(const float* row, int64_t cols, int64_t rank) {
  for (int64_t j = 0; j < cols; ++j) {
    int64_t before = 0;
    for (int64_t i = 0; i < cols; ++i) before += row[i] > row[j] || (row[i] == row[j] && i < j);
    if (before == rank) return j;
  }
  // NaN is neither above nor below: such a row's loss says so, its route does not matter.
  return rank;
}

}  // namespace

void SoftmaxRows(Matrix logits) {
  for (int64_t i = 0; i < logits.rows(); ++i) {
    float* const row = logits.row(i);
    const float largest = Largest(row, logits.cols());
    float sum = 0;
    for (int64_t j = 0; j < logits.cols(); ++j) {
      row[j] = Exponential(row[j] - largest);
      sum += row[j];
    }
    for (int64_t j = 0; j < logits.cols(); ++j) row[j] /= sum;
  }
}

void SoftmaxRowsInputGrad(ConstMatrix probabilities, Matrix gradients) {
  for (int64_t i = 0; i < gradients.rows(); ++i) {
    const float* const p = probabilities.row(i);
    float* const g = gradients.row(i);
    float mean = 0;
    for (int64_t j = 0; j < gradients.cols(); ++j) mean += p[j] * g[j];
    for (int64_t j = 0; j < gradients.cols(); ++j) g[j] = p[j] * (g[j] - mean);
  }
}

void FillSlots(ConstMatrix probabilities, int64_t top_k, int64_t capacity,
               std::span<int32_t> token_of_slot, std::span<int32_t> filled) {
  SPIRITLEVEL_CHECK(static_cast<int64_t>(filled.size()) == probabilities.cols() &&
                        token_of_slot.size() == filled.size() * static_cast<size_t>(capacity),
                    "each expert has its slots");
  std::ranges::fill(token_of_slot, -1);
  std::ranges::fill(filled, 0);
  for (int64_t choice = 0; choice < top_k; ++choice) {
    for (int64_t token = 0; token < probabilities.rows(); ++token) {
      const int64_t expert = ColumnOfRank(probabilities.row(token), probabilities.cols(), choice);
      int32_t& used = filled[static_cast<size_t>(expert)];
      if (used == capacity) continue;
      token_of_slot[static_cast<size_t>(expert * capacity + used)] = static_cast<int32_t>(token);
      ++used;
    }
  }
}

void Scale(float factor, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

float DotAndScale(const float* with, float factor, int64_t count, float* values) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t i = 0; i < count; ++i) {
    dot += with[i] * values[i];
    values[i] *= factor;
  }
  return dot;
}

}  // namespace spiritlevel::cpu
