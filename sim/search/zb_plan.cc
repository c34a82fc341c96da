#include "sim/search/zb_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

Bytes TransientOf(const StageCost& cost, Pass pass) {
  return cost.transient[static_cast<size_t>(pass)];
}

// What a B holds at its start above what was live: its W may need more than it did.
Bytes GrowthOfB(const StageCost& cost) {
  return std::max<Bytes>(0, cost.weight_state - cost.activation) + TransientOf(cost, Pass::kB);
}

// What B and the W after it need above what was live before B.
Bytes NeededByBackward(const StageCost& cost) {
  return std::max(GrowthOfB(cost),
                  cost.weight_state - cost.activation + TransientOf(cost, Pass::kW));
}

// What F, B and W need above what was live before F.
Bytes NeededByAll(const StageCost& cost) {
  return cost.activation + std::max(TransientOf(cost, Pass::kF), NeededByBackward(cost));
}

// The same of both stages of a rank, `upper` being the one whose B comes first.
Bytes NeededByAll(const StageCost& lower, const StageCost& upper) {
  return std::max(NeededByAll(lower), lower.activation + NeededByAll(upper));
}

std::vector<int> StagesOf(const Placement& placement, int rank) {
  std::vector<int> stages;
  for (int chunk = 0; chunk < placement.stages_per_rank; ++chunk) {
    stages.push_back(placement.stage_of(rank, chunk));
  }
  return stages;
}

int RowsOf(const Costs& costs) {
  return costs.varies_by_micro_batch() ? costs.num_micro_batches() : 1;
}

void CheckForm(const Placement& placement) {
  const bool known = (placement.form == PlacementForm::kLinear && placement.stages_per_rank == 1) ||
                     (placement.form == PlacementForm::kV && placement.stages_per_rank == 2);
  SPIRITLEVEL_CHECK(known, "the zero-bubble heuristics know linear and V placement");
}

Costs WithoutGradientSums(const Costs& costs) {
  if (costs.common().gradients.empty()) return costs;
  std::vector<StageCost> table;
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    for (int i = 0; i < RowsOf(costs); ++i) table.push_back(costs.of(stage, i));
  }
  Costs::Common common = costs.common();
  common.gradients = {};
  return Costs(costs.num_stages(), costs.num_micro_batches(), std::move(table), common);
}

[[noreturn]] void RefuseLimit(const SearchProblem& problem, int rank, Bytes least_room) {
  const Bytes limit = problem.limits[static_cast<size_t>(rank)];
  const Bytes least = limit - problem.room(rank) + least_room;
  throw InputError(
      fmt::format("memory limit of rank {}: {} bytes ({}) do not hold one micro-batch", rank, limit,
                  FormatBytes(limit)),
      fmt::format("the least feasible is {} bytes ({}), of which {} stay on the rank all the time",
                  least, FormatBytes(least), FormatBytes(least - least_room)));
}

}  // namespace

Bytes LeastRoom(const Placement& placement, const Costs& costs, int rank) {
  CheckForm(placement);
  Bytes least = 0;
  for (int i = 0; i < RowsOf(costs); ++i) {
    const StageCost& lower = costs.of(placement.stage_of(rank, 0), i);
    least = std::max(least, placement.stages_per_rank == 1
                                ? NeededByAll(lower)
                                : NeededByAll(lower, costs.of(placement.stage_of(rank, 1), i)));
  }
  return least;
}

std::vector<Bytes> LimitsInActivations(const Placement& placement, const Costs& costs, int times) {
  CheckForm(placement);
  std::vector<Bytes> limits;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    const std::vector<int> stages = StagesOf(placement, rank);
    Bytes largest = 0;
    Bytes workspace = 0;
    for (int i = 0; i < RowsOf(costs); ++i) {
      Bytes activation = 0;
      for (const int stage : stages) {
        const StageCost& cost = costs.of(stage, i);
        activation += cost.activation;
        workspace = std::max(workspace, NeededByAll(cost) - cost.activation);
      }
      largest = std::max(largest, activation);
    }
    const Int128 limit = Int128{times} * placement.ranks * largest + workspace +
                         Total(costs.static_memory(stages, placement.ranks));
    limits.push_back(static_cast<Bytes>(std::min<Int128>(limit, kNoLimit)));
  }
  return limits;
}

ZbPlan::ZbPlan(const SearchProblem& problem)
    : placement_(problem.placement),
      costs_(*problem.costs),
      micro_batches_(problem.micro_batches()),
      hop_(problem.costs->common().hop.latency + problem.costs->common().hop.busy),
      launch_(problem.costs->common().launch) {
  CheckForm(placement_);
  SPIRITLEVEL_CHECK(costs_.num_stages() == placement_.num_stages() &&
                        problem.limits.size() == static_cast<size_t>(placement_.ranks),
                    "costs and limits are for the placement's stages and ranks");
  ranks_.resize(static_cast<size_t>(placement_.ranks));
  for (int rank = 0; rank < ranks(); ++rank) {
    const Bytes least = LeastRoom(placement_, costs_, rank);
    ranks_[rank].room = problem.room(rank);
    if (ranks_[rank].room < least) RefuseLimit(problem, rank, least);
    const size_t pairs = static_cast<size_t>(placement_.stages_per_rank * micro_batches_);
    ranks_[rank].waiting.reserve(pairs);
    ranks_[rank].ops.reserve(3 * pairs);
  }
  ends_.resize(static_cast<size_t>(placement_.num_stages()) * 2);
  for (Row& row : ends_) row.of.assign(static_cast<size_t>(micro_batches_), kUnknown);
}

TimeNs ZbPlan::ArrivalOfNext(int stage, Pass pass) const {
  const int from = pass == Pass::kF ? stage - 1 : stage + 1;
  if (from < 0 || from == placement_.num_stages()) return 0;
  if (placement_.rank_of(from) == placement_.rank_of(stage)) return 0;
  const TimeNs made = end_of(from, pass, count(stage, pass));
  return made == kUnknown ? kUnknown : made + hop_;
}

bool ZbPlan::IsReady(int stage, Pass pass) const {
  if (is_done(stage, pass)) return false;
  const int n = count(stage, pass);
  if (pass == Pass::kF) return stage == 0 || count(stage - 1, pass) > n;
  const bool is_last = stage == placement_.num_stages() - 1;
  return count(stage, Pass::kF) > n && (is_last || count(stage + 1, pass) > n);
}

// Of a micro-batch whose F are all put on the rank, what its other passes need above what is then
// live. By the time the lower stage's B runs, the upper stage's activation is gone.
Bytes ZbPlan::NeededByLaterPasses(int rank, int micro_batch) const {
  const StageCost& lower = costs_.of(lower_stage(rank), micro_batch);
  if (!is_v()) return NeededByBackward(lower);
  const StageCost& upper = costs_.of(upper_stage(rank), micro_batch);
  return std::max(NeededByBackward(upper), NeededByBackward(lower) - upper.activation);
}

// Above what is live, of the rank's last forward of a micro-batch or of another, except for what W
// that are waiting need.
Bytes ZbPlan::NeededByNextForward(int stage) const {
  const int rank = placement_.rank_of(stage);
  const Rank& state = ranks_[rank];
  const StageCost& cost = next(stage, Pass::kF);
  Bytes later =
      std::max({TransientOf(cost, Pass::kF), state.of_both.value(), state.of_last_b.value()});
  if (!is_v() || is_upper(stage)) {
    later = std::max(later, NeededByLaterPasses(rank, count(stage, Pass::kF)));
  }
  return cost.activation + later;
}

// After one more F of a lower stage: could the upper stage's F still follow, that and all earlier
// ones, each after the micro-batches before it are done? Else they would wait for memory that only
// they can free.
bool ZbPlan::UpperForwardsWouldFit(int stage) const {
  const int rank = placement_.rank_of(stage);
  const int upper = upper_stage(rank);
  const int begin = count(upper, Pass::kF);
  const int end = count(stage, Pass::kF) + 1;
  Bytes held = 0;
  for (int n = begin; n < end; ++n) held += activation(stage, n);
  for (int n = begin; n < end; ++n) {
    const StageCost& cost = costs_.of(upper, n);
    const Bytes later =
        std::max({Bytes{0}, TransientOf(cost, Pass::kF), NeededByLaterPasses(rank, n)});
    if (held + cost.activation + later > ranks_[rank].room) return false;
    held -= activation(stage, n);
  }
  return true;
}

bool ZbPlan::CanFit(int stage) const {
  const Rank& rank = ranks_[placement_.rank_of(stage)];
  if (rank.room == kNoLimit) return true;
  if (rank.live - rank.waiting_bytes + NeededByNextForward(stage) > rank.room) return false;
  return !is_v() || is_upper(stage) || UpperForwardsWouldFit(stage);
}

int ZbPlan::ForwardsThatFit(int stage) const {
  SPIRITLEVEL_CHECK(!is_v(), "asked of a linear placement");
  const Rank& rank = ranks_[stage];
  const int begin = count(stage, Pass::kF);
  if (rank.room == kNoLimit) return micro_batches_ - begin;
  Bytes live = rank.live;
  Bytes later = std::max(rank.of_w.value(), rank.of_last_b.value());
  int n = begin;
  for (; n < micro_batches_; ++n) {
    const StageCost& cost = costs_.of(stage, n);
    live += cost.activation;
    later = std::max(later, NeededByBackward(cost));
    if (live + std::max(later, TransientOf(cost, Pass::kF)) > rank.room) break;
  }
  return n - begin;
}

bool ZbPlan::BackwardFits(int stage) const {
  const Rank& rank = ranks_[placement_.rank_of(stage)];
  const StageCost& cost = next(stage, Pass::kB);
  const Bytes after = rank.live + cost.weight_state - cost.activation;
  const Bytes of_w = std::max(rank.of_w.value(), TransientOf(cost, Pass::kW));
  return rank.live + GrowthOfB(cost) <= rank.room && after + of_w <= rank.room;
}

bool ZbPlan::Fits(int stage, Pass pass) const {
  if (pass == Pass::kB) return BackwardFits(stage);
  const Rank& rank = ranks_[placement_.rank_of(stage)];
  const Bytes of_w = next(stage, Pass::kF).activation + rank.of_w.value();
  return rank.live + std::max(of_w, NeededByNextForward(stage)) <= rank.room;
}

TimeNs ZbPlan::TimeToMakeRoom(int stage) const {
  const Rank& rank = ranks_[placement_.rank_of(stage)];
  if (rank.room == kNoLimit || Fits(stage, Pass::kF)) return 0;
  const Bytes of_w = next(stage, Pass::kF).activation + rank.of_w.value();
  Bytes excess = rank.live + std::max(of_w, NeededByNextForward(stage)) - rank.room;
  TimeNs time = 0;
  for (size_t i = rank.next_w; i < rank.waiting.size() && excess > 0; ++i) {
    const Waiting& w = rank.waiting[i];
    time += Duration(w.stage, Pass::kW, w.micro_batch);
    excess -= costs_.of(w.stage, w.micro_batch).weight_state;
  }
  return time;
}

void ZbPlan::MakeRoom(int stage, Pass pass) {
  const int rank = placement_.rank_of(stage);
  if (ranks_[rank].room == kNoLimit) return;
  while (!Fits(stage, pass)) {
    SPIRITLEVEL_CHECK(has_waiting_w(rank), "what is put leaves room for what must follow");
    PutW(rank);
  }
}

TimeNs ZbPlan::DurationOfW(int rank) const {
  const Waiting& w = ranks_[rank].waiting[ranks_[rank].next_w];
  return Duration(w.stage, Pass::kW, w.micro_batch);
}

void ZbPlan::PutW(int rank) {
  Rank& state = ranks_[rank];
  const Waiting w = state.waiting[state.next_w++];
  const StageCost& cost = costs_.of(w.stage, w.micro_batch);
  state.of_w.Pop(TransientOf(cost, Pass::kW));
  state.waiting_bytes -= cost.weight_state;
  state.live -= cost.weight_state;
  Append(state,
         {.micro_batch = w.micro_batch, .stage = static_cast<uint16_t>(w.stage), .pass = Pass::kW},
         0);
}

void ZbPlan::PutAllW(int rank) {
  while (has_waiting_w(rank)) PutW(rank);
}

void ZbPlan::PutWUntil(int rank, TimeNs until) {
  while (has_waiting_w(rank) && end(rank) + DurationOfW(rank) <= until) PutW(rank);
}

void ZbPlan::Append(Rank& rank, const Op& op, TimeNs arrival) {
  const TimeNs idle = std::max<TimeNs>(0, arrival - rank.end);
  if (!rank.ops.empty()) {
    rank.bubble += idle;
    max_bubble_ = std::max(max_bubble_, rank.bubble);
  }
  rank.end += idle + Duration(op.stage, op.pass, op.micro_batch);
  rank.ops.push_back(op);
}

void ZbPlan::Account(int stage, Pass pass, int micro_batch) {
  const int number = placement_.rank_of(stage);
  Rank& rank = ranks_[number];
  const StageCost& cost = costs_.of(stage, micro_batch);
  const bool both = is_v() && is_upper(stage);
  const auto needed_by_lower = [&] {
    return NeededByBackward(costs_.of(lower_stage(number), micro_batch));
  };
  if (pass == Pass::kF) {
    rank.live += cost.activation;
    if (both) rank.of_both.Push(NeededByLaterPasses(number, micro_batch));
    if (!is_v()) rank.of_last_b.Push(needed_by_lower());
    return;
  }
  rank.live += cost.weight_state - cost.activation;
  rank.waiting_bytes += cost.weight_state;
  rank.waiting.push_back({stage, micro_batch});
  rank.of_w.Push(TransientOf(cost, Pass::kW));
  if (both) {
    rank.of_both.Pop(NeededByLaterPasses(number, micro_batch));
    rank.of_last_b.Push(needed_by_lower());
  } else {
    rank.of_last_b.Pop(needed_by_lower());
  }
}

void ZbPlan::Put(int stage, Pass pass) {
  SPIRITLEVEL_CHECK(IsReady(stage, pass), "an op is put after all that it needs");
  Rank& rank = ranks_[placement_.rank_of(stage)];
  const int micro_batch = count(stage, pass);
  const TimeNs arrival = ArrivalOfNext(stage, pass);
  Account(stage, pass, micro_batch);
  Append(rank, {.micro_batch = micro_batch, .stage = static_cast<uint16_t>(stage), .pass = pass},
         arrival);
  Row& row = ends_[RowOf(stage, pass)];
  row.of[static_cast<size_t>(micro_batch)] = rank.end;
  ++row.count;
}

Orders ZbPlan::TakeOrders() {
  Orders orders;
  for (Rank& rank : ranks_) orders.push_back(std::move(rank.ops));
  return orders;
}

LeastSpan::LeastSpan(const Costs& costs) : costs_(WithoutGradientSums(costs)), evaluator_(costs_) {}

bool LeastSpan::Offer(const Orders& orders) {
  const TimeNs span = evaluator_.Evaluate(Schedule(orders), Tail::kNoTail).max_rank_span;
  if (!orders_.empty() && span >= span_) return false;
  span_ = span;
  orders_ = orders;
  return true;
}

}  // namespace spiritlevel
