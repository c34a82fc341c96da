// Inside the timeline checker: the data flow among ops that ran on rejected parameters.
#pragma once

#include <vector>

#include "sim/analysis/check_findings.h"
#include "sim/analysis/check_records.h"

namespace spiritlevel::check {

// rejection: each dropped op ran once, on what dropped ops had made and, where that was elsewhere,
// a message had brought; every message has both its ends; and the op is run again on its rank.
// `kept` are the ops that are not dropped.
void CheckDropped(const TimelineRecords& dropped, const std::vector<OpRecord>& kept,
                  FindingList& findings);

}  // namespace spiritlevel::check
