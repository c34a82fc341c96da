#include "sim/evaluate.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

// Out of line, the steps of the hot loop cost more in saved registers than they do themselves.
#define SPIRITLEVEL_HOT [[gnu::always_inline]] inline

namespace spiritlevel {
namespace {

constexpr TimeNs kNotYet = -1;

}  // namespace

Evaluator::Evaluator(const Costs& costs) : costs_(costs) {
  const int rows = costs.varies_by_micro_batch() ? costs.num_micro_batches() : 1;
  if (costs.varies_by_micro_batch()) {
    cost_micro_batch_stride_ = kNumPasses;
    cost_stage_stride_ = static_cast<size_t>(kNumPasses * rows);
  }
  op_costs_.reserve(static_cast<size_t>(costs.num_stages()) * cost_stage_stride_);
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    for (int i = 0; i < rows; ++i) {
      const StageCost& c = costs.of(stage, i);
      const auto add = [&](Pass pass, Bytes grow, Bytes shrink) {
        const Bytes transient = c.transient[static_cast<size_t>(pass)];
        op_costs_.push_back({c.duration(pass), grow + transient, shrink + transient});
      };
      const Bytes more_for_w = std::max<Bytes>(0, c.weight_state - c.activation);
      add(Pass::kF, c.activation, 0);
      add(Pass::kB, more_for_w, c.activation + more_for_w - c.weight_state);
      add(Pass::kW, 0, c.weight_state);
      add(Pass::kBW, 0, c.activation);
    }
  }
}

// Takes ranks as far as their inputs reach until none can go on.
//
// All it needs lies in the object itself, and the object in registers or on the stack: read through
// the Evaluator, each number would have to be loaded again after each write to an array.
class Evaluator::Walk {
 public:
  explicit Walk(Evaluator& evaluator)
      : costs_(evaluator.costs_),
        hop_busy_(evaluator.costs_.common().hop.busy),
        hop_latency_(evaluator.costs_.common().hop.latency),
        launch_(evaluator.costs_.common().launch),
        cost_stride_(evaluator.cost_micro_batch_stride_),
        hop_stride_(evaluator.hop_micro_batch_stride_),
        rows_(evaluator.rows_.data()),
        runnable_(evaluator.runnable_.data()),
        num_runnable_(evaluator.runnable_.size()) {}

  SPIRITLEVEL_HOT void Run() {
    while (num_runnable_ > 0) RunRank(*runnable_[--num_runnable_]);
  }

 private:
  SPIRITLEVEL_HOT void RunRank(RankState& rank) {
    const Op* next = rank.next;
    const Op* const end = rank.end;
    TimeNs free = rank.free;
    Bytes live = rank.live;
    Bytes peak = rank.peak;
    for (; next != end; ++next) {
      const Op op = *next;
      const Row& row = RowOf(op);
      TimeNs start = free;
      if (row.in != nullptr) {
        if (IsMissing(row.in + op.micro_batch, rank)) break;
        start = std::max(start, row.in[op.micro_batch]);
      }
      const OpCost* cost = &CostOf(row, op);
      OpCost of_pair;
      if (op.overlaps_next) [[unlikely]] {
        const Op second = next[1];
        const Row& second_row = RowOf(second);
        if (IsMissing(second_row.in + second.micro_batch, rank)) break;
        start = std::max(start, second_row.in[second.micro_batch]);
        of_pair = CostOfPair(op, second);
        cost = &of_pair;
      }
      free = start + launch_ + cost->duration;
      live += cost->grow;
      peak = std::max(peak, live);
      live -= cost->shrink;
      Deliver(row, op, free);
      if (op.overlaps_next) [[unlikely]] {
        ++next;
        Deliver(RowOf(*next), *next, free);  // second on a link they share
      }
    }
    rank.next = next;
    rank.free = free;
    rank.live = live;
    rank.peak = peak;
  }

  SPIRITLEVEL_HOT const Row& RowOf(const Op& op) const {
    return rows_[op.stage * size_t{kNumPasses} + static_cast<size_t>(op.pass)];
  }

  SPIRITLEVEL_HOT const OpCost& CostOf(const Row& row, const Op& op) const {
    return row.cost[static_cast<size_t>(op.micro_batch) * cost_stride_];
  }

  OpCost CostOfPair(const Op& first, const Op& second) const {
    const OpCost& a = CostOf(RowOf(first), first);
    const OpCost& b = CostOf(RowOf(second), second);
    return {costs_.overlapped_duration(first, second), a.grow + b.grow, a.shrink + b.shrink};
  }

  SPIRITLEVEL_HOT static bool IsMissing(const Arrival* input, RankState& rank) {
    if (*input != kNotYet) return false;
    rank.waits_for = input;
    return true;
  }

  // What `op` makes is there at `end`.
  SPIRITLEVEL_HOT void Deliver(const Row& row, const Op& op, TimeNs end) {
    if (row.out == nullptr) return;
    Arrival* const arrival = row.out + op.micro_batch;
    const Hop& hop = row.hop[static_cast<size_t>(op.micro_batch) * hop_stride_];
    if (hop.link_free == nullptr) {
      *arrival = end;  // the rank's own order already makes the reader wait
      return;
    }
    const TimeNs link_free = std::max(*hop.link_free, end) + hop_busy_;
    *hop.link_free = link_free;
    *arrival = link_free + hop_latency_;
    if (hop.reader->waits_for != arrival) return;
    hop.reader->waits_for = nullptr;
    runnable_[num_runnable_++] = hop.reader;
  }

  const Costs& costs_;
  const TimeNs hop_busy_;
  const TimeNs hop_latency_;
  const TimeNs launch_;
  const size_t cost_stride_;
  const size_t hop_stride_;
  const Row* const rows_;
  RankState** const runnable_;  // a stack; a rank stands in it once at most
  size_t num_runnable_;
};

void Evaluator::PrepareHops(const Schedule& schedule) {
  const int rows = schedule.one_rank_per_stage() ? 1 : schedule.num_micro_batches();
  hop_stage_stride_ = static_cast<size_t>(rows);
  hop_micro_batch_stride_ = schedule.one_rank_per_stage() ? 0 : 1;
  const int stages = schedule.num_stages();
  const size_t backward = static_cast<size_t>(stages) * hop_stage_stride_;
  hops_.assign(2 * backward, Hop{});
  // A rank has links to few others; no more are there than hops, so none moves.
  link_free_.clear();
  link_free_.reserve(hops_.size());
  std::map<std::pair<int, int>, TimeNs*> links;
  const auto hop_between = [&](int from, int to) {
    RankState* const reader = &ranks_[static_cast<size_t>(to)];
    if (from == to) return Hop{.link_free = nullptr, .reader = reader};
    const auto [found, is_new] = links.try_emplace({from, to}, nullptr);
    if (is_new) found->second = &link_free_.emplace_back(0);
    return Hop{.link_free = found->second, .reader = reader};
  };
  for (int stage = 0; stage + 1 < stages; ++stage) {
    for (int i = 0; i < rows; ++i) {
      const int below = schedule.rank_of(stage, i);
      const int above = schedule.rank_of(stage + 1, i);
      const size_t at = static_cast<size_t>(stage) * hop_stage_stride_ + static_cast<size_t>(i);
      hops_[at] = hop_between(below, above);
      hops_[backward + at + hop_stage_stride_] = hop_between(above, below);
    }
  }
}

void Evaluator::PrepareRows(int stages) {
  const size_t last = static_cast<size_t>(stages) - 1;
  Arrival* const forwards = arrivals_.data();
  Arrival* const backwards = forwards + static_cast<size_t>(stages) * micro_batches_;
  const Hop* const backward_hops = hops_.data() + static_cast<size_t>(stages) * hop_stage_stride_;
  rows_.assign(static_cast<size_t>(stages * kNumPasses), Row{});
  for (size_t stage = 0; stage <= last; ++stage) {
    Row* const rows = &rows_[stage * kNumPasses];
    for (size_t pass = 0; pass < kNumPasses; ++pass) {
      rows[pass].cost = &op_costs_[stage * cost_stage_stride_ + pass];
    }
    Row& forward = rows[static_cast<size_t>(Pass::kF)];
    forward.in = forwards + stage * micro_batches_;
    forward.out = stage == last ? nullptr : forward.in + micro_batches_;
    forward.hop = hops_.data() + stage * hop_stage_stride_;
    for (const Pass pass : {Pass::kB, Pass::kBW}) {
      Row& backward = rows[static_cast<size_t>(pass)];
      backward.in = backwards + stage * micro_batches_;
      backward.out = stage == 0 ? nullptr : backward.in - micro_batches_;
      backward.hop = backward_hops + stage * hop_stage_stride_;
    }
  }
}

void Evaluator::Prepare(const Schedule& schedule) {
  SPIRITLEVEL_CHECK(costs_.num_stages() == schedule.num_stages() &&
                        costs_.num_micro_batches() == schedule.num_micro_batches(),
                    "costs are for the schedule's stages and micro-batches");
  micro_batches_ = static_cast<size_t>(schedule.num_micro_batches());
  arrivals_.resize(2 * static_cast<size_t>(schedule.num_stages()) * micro_batches_);
  const int ranks = schedule.num_ranks();
  ranks_.assign(static_cast<size_t>(ranks), RankState{});
  for (int rank = 0; rank < ranks; ++rank) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.live = Total(costs_.static_memory(schedule.stages_of(rank), ranks));
    state.optimizer = costs_.optimizer(schedule.stages_of(rank));
  }
  PrepareHops(schedule);
  PrepareRows(schedule.num_stages());
  result_ = Result{};
}

void Evaluator::StartIteration(const Schedule& schedule) {
  std::fill(arrivals_.begin(), arrivals_.end(), kNotYet);
  // Nothing stands before the first stage's forwards and the last stage's backwards.
  const auto one_stage = static_cast<std::ptrdiff_t>(micro_batches_);
  std::fill(arrivals_.begin(), arrivals_.begin() + one_stage, 0);
  std::fill(arrivals_.end() - one_stage, arrivals_.end(), 0);
  runnable_.clear();
  for (int rank = schedule.num_ranks() - 1; rank >= 0; --rank) {
    const std::span<const Op> ops = schedule.ops(rank);
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.next = ops.data();
    state.end = ops.data() + ops.size();
    runnable_.push_back(&state);
  }
}

// When the first of `ops` started, whose inputs are all there by now. Worked out again, so that the
// hot loop need not ask of every op whether it is the first.
TimeNs Evaluator::FirstStart(std::span<const Op> ops, TimeNs lane_free) const {
  const auto arrival = [&](const Op& op) {
    const Row& row = rows_[op.stage * size_t{kNumPasses} + static_cast<size_t>(op.pass)];
    return row.in[op.micro_batch];
  };
  TimeNs start = std::max(lane_free, arrival(ops[0]));
  if (ops[0].overlaps_next) start = std::max(start, arrival(ops[1]));
  return start + costs_.common().launch;
}

TimeNs Evaluator::ApplyTail(Tail tail) {
  TimeNs last = 0;
  for (const RankState& rank : ranks_) last = std::max(last, rank.free);
  TimeNs makespan = 0;
  for (RankState& rank : ranks_) {
    if (tail == Tail::kBarrier) rank.free = last + costs_.common().barrier;
    rank.free += rank.optimizer;
    makespan = std::max(makespan, rank.free);
  }
  return makespan;
}

const Evaluator::Result& Evaluator::Evaluate(const Schedule& schedule, Tail tail, int iterations) {
  SPIRITLEVEL_CHECK(!IsPostValidation(tail), "the flat evaluator plays no post-validation");
  SPIRITLEVEL_CHECK(!HasGradientSums(schedule, costs_), "the flat evaluator sums no gradients");
  Prepare(schedule);
  const size_t ranks = ranks_.size();
  std::vector<TimeNs> lane_free(ranks, 0);    // when this iteration began
  std::vector<TimeNs> first_start(ranks, 0);  // of the iteration before
  for (int i = 0; i < iterations; ++i) {
    StartIteration(schedule);
    Walk(*this).Run();
    TimeNs period = 0;
    for (size_t r = 0; r < ranks; ++r) {
      SPIRITLEVEL_CHECK(ranks_[r].next == ranks_[r].end,
                        "a Schedule never deadlocks under ideal posting");
      const TimeNs start = FirstStart(schedule.ops(static_cast<int>(r)), lane_free[r]);
      period = std::max(period, start - first_start[r]);
      first_start[r] = start;
      if (i > 0) continue;
      result_.last_end.push_back(ranks_[r].free);
      result_.peak_bytes.push_back(ranks_[r].peak);
      result_.max_rank_span = std::max(result_.max_rank_span, ranks_[r].free - start);
    }
    if (i == 0) result_.first_start = first_start;
    if (i > 0) result_.period = period;
    const TimeNs end = ApplyTail(tail);
    if (i == 0) result_.makespan = end;
    for (size_t r = 0; r < ranks; ++r) lane_free[r] = ranks_[r].free;
  }
  return result_;
}

}  // namespace spiritlevel
