// Inside the schedule checker: which rank holds what, and what such orders are called.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/check_orders.h"
#include "sim/analysis/check_schedule.h"

namespace spiritlevel::check {

inline constexpr int32_t kNoRank = -1;

struct Placement {
  PlacementKind kind = PlacementKind::kOther;
  int chunks_per_rank = 0;  // of the fullest rank
};

// `rank_of_cell` is kNoRank where a cell has no ops or is itself torn apart; such a cell fits any
// placement, so that one mistake does not hide what the rest is.
Placement DetectPlacement(const FlatOrders& orders, const std::vector<int32_t>& rank_of_cell);

std::string Describe(const FlatOrders& orders, const Placement& placement);

}  // namespace spiritlevel::check
