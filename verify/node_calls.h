// What a node asks of its rank's work, as far as that follows from the Program alone.
#pragma once

#include "verify/lane_plan.h"
#include "verify/work.h"

namespace spiritlevel {

ValidationCall ValidationAt(const Program& program, NodeId node, int rank);

// `member` of a collective, on one of `replicas`.
SumCall SumCallOf(const LanePlan& plan, NodeId member, int replica, int replicas);

}  // namespace spiritlevel
