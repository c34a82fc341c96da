// What a played schedule comes to: the numbers of the comparison's row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/stalls.h"
#include "sim/costs.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "sim/timeline.h"

namespace spiritlevel {

struct Summary {
  // Of the first iteration.
  TimeNs makespan = 0;         // tail included
  TimeNs max_rank_span = 0;    // the zero-bubble papers' "cost"
  double bubble_rate = 0;      // (largest rank span - largest busy time) / largest rank span
  double bubble_fraction = 0;  // idle share of ranks * makespan
  StallReport stalls{};
  std::vector<Bytes> peak_bytes{};             // by rank, static memory included
  std::vector<Bytes> peak_activation_bytes{};  // by rank, waiting for B or W
  int peak_waiting_b = 0;  // stage activations between start of F and end of B, fullest rank
  int peak_waiting_w = 0;  // between start of B and end of W; a BW counts while it runs
  int64_t messages = 0;
  Bytes pp_bytes = 0;  // sent between ranks

  // Of the last two of max(iterations, 4) iterations: the largest distance over ranks from first F
  // to first F. The step is that period under the chosen tail.
  TimeNs period = 0;
  TimeNs step = 0;

  int parameter_copies = 1;

  int fullest_rank() const;
  bool fits(std::optional<Bytes> memory_limit) const;
};

// At least this many iterations in a row are played for the period.
inline constexpr int kPeriodIterations = 4;

// The period as `timeline` has it: `program` has at least kPeriodIterations iterations. The flat
// evaluator finds the same without the arrays that so many iterations take; a test says so.
TimeNs PeriodOf(const Program& program, const Timeline& timeline);

// The mean period where a version is rejected with probability `q`. `period_rejected` is PeriodOf()
// a Program of which the last version but two is rejected, `iterations - 3`: from the forwards that
// are dropped to the first forward after the replayed iteration.
TimeNs ExpectedPeriod(TimeNs period_ok, TimeNs period_rejected, double q);

Summary Summarize(const Program& program, const Costs& costs, const Timeline& timeline,
                  TimeNs period);
// With the period of PeriodOf().
Summary Summarize(const Program& program, const Costs& costs, const Timeline& timeline);

}  // namespace spiritlevel
