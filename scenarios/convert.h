// The whole message -> Scenario. Internal to scenarios/.
#pragma once

#include "proto/scenario.pb.h"
#include "scenarios/scenario.h"
#include "scenarios/source.h"

namespace spiritlevel {

// `source` is what `message` was read from, for the lines in complaints.
Scenario ConvertScenario(const proto::Scenario& message, const Source& source);

}  // namespace spiritlevel
