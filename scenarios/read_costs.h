// `costs { ... }` of a scenario file -> ModelSlices. Internal to scenarios/.
#pragma once

#include "models/slices.h"
#include "proto/scenario.pb.h"
#include "scenarios/place.h"

namespace spiritlevel {

// `ranks` and `micro_batches` are those of the scenario, already checked. Every number of the
// result is in range; sums over an iteration are not looked at. Warns of a backward whose weight
// gradients were probably never split off.
ModelSlices ReadCosts(const proto::Scenario& scenario, int ranks, int micro_batches, Judge* judge);

}  // namespace spiritlevel
