// What `spiritlevel schedules` and `spiritlevel simulate` print.
#pragma once

#include <string>

#include "report/result.h"

namespace spiritlevel {

// Every named schedule with its placement, constraint, formulas and source.
std::string ListSchedules();

// All numbers of one schedule, rank by rank where there are at most 16 of them; what its formulas
// say beside what was simulated. Of one that did not run, the reason.
std::string DescribeResult(const Result& result, const Comparison& comparison);

}  // namespace spiritlevel
