// What one rank by itself needs at least, between its first op's start and its last op's end.
#pragma once

#include "sim/search/bound_paths.h"

namespace spiritlevel {

enum class RankReason : uint8_t { kWork, kWay, kEnds, kCycle, kHeld };

struct RankBound {
  TimeNs span = 0;              // start of the first op, launch included, to end of the last
  TimeNs to_last_backward = 0;  // and to the end of the last B or BW
  RankReason reason = RankReason::kWork;  // of `span`
};

// `thorough`: time in the square of the number of items, else about in proportion to it and
// somewhat lower.
RankBound BoundOf(const RankItems& items, bool thorough);

}  // namespace spiritlevel
