// The arithmetic inverse of AdamWStep(): no memory, at the price of some digits.
//
//   p = (p' + rate direction) / (1 - rate weight_decay)       with the direction of the new moments
//   m = (m' - (1 - beta1) g) / beta1                          g = clip * grad
//   v = (v' - (1 - beta2) g^2) / beta2, or 0 if that is below
//
// docs/numerics.md says how much is lost; before the first step the moments were 0, and are again.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/optimizer.h"

namespace spiritlevel::cpu {

// With the arguments that the step had. rate * weight_decay < 1, both betas above 0.
void UndoAdamWStep(const AdamW& options, int64_t step, float clip, std::span<const float> grads,
                   std::span<float> parameters, std::span<float> first_moment,
                   std::span<float> second_moment);

}  // namespace spiritlevel::cpu
