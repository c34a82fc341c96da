// Faults to inject, so that tests can say what becomes of each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"
#include "sim/program.h"

namespace spiritlevel {

enum class FaultKind : uint8_t {
  kLoseMessage,    // it leaves, and never arrives
  kDelayMessage,   // it arrives `delay` later; the run goes on, and what it computes is the same
  kDoubleMessage,  // it arrives twice
  kWrongMessage,   // it arrives under the number of another
  kKillRank,       // the rank dies before it runs the node: a process by SIGKILL, a thread silently
  kStallRank,      // the rank goes no further: a process is stopped, a thread waits
  kFailWork,       // the work throws
};

std::string_view Name(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kFailWork;
  NodeId node = kNone;  // of a rank's compute lane; of faults of messages, what makes the message
  int replica = 0;
  TimeNs delay = 0;
};

}  // namespace spiritlevel
