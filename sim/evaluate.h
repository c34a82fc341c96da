// The flat evaluator: a Schedule's times straight from its order arrays, under ideal posting,
// without a Program. Building a graph costs more than replaying it, so search and sweeps use this;
// a test holds it equal to the engines.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/costs.h"
#include "sim/program.h"
#include "sim/schedule.h"

namespace spiritlevel {

class Evaluator {
 public:
  struct Result {
    TimeNs makespan = 0;              // of the first iteration, tail included
    TimeNs max_rank_span = 0;         // of the first iteration, over ranks
    TimeNs period = 0;                // see Evaluate()
    std::vector<TimeNs> first_start;  // by rank, first iteration
    std::vector<TimeNs> last_end;     // by rank, first iteration, without tail
    std::vector<Bytes> peak_bytes;    // by rank, static memory included
  };

  // Prepares what does not depend on the order; evaluate many times. Scratch memory is kept
  // between calls. `costs` must outlive it.
  explicit Evaluator(const Costs& costs);

  // Plays `iterations` in a row. `period` is the largest distance over ranks between the first op
  // of the last iteration and that of the one before it; 0 for a single iteration.
  const Result& Evaluate(const Schedule& schedule, Tail tail, int iterations = 1);

 private:
  struct OpCost {
    TimeNs duration = 0;
    Bytes grow = 0;
    Bytes shrink = 0;
  };

  struct RankState {
    size_t next = 0;
    TimeNs free = 0;
    TimeNs first_start = 0;
    Bytes live = 0;
    Bytes peak = 0;
    size_t waits_for = 0;
  };

  // Where what an op makes goes: over a link to another rank, or (link kNone) within the rank.
  struct Hop {
    int32_t link = -1;
    int32_t to_rank = 0;
  };

  const OpCost& CostOf(const Op& op) const {
    return op_costs_[op.stage * cost_stage_stride_ +
                     static_cast<size_t>(op.micro_batch) * cost_micro_batch_stride_ +
                     static_cast<size_t>(op.pass)];
  }

  void PrepareHops(const Schedule& schedule);
  void StartIteration(const Schedule& schedule);
  void RunRank(const Schedule& schedule, int rank);
  size_t InputSlot(const Op& op) const;
  void Deliver(const Op& op, TimeNs end);
  TimeNs ApplyTail(Tail tail);

  const Costs& costs_;
  std::vector<OpCost> op_costs_;
  size_t cost_stage_stride_ = kNumPasses;
  size_t cost_micro_batch_stride_ = 0;

  // By stage (and micro-batch, for bidirectional placements): forwards, then backwards.
  std::vector<Hop> hops_;
  size_t hop_stage_stride_ = 1;
  size_t hop_micro_batch_stride_ = 0;
  size_t backward_hops_ = 0;

  // arrivals_[slot]: when the input of a forward (or, in the second half, of a backward) of a
  // stage and micro-batch is there. kNotYet until known.
  std::vector<TimeNs> arrivals_;
  size_t backward_arrivals_ = 0;
  size_t micro_batches_ = 0;

  std::vector<RankState> ranks_;
  std::vector<TimeNs> link_free_;
  std::vector<int> runnable_;
  Result result_;
};

}  // namespace spiritlevel
