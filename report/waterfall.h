// Waterfall: from the step that the work alone would take to the step that was simulated, by
// counterfactual: the same schedule is played again and again, each time with one more of the
// things that make it slow.
//
//   ideal       the mean over ranks of the time their ops take
//   imbalance   to the same of the rank that has most: no order can be faster than its own work
//   schedule    to the period of this order, its inputs there as soon as they are computed:
//   messages
//               take no time and are never blocked (posting `ideal`), ops start without a launch
//               delay, and nothing stands between iterations: no barrier, no sums of gradients, no
//               optimizer
//   transfer    to the same with messages as they are, posted as asked for
//   launch      to the same with each op's launch delay
//   tail        to the step: with sums of gradients (also what it costs to do a W bucket by bucket
//               for them), the barrier or whatever else judges them, and the optimizer
//
// Each part is the difference of two such times, so they sum to the step to the nanosecond. The
// first three are never negative. The others may be, since a fixed order can profit from a delay
// elsewhere and a period read off a few iterations need not have settled; then they are shown so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "base/units.h"
#include "sim/costs.h"
#include "sim/program.h"
#include "sim/schedule.h"

namespace spiritlevel {

enum class WaterfallPart : uint8_t { kIdeal, kImbalance, kSchedule, kTransfer, kLaunch, kTail };

inline constexpr int kNumWaterfallParts = 6;

std::string_view Name(WaterfallPart part);  // "imbalance"

struct Waterfall {
  std::array<TimeNs, kNumWaterfallParts> parts{};

  TimeNs operator[](WaterfallPart part) const { return parts[static_cast<size_t>(part)]; }
  TimeNs step() const { return std::accumulate(parts.begin(), parts.end(), TimeNs{0}); }

  friend bool operator==(const Waterfall&, const Waterfall&) = default;
};

// `options` are those that the step was played with (posting, tail, iterations), and `step` what
// came out of it: Summary::step.
Waterfall FindWaterfall(const Schedule& schedule, const Costs& costs,
                        const LoweringOptions& options, TimeNs step);

}  // namespace spiritlevel
