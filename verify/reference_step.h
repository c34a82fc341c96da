// ReferenceSteps(): a task's training on one rank, by plain loops: no Program, no messages, no
// split of B and W. What any schedule must come to, to the bit.
//
// The one thing that a schedule may decide is in which order the W of a stage are added up, and in
// how many accumulators: GradientOrder.
#pragma once

#include <vector>

#include "sim/schedule.h"
#include "verify/model_plan.h"
#include "verify/model_plan_record.h"

namespace spiritlevel {

// By stage, by rank that holds it, ascending: the micro-batches in the order of their W (or BW).
struct GradientOrder {
  std::vector<std::vector<std::vector<int>>> stages;

  // One rank, micro-batch by micro-batch: 1F1B's.
  static GradientOrder InOrder(const TrainingTask& task);
  static GradientOrder Of(const Schedule& schedule);

  friend bool operator==(const GradientOrder&, const GradientOrder&) = default;
};

struct ReferenceOptions {
  int steps = 1;
  bool has_norm = true;  // a barrier; without, nothing is clipped
};

TrainingRecord ReferenceSteps(const TrainingTask& task, const GradientOrder& order,
                              const ReferenceOptions& options = {});

}  // namespace spiritlevel
