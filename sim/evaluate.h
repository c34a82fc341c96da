// The flat evaluator: a Schedule's times straight from its order arrays, under ideal posting,
// without a Program. Building a graph costs more than replaying it, so search and sweeps use this;
// a test holds it equal to the engines.
#pragma once

#include <vector>

#include "sim/costs.h"
#include "sim/program.h"
#include "sim/schedule.h"

namespace spiritlevel {

class Evaluator {
 public:
  struct Result {
    TimeNs makespan = 0;             // of the first iteration, tail included
    TimeNs max_rank_span = 0;        // of the first iteration, over ranks
    TimeNs period = 0;               // see below
    std::vector<TimeNs> first_start; // by rank, first iteration
    std::vector<TimeNs> last_end;    // by rank, first iteration, without tail
    std::vector<Bytes> peak_bytes;   // by rank, static memory included
  };

  // Keeps what can be prepared once; evaluate many times. Scratch memory is reused between calls.
  explicit Evaluator(const Costs& costs) : costs_(costs) {}

  // Plays `iterations` in a row; `period` is the largest distance over ranks between the first F
  // of the last two, or 0 when there is only one.
  const Result& Evaluate(const Schedule& schedule, Tail tail, int iterations = 1);

 private:
  const Costs& costs_;
  Result result_;
  std::vector<TimeNs> arrival_;
};

}  // namespace spiritlevel
