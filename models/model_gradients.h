// The sums of gradients that a run of a model ends with. Internal to models/.
#pragma once

#include <vector>

#include "models/architecture.h"
#include "models/device_profile.h"
#include "models/model_costs.h"
#include "models/stage_blocks.h"
#include "sim/costs.h"

namespace spiritlevel {

// Every member sends and receives, in a ring, 2 (members - 1) messages that together hold
// 2 (members - 1) / members of `bytes`, at the speed of a hand-over between two ranks. Nothing
// takes no time.
GradientSum RingSum(Bytes bytes, int members, const DeviceProfile& profile);

GradientSums SumsOf(const Architecture& architecture, const ModelRun& run,
                    const std::vector<StageBlocks>& stages, const DeviceProfile& profile);

}  // namespace spiritlevel
