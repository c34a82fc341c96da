// A certificate as every JSON of ours has it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "sim/search/bound.h"

namespace spiritlevel {

// Adds `lower_bound_ns`, `lower_bound_reason`, `gap` and `proved_optimal`, in this order; each null
// where there is no certificate.
void AddCertificate(const std::optional<Certificate>& certificate, nlohmann::ordered_json* json);

}  // namespace spiritlevel
