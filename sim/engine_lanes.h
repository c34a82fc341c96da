// The two engines for Programs with communication lanes of their own. engine.h picks them.
#pragma once

#include "sim/program.h"
#include "sim/timeline.h"

namespace spiritlevel {

Timeline SimulateLanesInOrder(const Program& program);
Timeline SimulateLanesByQueue(const Program& program);

}  // namespace spiritlevel
