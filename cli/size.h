// Whether a run fits in memory, asked before it takes any.
#pragma once

#include "base/units.h"
#include "cli/play.h"
#include "scenarios/scenario.h"

namespace spiritlevel {

// What playing and judging takes, measured and rounded up; see docs/speed.md.
Bytes MemoryOfRun(const Scenario& scenario, const ScheduleChoice& choice, int iterations);

// Throws InputError unless the times of that many iterations, summed over ranks, stay below 2^62
// ns.
void RefuseOverflow(const Schedule& schedule, const Costs& costs, int iterations);

// Throws InputError with a number of micro-batches that does fit, unless this machine has that
// much.
void RefuseWhatDoesNotFit(const Scenario& scenario, const ScheduleChoice& choice, int iterations);

}  // namespace spiritlevel
