// The schedule checker: judges orders with Boost.Graph, sharing no code with the generators, with
// Schedule, or with the engines.
#pragma once

#include <string>
#include <vector>

#include "sim/op.h"

namespace spiritlevel {

enum class PlacementKind { kLinear, kLooped, kV, kBidirectional, kOther };

// One thing that is wrong, in words. `rule` is a stable name: "missing_pass", "deadlock", ...
struct Finding {
  std::string rule;
  std::string what;
};

struct ScheduleVerdict {
  std::vector<Finding> findings;  // empty: the schedule is legal
  PlacementKind placement = PlacementKind::kOther;
  int ranks = 0;
  int stages = 0;
  int micro_batches = 0;
  int chunks_per_rank = 0;  // of the fullest rank
  // What the file really has, e.g. "4 ranks, 8 stages, two chunks per rank, V placement; F, B, W
  // split; 10 micro-batches", with what it therefore is not: "looped: this is not ZB-V".
  std::string description;

  bool legal() const { return findings.empty(); }
};

// Rules: every rank has ops; each (stage, micro-batch) has F once and either BW once or B and W
// once each ("missing_pass", "doubled_pass"); all on one rank ("split_over_ranks"); an F&B pair
// is an F and a BW side by side ("bad_pair"); rank orders and dependencies have no cycle
// ("deadlock", with the cycle in words).
ScheduleVerdict CheckSchedule(const Orders& orders);

}  // namespace spiritlevel
