// ZB-1p and ZB-2p: the automatic scheduler of "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241,
// section 3.1) for linear placement, with each stage's and micro-batch's own costs.
//
//   SearchProblem problem{.placement = {.ranks = 8}, .costs = &costs};
//   problem.limits = LimitsInActivations(problem.placement, costs, 2);
//   const Schedule schedule(BestZbHeuristic(problem));      // what Zb2p(costs) gives
//
// It goes micro-batch by micro-batch: on every rank an F, then on every rank a B, each as early as
// it can, with W where they fit into the gaps or where the limit asks for them. With room for p
// activations and more it is mostly optimal; with less it comes close to running one rank after the
// other.
//
// What is different from the authors': times are those of each stage and not the median's, limits
// are in bytes and of each rank, and an F that does not fit is left out for a round where theirs
// gives up.
#pragma once

#include "sim/costs.h"
#include "sim/op.h"
#include "sim/schedule.h"
#include "sim/search/problem.h"
#include "sim/search/stop_sign.h"

namespace spiritlevel {

struct ZbOptions {
  // A rank takes no more F before its first B than end before that B can start; else it takes one
  // more, and the B waits.
  bool allow_gap_before_first_b = true;
  // An F is put off where it would delay a B of the rank, and waiting for that costs nothing.
  bool prioritize_b = true;
  // A gap shorter than a W gets one even where waiting would cost nothing.
  bool greedy_w = true;
};

// One run; no orders where `stop` was up before its end. Throws InputError, naming the least
// feasible limit, where a rank's limit does not hold one micro-batch.
Orders ZbHeuristic(const SearchProblem& problem, const ZbOptions& options,
                   const StopSign& stop = {});

// The best of the options' eight combinations by the largest rank span, the first of equals; of
// those that end before `stop` is up.
Orders BestZbHeuristic(const SearchProblem& problem, const StopSign& stop = {});

// That with p and 2p activations on each rank (see LimitsInActivations), one stage a rank.
Schedule Zb1p(const Costs& costs);
Schedule Zb2p(const Costs& costs);

}  // namespace spiritlevel
