// What an iteration does to the numbers that all ranks hold alike: step, learning rate, loss scale.
#pragma once

#include <cstdint>

#include "kernels/cpu/optimizer.h"
#include "verify/checkpoint.h"
#include "verify/model_plan.h"
#include "verify/transaction_prefix.h"

namespace spiritlevel {

// Of the loss, a power of two, so that scaling back loses nothing: halved at an overflow, doubled
// after so many steps without one (0: never).
struct LossScaling {
  float first = 1;
  int64_t steps_until_growth = 0;
};

// Before the task's first iteration.
TrainingScalars FirstScalars(const TrainingTask& task, const LossScaling& scaling);

// Behind an iteration. One that has overflowed makes no step: the rate stays where it is.
TrainingScalars After(const TrainingTask& task, const LossScaling& scaling,
                      const TrainingScalars& before, bool has_overflow);

// Of the gradients as the model means them, with the loss scale taken out.
double NormOf(const SquaredNorm& norm, const TrainingScalars& scalars);
// Without overflow, and nothing to clip.
bool IsWithin(const TrainingTask& task, const SquaredNorm& norm, const TrainingScalars& scalars);

// What the gradients are multiplied with: the loss scale taken out, and clipped by the full norm.
float GradientFactor(const TrainingTask& task, const SquaredNorm& full,
                     const TrainingScalars& scalars);
// The same where nothing is clipped: what an eager step takes.
inline float UnclippedFactor(const TrainingScalars& scalars) { return 1.0f / scalars.loss_scale; }

cpu::AdamW OptionsOf(const TrainingTask& task, const TrainingScalars& scalars);

}  // namespace spiritlevel
