// Stalls: the cause of every idle nanosecond of every rank. docs/stalls.md states each rule so
// that it can be recomputed by hand.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/costs.h"
#include "sim/program.h"
#include "sim/timeline.h"

namespace spiritlevel {

enum class StallCategory : uint8_t {
  kDependency,  // the producer has not computed it yet: the bubble proper
  kImbalance,   // the part of such a wait that is owed to a stage slower than the mean
  kTransfer,    // computed but not arrived, queueing behind earlier messages included
  kMemory,
  kCollective,
  kOptimizer,
  kLaunch,
};

inline constexpr int kNumStallCategories = 7;

std::string_view Name(StallCategory category);  // "dependency"

using StallsByCategory = std::array<TimeNs, kNumStallCategories>;

// Of the first iteration. On each rank busy[r] + the sum of stalls[r] is the makespan.
struct StallReport {
  TimeNs makespan = 0;
  std::vector<TimeNs> busy;              // by rank: time in ops
  std::vector<StallsByCategory> stalls;  // by rank
};

StallReport AccountForStalls(const Program& program, const Costs& costs, const Timeline& timeline);

}  // namespace spiritlevel
