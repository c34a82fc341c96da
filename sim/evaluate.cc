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
  hop_stage_stride_ = static_cast<size_t>(rows);
  hop_micro_batch_stride_ = schedule.one_rank_per_stage() ? 0 : 1;
  const int stages = schedule.num_stages();
  backward_hops_ = static_cast<size_t>(stages) * hop_stage_stride_;
  hops_.assign(2 * backward_hops_, Hop{});
  std::map<std::pair<int, int>, int32_t> links;
  const auto hop_between = [&](int from, int to) {
    if (from == to) return Hop{.link = kNone, .to_rank = to};
    const auto [found, is_new] = links.try_emplace({from, to}, static_cast<int32_t>(links.size()));
    return Hop{.link = found->second, .to_rank = to};
  };
  for (int stage = 0; stage + 1 < stages; ++stage) {
    for (int i = 0; i < rows; ++i) {
      const int below = schedule.rank_of(stage, i);
      const int above = schedule.rank_of(stage + 1, i);
      const size_t row = static_cast<size_t>(i);
      hops_[static_cast<size_t>(stage) * hop_stage_stride_ + row] = hop_between(below, above);
      hops_[backward_hops_ + static_cast<size_t>(stage + 1) * hop_stage_stride_ + row] =
          hop_between(above, below);
    }
  }
  link_free_.assign(links.size(), 0);
}

void Evaluator::StartIteration(const Schedule& schedule) {
  std::fill(arrivals_.begin(), arrivals_.end(), kNotYet);
  // Nothing stands before the first stage's forwards and the last stage's backwards.
  const auto forwards = arrivals_.begin();
  std::fill(forwards, forwards + static_cast<std::ptrdiff_t>(micro_batches_), 0);
  std::fill(arrivals_.end() - static_cast<std::ptrdiff_t>(micro_batches_), arrivals_.end(), 0);
  for (int rank = schedule.num_ranks() - 1; rank >= 0; --rank) {
    ranks_[static_cast<size_t>(rank)].next = 0;
    runnable_.push_back(rank);
  }
}

size_t Evaluator::InputSlot(const Op& op) const {
  return (op.pass == Pass::kF ? 0 : backward_arrivals_) + op.stage * micro_batches_ +
         static_cast<size_t>(op.micro_batch);
}

void Evaluator::Deliver(const Op& op, TimeNs end) {
  const size_t at = op.stage * hop_stage_stride_ +
                    static_cast<size_t>(op.micro_batch) * hop_micro_batch_stride_;
  const bool forward = op.pass == Pass::kF;
  const Hop hop = hops_[forward ? at : backward_hops_ + at];
  size_t slot = InputSlot(op);
  slot = forward ? slot + micro_batches_ : slot - micro_batches_;
  if (hop.link == kNone) {
    arrivals_[slot] = end;  // within the rank: its own order already makes the reader wait
    return;
  }
  const HopCost& cost = costs_.common().hop;
  TimeNs& free = link_free_[static_cast<size_t>(hop.link)];
  free = std::max(free, end) + cost.busy;
  arrivals_[slot] = free + cost.latency;
  RankState& reader = ranks_[static_cast<size_t>(hop.to_rank)];
  if (reader.waits_for != slot) return;
  reader.waits_for = kNoSlot;
  runnable_.push_back(hop.to_rank);
}

void Evaluator::RunRank(const Schedule& schedule, int rank) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  const std::span<const Op> ops = schedule.ops(rank);
  const TimeNs launch = costs_.common().launch;
  const uint16_t last_stage = static_cast<uint16_t>(schedule.num_stages() - 1);
  const auto sends = [last_stage](const Op& op) {
    return op.pass == Pass::kF ? op.stage != last_stage : op.pass != Pass::kW && op.stage != 0;
  };
  size_t next = state.next;
  TimeNs free = state.free;
  Bytes live = state.live;
  Bytes peak = state.peak;
  while (next < ops.size()) {
    const Op& op = ops[next];
    TimeNs start = free;
    if (op.pass != Pass::kW) {
      const size_t slot = InputSlot(op);
      if (arrivals_[slot] == kNotYet) {
        state.waits_for = slot;
        break;
      }
      start = std::max(start, arrivals_[slot]);
    }
    OpCost cost = CostOf(op);
    if (op.overlaps_next) {
      const Op& second = ops[next + 1];
      const size_t slot = InputSlot(second);
      if (arrivals_[slot] == kNotYet) {
        state.waits_for = slot;
        break;
      }
      start = std::max(start, arrivals_[slot]);
      const OpCost& other = CostOf(second);
      cost = {costs_.overlapped_duration(op, second), cost.grow + other.grow,
              cost.shrink + other.shrink};
    }
    start += launch;
    if (next == 0) state.first_start = start;
    free = start + cost.duration;
    live += cost.grow;
    peak = std::max(peak, live);
    live -= cost.shrink;
    if (sends(op)) Deliver(op, free);
    if (op.overlaps_next && sends(ops[next + 1])) Deliver(ops[next + 1], free);
    next += op.overlaps_next ? 2 : 1;
  }
  state.next = next;
  state.free = free;
  state.live = live;
  state.peak = peak;
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

const Evaluator::Result& Evaluator::Evaluate(const Schedule& schedule, Tail tail, int iterations) {
  SPIRITLEVEL_CHECK(costs_.num_stages() == schedule.num_stages() &&
                        costs_.num_micro_batches() == schedule.num_micro_batches(),
                    "costs are for the schedule's stages and micro-batches");
  micro_batches_ = static_cast<size_t>(schedule.num_micro_batches());
  backward_arrivals_ = static_cast<size_t>(schedule.num_stages()) * micro_batches_;
  arrivals_.resize(2 * backward_arrivals_);
  const size_t ranks = static_cast<size_t>(schedule.num_ranks());
  PrepareHops(schedule);
  ranks_.assign(ranks, RankState{});
  result_.first_start.assign(ranks, 0);
  result_.last_end.assign(ranks, 0);
  result_.peak_bytes.assign(ranks, 0);
  result_.max_rank_span = 0;
  result_.period = 0;
  for (size_t r = 0; r < ranks; ++r) {
    const auto held = static_cast<int>(schedule.stages_of(static_cast<int>(r)).size());
    ranks_[r].live = costs_.static_bytes(held, schedule.num_ranks());
    ranks_[r].waits_for = kNoSlot;
  }
  std::vector<TimeNs> before(ranks, 0);
  for (int i = 0; i < iterations; ++i) {
    StartIteration(schedule);
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      RunRank(schedule, rank);
    }
    TimeNs period = 0;
    for (size_t r = 0; r < ranks; ++r) {
      SPIRITLEVEL_CHECK(ranks_[r].next == schedule.ops(static_cast<int>(r)).size(),
                        "a Schedule never deadlocks under ideal posting");
      period = std::max(period, ranks_[r].first_start - before[r]);
      before[r] = ranks_[r].first_start;
      if (i > 0) continue;
      result_.first_start[r] = ranks_[r].first_start;
      result_.last_end[r] = ranks_[r].free;
      result_.peak_bytes[r] = ranks_[r].peak;
      result_.max_rank_span =
          std::max(result_.max_rank_span, ranks_[r].free - ranks_[r].first_start);
    }
    if (i > 0) result_.period = period;
    const TimeNs end = ApplyTail(tail);
    if (i == 0) result_.makespan = end;
  }
  return result_;
}

}  // namespace spiritlevel
