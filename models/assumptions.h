// What a run of a model takes for granted, in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/architecture.h"
#include "models/model_costs.h"

namespace spiritlevel {

// What is kept from pass to pass, where gradients are formed, and what a parameter takes; a line
// each.
std::vector<std::string> AssumptionsOf(const ModelRun& run);

// With the kernels of this model that are priced as others: profiles time RMSNorm, the activation
// of a gated MLP, and attention over all tokens before.
std::vector<std::string> AssumptionsOf(const Architecture& architecture, const ModelRun& run);

// `placements` as words: those in which two ranks hold it.
std::string TiedEmbeddingLine(int64_t parameters, std::string_view placements);

}  // namespace spiritlevel
