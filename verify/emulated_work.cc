#include "verify/emulated_work.h"

#include <algorithm>
#include <utility>

#include "verify/clock.h"

namespace spiritlevel {

Bytes LedgerMeter::TakePeakBytes() { return std::exchange(peak_, live_); }

void LedgerMeter::AccountFor(NodeId node) {
  const int32_t cost = program_.nodes()[node].cost;
  if (cost == kNone) return;
  live_ += program_.costs()[cost].grow;
  peak_ = std::max(peak_, live_);
  live_ -= program_.costs()[cost].shrink;
}

Payload EmulatedWork::RunOp(OpCall& call) {
  Take(call.node, call.start);
  return {};
}

std::pair<Payload, Payload> EmulatedWork::RunPair(OpCall& first, OpCall&) {
  Take(first.node, first.start);
  return {};
}

bool EmulatedWork::Validate(const ValidationCall& call) {
  meter_.AccountFor(call.node);
  return !call.rejected;
}

void EmulatedWork::Take(NodeId node, TimeNs start) {
  meter_.AccountFor(node);
  const int32_t cost = program_.nodes()[node].cost;
  if (cost != kNone) WaitUntil(start + program_.costs()[cost].duration, stopping_);
}

}  // namespace spiritlevel
