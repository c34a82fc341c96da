// Isolated times of a tail that validates behind the step: what its pieces take by themselves.
//
//   const TailTimes times = TimeTail(task, {{0}, {1}}, {.cores = {0, 1}, ...});
//   times.rollbacks[0];   // of rank 0
//
// Each rank trains its stages on one micro-batch again and again, on made-up inputs, under the very
// tail that a run has (transaction_tail.h). Every second norm passes the threshold in the last
// stage. All ranks do the same piece at the same time. Passes are not timed here (isolated.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "verify/isolated.h"
#include "verify/model_plan.h"
#include "verify/transaction_tail.h"

namespace spiritlevel {

// By rank: each that counts, of all stages of the rank together.
struct TailTimes {
  // Squared norms, published and handed to the reduction. The rank's own core forms them, between
  // its last op and its step.
  std::vector<std::vector<TimeNs>> contributions;
  // Before the norm is known, with the snapshot that is taken before.
  std::vector<std::vector<TimeNs>> steps;
  // What the reduction comes to, the verdict that the step was right, and clearing the gradients.
  std::vector<std::vector<TimeNs>> settlements;
  // The same where it was not: steps are taken back and made again.
  std::vector<std::vector<TimeNs>> rollbacks;
  int cycles = 0;  // each with a version that is kept, and one that is rejected
};

// `stages_of` by rank. Of `options` all but the budget's passes counts: cycles until it is spent.
TailTimes TimeTail(const TrainingTask& task, const std::vector<std::vector<int>>& stages_of,
                   const IsolatedOptions& options);

// The task with a threshold that no gradient's norm comes near: what is rejected is what a fault
// makes so.
TrainingTask WithDistantThreshold(TrainingTask task);

// Puts a number into the last stage's gradient of `iteration` that passes even a distant threshold;
// no stage before it can know.
GradientFault FaultBehindAll(const TrainingTask& task, int64_t iteration);

}  // namespace spiritlevel
