// Inside the schedule checker: can these orders run at all?
#pragma once

#include <string>

#include "sim/analysis/check_orders.h"

namespace spiritlevel::check {

// Empty when rank orders and dependencies have no cycle; otherwise one cycle in words, a line for
// each rank in it, with a bar where the rank stops for good.
std::string DescribeDeadlock(const FlatOrders& orders);

}  // namespace spiritlevel::check
