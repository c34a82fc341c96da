// The flat evaluator: a Schedule's times straight from its order arrays, under ideal posting,
// without a Program. Building a graph costs more than replaying it, so search and sweeps use this;
// a test holds it equal to the engines.
#pragma once

#include <cstdint>
#include <span>
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
    const Op* next = nullptr;
    const Op* end = nullptr;
    TimeNs free = 0;
    Bytes live = 0;
    Bytes peak = 0;
    size_t waits_for = 0;  // a slot of arrivals_
  };

  // Where what an op makes goes: over a link to another rank, or one of these.
  static constexpr int32_t kWithinRank = -1;
  static constexpr int32_t kNowhere = -2;  // the last stage's forward, the first's backward
  struct Hop {
    int32_t link = kNowhere;
    int32_t to_rank = 0;
  };

  // Where an op's entries stand in the flat arrays.
  struct Layout {
    // In op_costs_: by stage, by micro-batch if they differ, by pass.
    size_t cost_stage_stride = kNumPasses;
    size_t cost_micro_batch_stride = 0;
    // In hops_: forwards, then backwards; by stage, and by micro-batch for bidirectional
    // placements.
    size_t hop_stage_stride = 1;
    size_t hop_micro_batch_stride = 0;
    size_t backward_hops = 0;
    // In arrivals_: forwards, then backwards; by stage, by micro-batch.
    size_t micro_batches = 0;
    size_t backward_arrivals = 0;

    size_t Cost(const Op& op) const;
    size_t Hop(const Op& op) const;    // of an F, B or BW
    size_t Input(const Op& op) const;  // likewise
  };

  class Walk;  // the hot loop

  void Prepare(const Schedule& schedule);
  void PrepareHops(const Schedule& schedule);
  void StartIteration(const Schedule& schedule);
  TimeNs FirstStart(std::span<const Op> ops, TimeNs lane_free) const;
  TimeNs ApplyTail(Tail tail);

  const Costs& costs_;
  Layout layout_;
  std::vector<OpCost> op_costs_;
  std::vector<Hop> hops_;
  // When the input of a forward or backward of a stage and micro-batch is there; kNotYet until
  // known.
  std::vector<TimeNs> arrivals_;
  std::vector<RankState> ranks_;
  std::vector<TimeNs> link_free_;
  std::vector<int> runnable_;
  Result result_;
};

}  // namespace spiritlevel
