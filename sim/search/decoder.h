// Decoder: plays a Plan, placing W's as it goes. The hot loop of a search.
//
//   Decoder decoder(problem);
//   if (decoder.Decode(plan) < best) best_orders = decoder.OrdersOf(plan);
//
// Under ideal posting, each op as early as it can, as the engines do: a test holds its times equal
// to theirs. Scratch memory is kept between calls; one for each thread.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/search/plan.h"
#include "sim/search/problem.h"

namespace spiritlevel {

// Plan::turns[rank][index].
struct PlacedTurn {
  int rank = 0;
  int32_t index = 0;
};

class Decoder {
 public:
  static constexpr TimeNs kInfeasible = std::numeric_limits<TimeNs>::max();

  explicit Decoder(const SearchProblem& problem);

  // The objective; kInfeasible where the plan deadlocks or does not fit into a rank's memory.
  TimeNs Decode(const Plan& plan);

  // The complete order of a plan that Decode() has found feasible.
  Orders OrdersOf(const Plan& plan);

  // What the end of the rank that decides the objective hangs on, from the last turn to the first:
  // each could not start before the end of the next. The plan must have been found feasible.
  void FindCriticalTurns(const Plan& plan, std::vector<PlacedTurn>* turns);

  // Plans decoded, and attempts that came to none: what a budget by count counts.
  int64_t num_attempts() const { return num_attempts_; }
  void CountAttempt() { ++num_attempts_; }

  // Of the last plan decoded, by rank.
  TimeNs span(int rank) const { return ranks_[rank].free - ranks_[rank].first; }
  TimeNs end(int rank) const { return ranks_[rank].free; }

 private:
  struct OpCost {
    TimeNs duration = 0;  // launch included
    Bytes grow = 0;
    Bytes shrink = 0;
  };

  struct Chunk {
    int stage = 0;
    int32_t forwards = 0;
    int32_t backwards = 0;
    TimeNs* forward_in = nullptr;   // by place in the order; null for the first stage
    TimeNs* backward_in = nullptr;  // null for the last
    TimeNs* forward_out = nullptr;
    TimeNs* backward_out = nullptr;
    int forward_reader = -1;  // the rank; itself where the neighbour stage is its own
    int backward_reader = -1;
    TimeNs* forward_link = nullptr;
    TimeNs* backward_link = nullptr;
    const OpCost* costs = nullptr;  // by micro-batch, by pass
  };

  struct PendingW {
    const OpCost* cost = nullptr;
    int32_t stage = 0;
    int32_t micro_batch = 0;
  };

  struct LoggedTurn {
    int32_t turn = 0;  // its index
    int32_t stage = 0;
    int32_t place = 0;
    bool forward = false;
    bool waited = false;  // for its input, and not for its rank
  };

  struct Rank {
    const Turn* next = nullptr;
    const Turn* end = nullptr;
    TimeNs free = 0;
    TimeNs first = -1;
    Bytes live = 0;
    const TimeNs* waits_for = nullptr;
    uint32_t w_head = 0;
    uint32_t w_tail = 0;
  };

  template <bool kRecord>
  bool Play(const Plan& plan);
  template <bool kRecord>
  bool RunRank(int rank, const Plan& plan);
  template <bool kRecord>
  bool RunW(int rank);
  void Deliver(TimeNs* out, int reader, TimeNs* link, int rank, TimeNs end);
  void Reset(const Plan& plan);
  TimeNs Value(const Plan& plan);
  size_t LogPlace(int stage, bool forward, int32_t place) const;
  TimeNs Period(const Plan& plan);

  SearchProblem problem_;
  int ranks_count_ = 0;
  int chunks_count_ = 0;
  int32_t micro_batches_ = 0;
  size_t cost_stride_ = 0;  // between micro-batches
  TimeNs latency_ = 0;
  TimeNs busy_ = 0;
  TimeNs launch_ = 0;
  std::vector<OpCost> costs_;
  std::vector<TimeNs> arrivals_;  // forwards, then backwards; by stage and place
  std::vector<TimeNs> links_;     // by rank: to the ranks it sends to
  std::vector<Chunk> chunks_;     // by rank
  std::vector<Rank> ranks_;
  std::vector<Bytes> room_;
  std::vector<TimeNs> tail_;  // by rank: its optimizer step
  std::vector<std::vector<PendingW>> pending_;
  std::vector<int> runnable_;
  Orders recorded_;
  std::vector<std::vector<LoggedTurn>> log_;  // by rank
  std::vector<int32_t> logged_at_;            // by LogPlace(): where in its rank's log
  int64_t num_attempts_ = 0;
};

}  // namespace spiritlevel
