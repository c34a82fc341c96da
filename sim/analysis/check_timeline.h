// The timeline checker: judges events, predicted or measured, by the rules of pipeline training
// alone. It sees no Program, no Costs and no Schedule, so it cannot repeat their mistakes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "sim/analysis/check_schedule.h"
#include "sim/analysis/stalls.h"
#include "sim/event.h"

namespace spiritlevel {

// Feed it every event of an iteration range, in any order that keeps each rank's compute lane in
// order; then ask. Rules, by name:
//   overlap          a rank runs one compute-lane node at a time, none ends before it starts
//   dependency       an op starts before an input was computed, or before it could have arrived
//   message          every send has its receive under one id, both ends agree on ranks and bytes,
//                    an input from another rank came by a message, which left after it was made
//   pass_count       each (stage, micro-batch, iteration) has F once and BW, or B and W, once
//   version          one parameter version per micro-batch and iteration along all stages, F to W
//   early_optimizer  an optimizer step before all W of all its rank's chunks are done
//   ledger           categories sum to the live total; after of one event is before of the next
//   negative_memory  a category below zero
//   memory_limit     live memory above the limit, named with rank, op, bytes and category
class TimelineChecker {
 public:
  explicit TimelineChecker(std::optional<Bytes> memory_limit);
  ~TimelineChecker();
  TimelineChecker(TimelineChecker&&) noexcept;

  void Add(const Event& event);
  std::vector<Finding> Finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::vector<Finding> CheckTimeline(std::span<const Event> events,
                                   std::optional<Bytes> memory_limit);

// busy + stalls = makespan on each rank ("accounts"), with busy and makespan recomputed from the
// first iteration's events.
std::vector<Finding> CheckAccounts(std::span<const Event> events, const StallReport& report);

}  // namespace spiritlevel
