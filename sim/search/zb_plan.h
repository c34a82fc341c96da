// ZbPlan: what the zero-bubble heuristics write on. Ops are put one after another, each as early as
// its rank's last op and its input allow; the plan keeps the times, the idle time and the memory.
//
//   ZbPlan plan(problem);               // linear or V; throws where nothing at all would fit
//   plan.MakeRoom(0, Pass::kF);         // W first, where the limit asks for it
//   plan.Put(0, Pass::kF);              // the stage's next forward
//   plan.ArrivalOfNext(1, Pass::kF);    // when the next rank could start it
//   plan.TakeOrders();
//
// Ops of one stage and pass run in the order of the micro-batches, and W in the order in which
// their B ran on the rank. Durations include the launch; a hop takes latency and busy time, but
// nothing queues for a link here: how long an order really takes, the Evaluator says.
//
// Memory. Whatever is put leaves the rank able to go on to the end: the oldest micro-batch that is
// not done can always be finished, if need be after all waiting W, and any waiting W can run at
// once. So a heuristic that leaves out an F which does not fit, and tries again later, never gets
// stuck, at any limit that holds the largest micro-batch by itself.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "base/units.h"
#include "sim/costs.h"
#include "sim/evaluate.h"
#include "sim/op.h"
#include "sim/schedule.h"
#include "sim/search/problem.h"

namespace spiritlevel {

// What the ops of a rank hold at most when it runs one micro-batch after the other, each pass as
// soon as it can: with less room there is no schedule.
Bytes LeastRoom(const Placement& placement, const Costs& costs, int rank);

// The limits that the zero-bubble papers give in activations: on each rank `times` p activations of
// a rank's share, those of its largest micro-batch, and what stays on it all the time. An op's
// workspace comes on top, so that so many activations really fit.
std::vector<Bytes> LimitsInActivations(const Placement& placement, const Costs& costs, int times);

// The largest number in a queue.
class QueueMax {
 public:
  void Push(Bytes value) {
    while (!falling_.empty() && falling_.back() < value) falling_.pop_back();
    falling_.push_back(value);
  }
  void Pop(Bytes oldest) {  // the value that was pushed first
    if (falling_.front() == oldest) falling_.pop_front();
  }
  Bytes value() const { return falling_.empty() ? 0 : falling_.front(); }  // at least 0

 private:
  std::deque<Bytes> falling_;  // those that no later one exceeds
};

class ZbPlan {
 public:
  explicit ZbPlan(const SearchProblem& problem);

  static constexpr TimeNs kUnknown = -1;

  int ranks() const { return placement_.ranks; }
  int micro_batches() const { return micro_batches_; }
  int lower_stage(int rank) const { return rank; }
  int upper_stage(int rank) const { return placement_.num_stages() - 1 - rank; }  // V

  // How many F (or B) of the stage are put: its next one's micro-batch.
  int count(int stage, Pass pass) const { return ends_[RowOf(stage, pass)].count; }
  bool is_done(int stage, Pass pass) const { return count(stage, pass) == micro_batches_; }

  // The rank's last op.
  TimeNs end(int rank) const { return ranks_[rank].end; }
  TimeNs end_of(int stage, Pass pass, int micro_batch) const {
    return ends_[RowOf(stage, pass)].of[micro_batch];
  }
  // Idle since its first F.
  TimeNs bubble(int rank) const { return ranks_[rank].bubble; }
  TimeNs max_bubble() const { return max_bubble_; }
  TimeNs hop() const { return hop_; }
  TimeNs Duration(int stage, Pass pass, int micro_batch) const {
    return launch_ + costs_.of(stage, micro_batch).duration(pass);
  }
  TimeNs DurationOfNext(int stage, Pass pass) const {
    return Duration(stage, pass, count(stage, pass));
  }

  // When the input of the stage's next F or B is there; kUnknown while what makes it is not put. 0
  // where it needs nothing but its own rank's earlier ops.
  TimeNs ArrivalOfNext(int stage, Pass pass) const;
  // Is there a next F or B, with all its inputs put?
  bool IsReady(int stage, Pass pass) const;

  Bytes live(int rank) const { return ranks_[rank].live; }
  Bytes room(int rank) const { return ranks_[rank].room; }
  Bytes activation(int stage, int micro_batch) const {
    return costs_.of(stage, micro_batch).activation;
  }
  // Could the stage's next F be put, now or after all waiting W?
  bool CanFit(int stage) const;
  // How many of them could be put now in a row. Linear only.
  int ForwardsThatFit(int stage) const;
  // What the waiting W take that must run before the next F of the stage fits.
  TimeNs TimeToMakeRoom(int stage) const;
  // Runs W until the stage's next F or B fits. F: only where CanFit().
  void MakeRoom(int stage, Pass pass);

  bool has_waiting_w(int rank) const { return ranks_[rank].next_w < ranks_[rank].waiting.size(); }
  TimeNs DurationOfW(int rank) const;
  void PutW(int rank);
  void PutAllW(int rank);
  // Runs W while the oldest ends no later than `until`.
  void PutWUntil(int rank, TimeNs until);

  // Requires that it is ready and fits.
  void Put(int stage, Pass pass);

  Orders TakeOrders();

 private:
  struct Row {
    int count = 0;
    std::vector<TimeNs> of;  // ends, by micro-batch
  };

  struct Waiting {
    int stage = 0;
    int micro_batch = 0;
  };

  struct Rank {
    TimeNs end = 0;
    TimeNs bubble = 0;
    Bytes room = 0;
    Bytes live = 0;
    Bytes waiting_bytes = 0;
    std::vector<Waiting> waiting;  // for W, since the beginning
    size_t next_w = 0;
    // Of what can run next, what it needs above what is live: of those waiting for their W; for
    // both their B (V); for their last B.
    QueueMax of_w;
    QueueMax of_both;
    QueueMax of_last_b;
    std::vector<Op> ops;
  };

  size_t RowOf(int stage, Pass pass) const {
    return static_cast<size_t>(stage) * 2 + (pass == Pass::kF ? 0 : 1);
  }
  bool is_v() const { return placement_.stages_per_rank == 2; }
  bool is_upper(int stage) const { return stage >= ranks(); }
  const StageCost& next(int stage, Pass pass) const { return costs_.of(stage, count(stage, pass)); }

  Bytes NeededByLaterPasses(int rank, int micro_batch) const;
  Bytes NeededByNextForward(int stage) const;
  bool UpperForwardsWouldFit(int stage) const;
  bool Fits(int stage, Pass pass) const;
  bool BackwardFits(int stage) const;
  void Account(int stage, Pass pass, int micro_batch);
  void Append(Rank& rank, const Op& op, TimeNs arrival);

  const Placement placement_;
  const Costs& costs_;
  const int micro_batches_;
  const TimeNs hop_;
  const TimeNs launch_;
  TimeNs max_bubble_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Row> ends_;  // by stage; F, then B
};

// Keeps the order with the least span on any rank, as the Evaluator has it; the first of equals.
class LeastSpan {
 public:
  explicit LeastSpan(const Costs& costs);

  // True if it is kept.
  bool Offer(const Orders& orders);
  TimeNs span() const { return span_; }  // of the one kept
  Orders TakeOrders() { return std::move(orders_); }

 private:
  Costs costs_;  // without sums of gradients, which the Evaluator plays none of and no span has
  Evaluator evaluator_;
  TimeNs span_ = 0;
  Orders orders_;
};

}  // namespace spiritlevel
