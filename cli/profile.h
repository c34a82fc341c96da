// Joins a scenario with the device profile that its model needs, and says where all of it is from.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "report/result.h"

namespace spiritlevel {

// `profile` is the user's --profile, or empty: then the one that the scenario names. Throws
// InputError where a model has neither, and where typed costs have one. `file` is the scenario's.
LoadedScenario WithProfile(Scenario scenario, const std::string& file, const std::string& profile);

// With the layers of each number of stages that some result has.
Provenance WithSplits(LoadedScenario loaded, const std::vector<Result>& results);

}  // namespace spiritlevel
