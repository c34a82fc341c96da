// Which token goes to which expert. Internal to the model.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

void SoftmaxRows(Matrix logits);
// Replaces the gradients of the probabilities by those of the logits.
void SoftmaxRowsInputGrad(ConstMatrix probabilities, Matrix gradients);

// Each row's `top_k` largest columns, of equal ones the first, ask for a slot: all rows for their
// largest, then all for their next, until an expert's `capacity` slots are filled.
// token_of_slot[e * capacity + i], i < filled[e], is a row. Slots that stay empty have -1.
void FillSlots(ConstMatrix probabilities, int64_t top_k, int64_t capacity,
               std::span<int32_t> token_of_slot, std::span<int32_t> filled);

// values *= factor; and the same with the dot product of `with` and the values before.
void Scale(float factor, int64_t count, float* values);
float DotAndScale(const float* with, float factor, int64_t count, float* values);

}  // namespace spiritlevel::cpu
