// Joins a scenario with the device profile that its model needs, and says where all of it is from.
#pragma once

#include <string>
#include <vector>

#include "calibrate/calibration.h"
#include "cli/options.h"
#include "report/result.h"

namespace spiritlevel {

// `profile` is the user's --profile, or empty: then the one that the scenario names. Throws
// InputError where a model has neither, and where typed costs have one. `file` is the scenario's.
LoadedScenario WithProfile(Scenario scenario, const std::string& file, const std::string& profile);

// What is read for a scenario: its own file, its model's config, and the profile that it names.
std::vector<std::string> FilesOf(const Scenario& scenario, const std::string& file);

// LoadProfile(), which says of a model's config that it is one.
Calibration LoadTheProfile(const std::string& file);

// With the layers of each placement that some result has, and what those mean for a tied embedding.
Provenance WithSplits(LoadedScenario loaded, const std::vector<Result>& results);

}  // namespace spiritlevel
