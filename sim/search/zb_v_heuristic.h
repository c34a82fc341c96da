// The automatic ZB-V: the scheduler of arXiv 2401.10241, section 6, for V placement (two stages on
// each rank), with each stage's and micro-batch's own costs. The handcrafted ZB-V is in
// sim/schedules.
//
//   SearchProblem problem{.placement = {PlacementForm::kV, 8, 2}, .costs = &costs};
//   problem.limits = LimitsInActivations(problem.placement, costs, 1);
//   const Schedule schedule(BestZbVHeuristic(problem));     // what ZbVAuto(costs) gives
//
// First the F of a few micro-batches, so that each rank has work for the time in which its first B
// is on its way; then in turn on every rank a B and an F, with W where they fit into the gaps.
//
// Whether a gap is worth a W it judges by the gaps of all ranks up to then. So it is run again with
// what each rank idled in the end, as long as that helps. It is made for p activations of a rank's
// share. With less, F that do not fit are put later, where the authors' gives up.
#pragma once

#include "sim/costs.h"
#include "sim/op.h"
#include "sim/schedule.h"
#include "sim/search/problem.h"
#include "sim/search/stop_sign.h"

namespace spiritlevel {

struct ZbVOptions {
  // A gap shorter than a W, before an F or before a B of the upper stage, gets one if idling would
  // cost something. Before a B of the lower stage it always does.
  bool fill_before_b = true;
  bool fill_before_f = true;
  bool rerun = true;  // as long as it helps
};

// One set of options, with its reruns: those that end before `stop` is up, of none of them no
// orders. Throws InputError, naming the least feasible limit, where a rank's limit does not hold
// one micro-batch.
Orders ZbVHeuristic(const SearchProblem& problem, const ZbVOptions& options,
                    const StopSign& stop = {});

// The best of the options' four combinations by the largest rank span, the first of equals.
Orders BestZbVHeuristic(const SearchProblem& problem, const StopSign& stop = {});

// That with p activations of a rank's share on each rank (see LimitsInActivations); p is half the
// stages.
Schedule ZbVAuto(const Costs& costs);

}  // namespace spiritlevel
