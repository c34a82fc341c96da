// What a run of a model takes for granted, in words.
#pragma once

#include <string>
#include <vector>

#include "models/model_costs.h"

namespace spiritlevel {

// What is kept from pass to pass, where gradients are formed, and what a parameter takes; a line
// each.
std::vector<std::string> AssumptionsOf(const ModelRun& run);

}  // namespace spiritlevel
