// Nodes of a Program in words, for messages.
#pragma once

#include <string>

#include "verify/lane_plan.h"
#include "verify/routes.h"

namespace spiritlevel {

// "1BW3", "(0F7;7BW3)", "part 1 of 0W3", "the optimizer step", "the send of 0F3 to rank 1".
std::string NameOf(const LanePlan& plan, const Routes& routes, NodeId node);
// The same and " of iteration 2".
std::string NameWithIteration(const LanePlan& plan, const Routes& routes, NodeId node);

}  // namespace spiritlevel
