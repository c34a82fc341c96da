#include "verify/transaction_scalars.h"

#include <algorithm>
#include <cmath>

namespace spiritlevel {
namespace {

constexpr float kSmallestLossScale = 0x1p-20f;
constexpr float kLargestLossScale = 0x1p40f;

}  // namespace

TrainingScalars FirstScalars(const TrainingTask& task, const LossScaling& scaling) {
  return {
      .consumed_samples = task.first_sample, .rate = RateOf(task, 0), .loss_scale = scaling.first};
}

TrainingScalars After(const TrainingTask& task, const LossScaling& scaling,
                      const TrainingScalars& before, bool has_overflow) {
  TrainingScalars after = before;
  ++after.iteration;
  after.consumed_samples += task.samples_per_step();
  if (has_overflow) {
    after.loss_scale = std::max(kSmallestLossScale, before.loss_scale / 2);
    after.good_steps = 0;
    return after;
  }
  ++after.step;
  ++after.good_steps;
  after.rate = RateOf(task, after.step);
  if (scaling.steps_until_growth > 0 && after.good_steps % scaling.steps_until_growth == 0) {
    after.loss_scale = std::min(kLargestLossScale, 2 * before.loss_scale);
  }
  return after;
}

double NormOf(const SquaredNorm& norm, const TrainingScalars& scalars) {
  return std::sqrt(norm.sum) / double{scalars.loss_scale};
}

bool IsWithin(const TrainingTask& task, const SquaredNorm& norm, const TrainingScalars& scalars) {
  if (norm.has_overflow) return false;
  return task.clip_norm == 0 || NormOf(norm, scalars) <= task.clip_norm;
}

float GradientFactor(const TrainingTask& task, const SquaredNorm& full,
                     const TrainingScalars& scalars) {
  const float unclipped = UnclippedFactor(scalars);
  if (task.clip_norm == 0) return unclipped;
  return cpu::ClipCoefficient(NormOf(full, scalars), task.clip_norm) * unclipped;
}

cpu::AdamW OptionsOf(const TrainingTask& task, const TrainingScalars& scalars) {
  cpu::AdamW options = task.adamw;
  options.rate = scalars.rate;
  return options;
}

}  // namespace spiritlevel
