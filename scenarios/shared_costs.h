// The costs that belong to a hop, an op or a rank rather than to a stage. A file may give each of
// them in one of four places: at the top level, in costs, or in uniform or table.
// Internal to scenarios/.
#pragma once

#include "proto/scenario.pb.h"
#include "scenarios/place.h"
#include "sim/costs.h"

namespace spiritlevel {

// Throws InputError, naming both places, where one is given twice. What is not given is 0.
Costs::Common ReadSharedCosts(const proto::Scenario& scenario, const Judge& judge);

}  // namespace spiritlevel
