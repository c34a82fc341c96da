// Wave templates: each micro-batch is launched at a planned time and moves through the stages and
// back at a planned speed, so that waves cross without waiting for each other.
#pragma once

#include "sim/search/plan.h"
#include "sim/search/problem.h"

namespace spiritlevel {

struct Waves {
  // Micro-batch j is launched at grid * floor(j * rate + phase), or at j * rate * grid if the grid
  // is not kept.
  double grid = 0;  // ns
  double rate = 1;
  double phase = 0;
  // So many are launched one grid step after the other, and then none for as long as the rate asks.
  int32_t burst = 1;
  bool keeps_grid = true;
  double forward_slack = 0;  // of each hop, in its forward's time
  double backward_slack = 0;
  double turn_slack = 0;  // between the last forward and the first backward, likewise
};

// Each rank's turns by planned time; a forward that memory has no room for is taken later. False:
// on some rank nothing is left that fits.
bool MakeWaves(const SearchProblem& problem, const Waves& waves, Plan* plan);

}  // namespace spiritlevel
