// Whether a run fits in memory, asked before it takes any.
#pragma once

#include "base/units.h"
#include "cli/play.h"
#include "scenarios/scenario.h"

namespace spiritlevel {

// What playing and judging takes, measured and rounded up; see docs/speed.md.
Bytes MemoryOfRun(const Scenario& scenario, const ScheduleChoice& choice, int iterations);

// What ops done bucket by bucket take on top of that, where gradients are summed so.
Bytes MemoryOfParts(const Costs& costs, int copies, WeightGrads weight_grads, int iterations);

// Throws InputError where those make the run larger than memory, or than its numbers of nodes go.
void RefuseTooManyParts(const Schedule& schedule, const Costs& costs, WeightGrads weight_grads,
                        int iterations);

// Throws InputError unless the times of that many iterations, summed over ranks, stay below 2^62
// ns.
void RefuseOverflow(const Schedule& schedule, const Costs& costs, int iterations);

// Throws InputError with a number of micro-batches that does fit, unless this machine has that
// much.
void RefuseWhatDoesNotFit(const Scenario& scenario, const ScheduleChoice& choice, int iterations);

}  // namespace spiritlevel
