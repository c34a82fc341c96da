// Cross-entropy of logits against target tokens, and its gradient.
//
//   logits [rows, vocabulary]: what the head, a linear layer, makes of the last hidden states
//   loss[i] = log(sum_j exp(logits[i, j])) - logits[i, target[i]]
//   d loss[i] / d logits[i, j] = softmax(logits[i])[j] - (j == target[i])
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

inline constexpr int32_t kIgnoredTarget = -1;  // its loss and gradient are 0

// In F: the losses, and the one number a row from which the gradient can be made later.
void CrossEntropyForward(std::span<const int32_t> targets, ConstMatrix logits, float* losses,
                         float* log_sum_exp);

// In B: replaces the logits, which are large and needed no more, by `scale` times the gradient;
// `scale` is 1 / (number of tokens) for a mean. Losses are not scaled.
void CrossEntropyBackward(std::span<const int32_t> targets, const float* log_sum_exp, float scale,
                          Matrix logits);

// Both in one pass, with one exponential an element instead of two: for a runtime that takes the
// gradient in F already.
void CrossEntropyFused(std::span<const int32_t> targets, float scale, Matrix logits, float* losses);

}  // namespace spiritlevel::cpu
