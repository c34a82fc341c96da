// `model { ... }` of a scenario file -> ModelForm. Internal to scenarios/.
#pragma once

#include "proto/scenario.pb.h"
#include "scenarios/place.h"
#include "scenarios/scenario.h"
#include "scenarios/source.h"

namespace spiritlevel {

// `shape` has ranks and micro-batches, already checked. Reads the config too, which lies beside the
// source; the profile it only names. Every number of the result is in range, and there are layers
// for one stage a rank.
ModelForm ReadModel(const proto::Model& message, const Scenario& shape, const Source& source,
                    Judge* judge);

}  // namespace spiritlevel
