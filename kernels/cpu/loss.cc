#include "kernels/cpu/loss.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/largest.h"

namespace spiritlevel::cpu {
namespace {

// False for a row that does not count.
bool Counts(int32_t target, int64_t vocabulary) {
  if (target == kIgnoredTarget) return false;
  SPIRITLEVEL_CHECK(target >= 0 && target < vocabulary, "a target is in the vocabulary");
  return true;
}

void CheckRows(std::span<const int32_t> targets, ConstMatrix logits) {
  SPIRITLEVEL_CHECK(static_cast<int64_t>(targets.size()) == logits.rows() && logits.cols() > 0,
                    "one target for each row of logits");
}

void Multiply(float factor, float* row, int64_t count) {
  for (int64_t j = 0; j < count; ++j) row[j] *= factor;
}

}  // namespace

void CrossEntropyForward(std::span<const int32_t> targets, ConstMatrix logits, float* losses,
                         float* log_sum_exp) {
  CheckRows(targets, logits);
  for (int64_t i = 0; i < logits.rows(); ++i) {
    const float* const row = logits.row(i);
    const float largest = Largest(row, logits.cols());
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < logits.cols(); ++j) sum += Exponential(row[j] - largest);
    const float log_sum = std::log(sum);
    log_sum_exp[i] = largest + log_sum;
    // Not log_sum_exp[i] - row[target]: large logits would eat the digits of a small loss.
    losses[i] = Counts(targets[i], logits.cols()) ? log_sum - (row[targets[i]] - largest) : 0.0f;
  }
}

void CrossEntropyBackward(std::span<const int32_t> targets, const float* log_sum_exp, float scale,
                          Matrix logits) {
  CheckRows(targets, logits);
  for (int64_t i = 0; i < logits.rows(); ++i) {
    float* const row = logits.row(i);
    if (!Counts(targets[i], logits.cols())) {
      std::fill_n(row, logits.cols(), 0.0f);
      continue;
    }
    const float shift = log_sum_exp[i];
#pragma omp simd
    for (int64_t j = 0; j < logits.cols(); ++j) row[j] = scale * Exponential(row[j] - shift);
    row[targets[i]] -= scale;
  }
}

void CrossEntropyFused(std::span<const int32_t> targets, float scale, Matrix logits,
                       float* losses) {
  CheckRows(targets, logits);
  const int64_t cols = logits.cols();
  for (int64_t i = 0; i < logits.rows(); ++i) {
    float* const row = logits.row(i);
    if (!Counts(targets[i], cols)) {
      std::fill_n(row, cols, 0.0f);
      losses[i] = 0;
      continue;
    }
    const float largest = Largest(row, cols);
    const float chosen = row[targets[i]] - largest;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < cols; ++j) {
      row[j] = Exponential(row[j] - largest);
      sum += row[j];
    }
    losses[i] = std::log(sum) - chosen;
    Multiply(scale / sum, row, cols);
    row[targets[i]] -= scale;
  }
}

}  // namespace spiritlevel::cpu
