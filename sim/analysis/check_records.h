// Inside the timeline checker: what it keeps of the events, for the rules that need all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "sim/analysis/check_findings.h"
#include "sim/event.h"

namespace spiritlevel::check {

struct OpRecord {
  TimeNs start = 0;
  TimeNs end = 0;
  int32_t iteration = 0;
  int32_t rank = 0;
  int32_t parameter_version = 0;
  Op op;
};

struct MessageEnd {
  TimeNs start = 0;
  TimeNs end = 0;
  Bytes bytes = 0;
  int32_t id = 0;
  int32_t rank = 0;
  int32_t peer = 0;
  int32_t iteration = 0;
  int32_t parameter_version = 0;
  Op op;  // what it carries is this op's result
  bool receives = false;
};

struct TimelineRecords {
  std::vector<OpRecord> ops;
  std::vector<MessageEnd> message_ends;
};

// pass_count, version, message and dependency.
void CheckDataFlow(const TimelineRecords& records, FindingList& findings);

}  // namespace spiritlevel::check
