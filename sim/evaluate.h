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
  // of the last iteration and that of the one before it; 0 for a single iteration. `tail` is none
  // or barrier, and no gradients are summed: what runs beside compute needs a Program and an
  // engine.
  const Result& Evaluate(const Schedule& schedule, Tail tail, int iterations = 1);

 private:
  struct OpCost {
    TimeNs duration = 0;
    Bytes grow = 0;
    Bytes shrink = 0;
  };

  // An entry of arrivals_: when the input of a forward or backward of a stage and micro-batch is
  // there; kNotYet until known.
  using Arrival = TimeNs;

  struct RankState {
    const Op* next = nullptr;
    const Op* end = nullptr;
    TimeNs free = 0;
    Bytes live = 0;
    Bytes peak = 0;
    const Arrival* waits_for = nullptr;
    TimeNs optimizer = 0;
  };

  // How what an op makes reaches the rank that waits for it.
  struct Hop {
    TimeNs* link_free = nullptr;  // null: the reader is on the same rank
    RankState* reader = nullptr;
  };

  // What is known of the ops of one stage and pass, of micro-batch 0 where they differ: pointers
  // rather than indices, since working those out would take longer than all the rest.
  struct Row {
    const OpCost* cost = nullptr;
    Arrival* in = nullptr;   // by micro-batch; null for W, whose rank's own order suffices
    Arrival* out = nullptr;  // likewise; null where nobody waits for what it makes
    const Hop* hop = nullptr;
  };

  class Walk;  // the hot loop

  void Prepare(const Schedule& schedule);
  void PrepareHops(const Schedule& schedule);
  void PrepareRows(int stages);
  void StartIteration(const Schedule& schedule);
  TimeNs FirstStart(std::span<const Op> ops, TimeNs lane_free) const;
  TimeNs ApplyTail(Tail tail);

  const Costs& costs_;
  // By stage, by micro-batch where they differ, by pass.
  std::vector<OpCost> op_costs_;
  size_t cost_stage_stride_ = kNumPasses;
  size_t cost_micro_batch_stride_ = 0;

  // Forwards, then backwards; by stage, and by micro-batch for bidirectional placements.
  std::vector<Hop> hops_;
  size_t hop_stage_stride_ = 1;
  size_t hop_micro_batch_stride_ = 0;

  // Forwards, then backwards; by stage, by micro-batch.
  std::vector<Arrival> arrivals_;
  size_t micro_batches_ = 0;

  std::vector<Row> rows_;  // by stage, by pass
  std::vector<RankState> ranks_;
  std::vector<TimeNs> link_free_;
  std::vector<RankState*> runnable_;
  Result result_;
};

}  // namespace spiritlevel
