#include "sim/evaluate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

constexpr TimeNs kNotYet = -1;
constexpr size_t kNoSlot = std::numeric_limits<size_t>::max();

}  // namespace

// Out of line, each of these costs more in saved registers than it does itself.
#define SPIRITLEVEL_HOT [[gnu::always_inline]] inline

SPIRITLEVEL_HOT size_t Evaluator::Layout::Cost(const Op& op) const {
  return op.stage * cost_stage_stride +
         static_cast<size_t>(op.micro_batch) * cost_micro_batch_stride +
         static_cast<size_t>(op.pass);
}

SPIRITLEVEL_HOT size_t Evaluator::Layout::Hop(const Op& op) const {
  return (op.pass == Pass::kF ? 0 : backward_hops) + op.stage * hop_stage_stride +
         static_cast<size_t>(op.micro_batch) * hop_micro_batch_stride;
}

SPIRITLEVEL_HOT size_t Evaluator::Layout::Input(const Op& op) const {
  return (op.pass == Pass::kF ? 0 : backward_arrivals) + op.stage * micro_batches +
         static_cast<size_t>(op.micro_batch);
}

Evaluator::Evaluator(const Costs& costs) : costs_(costs) {
  const int rows = costs.varies_by_micro_batch() ? costs.num_micro_batches() : 1;
  if (costs.varies_by_micro_batch()) {
    layout_.cost_micro_batch_stride = kNumPasses;
    layout_.cost_stage_stride = static_cast<size_t>(kNumPasses * rows);
  }
  op_costs_.reserve(static_cast<size_t>(costs.num_stages()) * layout_.cost_stage_stride);
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    for (int i = 0; i < rows; ++i) {
      const StageCost& c = costs.of(stage, i);
      const Bytes added_by_b = c.weight_state - c.activation;
      op_costs_.push_back({c.forward, c.activation, 0});
      op_costs_.push_back(
          {c.input_grad, std::max<Bytes>(0, added_by_b), std::max<Bytes>(0, -added_by_b)});
      op_costs_.push_back({c.weight_grad, 0, c.weight_state});
      op_costs_.push_back({c.fused_backward, 0, c.activation});
    }
  }
}

void Evaluator::PrepareHops(const Schedule& schedule) {
  const int rows = schedule.one_rank_per_stage() ? 1 : schedule.num_micro_batches();
  layout_.hop_stage_stride = static_cast<size_t>(rows);
  layout_.hop_micro_batch_stride = schedule.one_rank_per_stage() ? 0 : 1;
  const int stages = schedule.num_stages();
  layout_.backward_hops = static_cast<size_t>(stages) * layout_.hop_stage_stride;
  hops_.assign(2 * layout_.backward_hops, Hop{});
  std::map<std::pair<int, int>, int32_t> links;
  const auto hop_between = [&](int from, int to) {
    if (from == to) return Hop{.link = kWithinRank, .to_rank = to};
    const auto [found, is_new] = links.try_emplace({from, to}, static_cast<int32_t>(links.size()));
    return Hop{.link = found->second, .to_rank = to};
  };
  for (int stage = 0; stage + 1 < stages; ++stage) {
    for (int i = 0; i < rows; ++i) {
      const int below = schedule.rank_of(stage, i);
      const int above = schedule.rank_of(stage + 1, i);
      const size_t row = static_cast<size_t>(i);
      hops_[static_cast<size_t>(stage) * layout_.hop_stage_stride + row] =
          hop_between(below, above);
      hops_[layout_.backward_hops + static_cast<size_t>(stage + 1) * layout_.hop_stage_stride +
            row] = hop_between(above, below);
    }
  }
  link_free_.assign(links.size(), 0);
}

void Evaluator::StartIteration(const Schedule& schedule) {
  std::fill(arrivals_.begin(), arrivals_.end(), kNotYet);
  // Nothing stands before the first stage's forwards and the last stage's backwards.
  const auto forwards = arrivals_.begin();
  std::fill(forwards, forwards + static_cast<std::ptrdiff_t>(layout_.micro_batches), 0);
  std::fill(arrivals_.end() - static_cast<std::ptrdiff_t>(layout_.micro_batches), arrivals_.end(),
            0);
  for (int rank = schedule.num_ranks() - 1; rank >= 0; --rank) {
    const std::span<const Op> ops = schedule.ops(rank);
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.next = ops.data();
    state.end = ops.data() + ops.size();
    runnable_.push_back(rank);
  }
}

// Takes ranks as far as their inputs reach until none can go on.
//
// Everything it needs lies in the object itself, and the object in registers or on the stack: read
// through the Evaluator, each number would have to be loaded again after each write to an array.
class Evaluator::Walk {
 public:
  explicit Walk(Evaluator& evaluator)
      : layout_(evaluator.layout_),
        costs_(evaluator.costs_),
        hop_cost_(evaluator.costs_.common().hop),
        launch_(evaluator.costs_.common().launch),
        op_costs_(evaluator.op_costs_.data()),
        hops_(evaluator.hops_.data()),
        ranks_(evaluator.ranks_.data()),
        arrivals_(evaluator.arrivals_.data()),
        link_free_(evaluator.link_free_.data()),
        runnable_(evaluator.runnable_.data()),
        num_runnable_(evaluator.runnable_.size()) {}

  SPIRITLEVEL_HOT void Run() {
    while (num_runnable_ > 0) RunRank(ranks_[runnable_[--num_runnable_]]);
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
      TimeNs start = free;
      size_t slot = 0;
      if (op.pass != Pass::kW) {
        slot = layout_.Input(op);
        if (IsMissing(slot, rank)) break;
        start = std::max(start, arrivals_[slot]);
      }
      OpCost cost = op_costs_[layout_.Cost(op)];
      if (op.overlaps_next) [[unlikely]] {
        const Op second = next[1];
        const size_t second_slot = layout_.Input(second);
        if (IsMissing(second_slot, rank)) break;
        start = std::max(start, arrivals_[second_slot]);
        cost = CostOfPair(op, second);
        Deliver(second, second_slot, start + launch_ + cost.duration);
        ++next;
      }
      free = start + launch_ + cost.duration;
      live += cost.grow;
      peak = std::max(peak, live);
      live -= cost.shrink;
      if (op.pass != Pass::kW) Deliver(op, slot, free);
    }
    rank.next = next;
    rank.free = free;
    rank.live = live;
    rank.peak = peak;
  }

  SPIRITLEVEL_HOT bool IsMissing(size_t slot, RankState& rank) const {
    if (arrivals_[slot] != kNotYet) return false;
    rank.waits_for = slot;
    return true;
  }

  OpCost CostOfPair(const Op& first, const Op& second) const {
    const OpCost& a = op_costs_[layout_.Cost(first)];
    const OpCost& b = op_costs_[layout_.Cost(second)];
    return {costs_.overlapped_duration(first, second), a.grow + b.grow, a.shrink + b.shrink};
  }

  // The result of `op`, whose own input came in `slot`, is made at `end`.
  SPIRITLEVEL_HOT void Deliver(const Op& op, size_t slot, TimeNs end) {
    const struct Hop hop = hops_[layout_.Hop(op)];
    // The next stage's row of arrivals, or the one before.
    slot = op.pass == Pass::kF ? slot + layout_.micro_batches : slot - layout_.micro_batches;
    if (hop.link < 0) {
      // Within the rank: its own order already makes the reader wait.
      if (hop.link == kWithinRank) arrivals_[slot] = end;
      return;
    }
    TimeNs& link_free = link_free_[hop.link];
    link_free = std::max(link_free, end) + hop_cost_.busy;
    arrivals_[slot] = link_free + hop_cost_.latency;
    RankState& reader = ranks_[hop.to_rank];
    if (reader.waits_for != slot) return;
    reader.waits_for = kNoSlot;
    runnable_[num_runnable_++] = hop.to_rank;
  }

  const Layout layout_;
  const Costs& costs_;
  const HopCost hop_cost_;
  const TimeNs launch_;
  const OpCost* const op_costs_;
  const struct Hop* const hops_;
  RankState* const ranks_;
  TimeNs* const arrivals_;
  TimeNs* const link_free_;
  int* const runnable_;  // a stack; a rank stands in it once at most
  size_t num_runnable_;
};

// When the first of `ops` started, whose arrivals are all known by now. Recomputed, so that the
// hot loop need not ask of every op whether it is the first.
TimeNs Evaluator::FirstStart(std::span<const Op> ops, TimeNs lane_free) const {
  TimeNs start = std::max(lane_free, arrivals_[layout_.Input(ops[0])]);
  if (ops[0].overlaps_next) start = std::max(start, arrivals_[layout_.Input(ops[1])]);
  return start + costs_.common().launch;
}

TimeNs Evaluator::ApplyTail(Tail tail) {
  TimeNs last = 0;
  for (const RankState& rank : ranks_) last = std::max(last, rank.free);
  TimeNs makespan = 0;
  for (RankState& rank : ranks_) {
    if (tail == Tail::kBarrier) rank.free = last + costs_.common().barrier;
    rank.free += costs_.common().optimizer;
    makespan = std::max(makespan, rank.free);
  }
  return makespan;
}

void Evaluator::Prepare(const Schedule& schedule) {
  SPIRITLEVEL_CHECK(costs_.num_stages() == schedule.num_stages() &&
                        costs_.num_micro_batches() == schedule.num_micro_batches(),
                    "costs are for the schedule's stages and micro-batches");
  layout_.micro_batches = static_cast<size_t>(schedule.num_micro_batches());
  layout_.backward_arrivals = static_cast<size_t>(schedule.num_stages()) * layout_.micro_batches;
  arrivals_.resize(2 * layout_.backward_arrivals);
  PrepareHops(schedule);
  const size_t ranks = static_cast<size_t>(schedule.num_ranks());
  ranks_.assign(ranks, RankState{});
  for (size_t r = 0; r < ranks; ++r) {
    const auto held = static_cast<int>(schedule.stages_of(static_cast<int>(r)).size());
    ranks_[r].live = costs_.static_bytes(held, schedule.num_ranks());
    ranks_[r].waits_for = kNoSlot;
  }
  runnable_.reserve(ranks);
  result_ = Result{};
}

const Evaluator::Result& Evaluator::Evaluate(const Schedule& schedule, Tail tail, int iterations) {
  Prepare(schedule);
  const size_t ranks = ranks_.size();
  std::vector<TimeNs> lane_free(ranks, 0);    // when this iteration began
  std::vector<TimeNs> first_start(ranks, 0);  // of the iteration before
  for (int i = 0; i < iterations; ++i) {
    StartIteration(schedule);
    Walk(*this).Run();
    runnable_.clear();
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
