// The costs that belong to a hop, an op or a rank rather than to a stage. A file may give each of
// them in one of four places: at the top level, in costs, or in uniform or table.
// Internal to scenarios/.
#pragma once

#include "models/slices.h"
#include "proto/scenario.pb.h"
#include "scenarios/place.h"

namespace spiritlevel {

// Fills `common` and `sums`. Throws InputError, naming both places, where one is given twice. What
// is not given is 0.
void ReadSharedCosts(const proto::Scenario& scenario, const Judge& judge, ModelSlices* slices);

// Throws InputError for the first that is given at the top level: beside a model they say nothing.
void RefuseSharedCosts(const proto::Scenario& scenario, const Judge& judge);

}  // namespace spiritlevel
