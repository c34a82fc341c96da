#include "cli/frontier_lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "sim/analysis/summary.h"

namespace spiritlevel {
namespace {

// More of one kind than anybody looks at one by one.
constexpr int64_t kMostSteps = 4096;

std::vector<Bytes> StaticsOf(const ScenarioProblem& made) {
  const int ranks = made.problem.placement.ranks;
  SearchProblem problem = made.problem;
  problem.limits.assign(static_cast<size_t>(ranks), 0);
  std::vector<Bytes> statics;
  for (int rank = 0; rank < ranks; ++rank) statics.push_back(-problem.room(rank));
  return statics;
}

FrontierLimits CheckedLimits(const ScenarioProblem& made, const std::vector<Bytes>& ratio) {
  const std::vector<Bytes> statics = StaticsOf(made);
  for (size_t r = 0; r < ratio.size(); ++r) {
    if (ratio[r] > statics[r]) continue;
    throw InputError(fmt::format("--memory-limit: {} bytes of rank {} do not hold its static "
                                 "memory, {} bytes",
                                 ratio[r], r, statics[r]),
                     "each rank needs room beside it");
  }
  return {statics, ratio};
}

}  // namespace

bool HasPairs(const Orders& orders) {
  return std::any_of(orders.begin(), orders.end(), [](const std::vector<Op>& ops) {
    return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.overlaps_next; });
  });
}

TimeNs ValueOf(const Evaluator::Result& result, Objective objective) {
  switch (objective) {
    case Objective::kSpan:
      return result.max_rank_span;
    case Objective::kMakespan:
      return result.makespan;
    case Objective::kStep:
      return result.period;
  }
  return 0;
}

FrontierLimits::FrontierLimits(std::vector<Bytes> statics, std::vector<Bytes> ratio)
    : statics_(std::move(statics)), ratio_(std::move(ratio)) {
  for (size_t r = 1; r < ratio_.size(); ++r) {
    if (Share(r) > Share(most_)) most_ = r;
  }
}

std::vector<Bytes> FrontierLimits::Of(Bytes limit) const {
  std::vector<Bytes> limits(statics_.size(), limit);
  if (limit == kNoLimit || ratio_.empty()) return limits;
  for (size_t r = 0; r < limits.size(); ++r) {
    const Int128 room = static_cast<Int128>(limit - statics_[most_]) * Share(r) / Share(most_);
    limits[r] = statics_[r] + static_cast<Bytes>(room);
  }
  return limits;
}

Bytes FrontierLimits::Holding(const std::vector<Bytes>& needs) const {
  if (ratio_.empty()) return *std::max_element(needs.begin(), needs.end());
  const auto holds = [&](Bytes limit) {
    const std::vector<Bytes> limits = Of(limit);
    return std::equal(needs.begin(), needs.end(), limits.begin(), std::less_equal<>());
  };
  Bytes low = statics_[most_] - 1;
  Bytes high = kMaxBytes;
  while (high - low > 1) {
    const Bytes middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

FrontierLane::FrontierLane(const Scenario& scenario, const Placement& placement,
                           Objective objective, Tail tail, const std::vector<Bytes>& ratio)
    : scenario_(scenario),
      made_(ProblemOf(scenario, placement,
                      std::vector<Bytes>(static_cast<size_t>(placement.ranks), kNoLimit))),
      limits_(CheckedLimits(made_, ratio)) {
  made_.problem.objective = objective;
  made_.problem.tail = tail;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    least_of_rank_.push_back(LeastFeasibleLimit(made_.problem, rank));
  }
  least_ = limits_.Holding(least_of_rank_);
  BoundUnder(kNoLimit);  // which refuses what no bound is of
}

const Bound& FrontierLane::BoundUnder(Bytes limit) {
  const auto known = bounds_.find(limit);
  if (known != bounds_.end()) return known->second;
  SearchProblem problem = made_.problem;
  problem.limits = limits_.Of(limit);
  return bounds_.emplace(limit, LowerBound(problem)).first->second;
}

const KnownOrder* FrontierLane::BestKnown(Bytes limit) const {
  const KnownOrder* best = nullptr;
  for (const KnownOrder& k : known_) {
    if (k.needs <= limit && (best == nullptr || k.value < best->value)) best = &k;
  }
  return best;
}

int64_t FrontierLane::SearchUnder(Bytes limit, SearchOptions options) {
  SearchProblem problem = made_.problem;
  problem.limits = limits_.Of(limit);
  options.lower_bound = BoundUnder(limit).value;
  options.seeds = SeedsFor(scenario_, problem, {.asked = options.stop});
  // Two ops that overlap take less than bounds count for them, and no search makes such pairs.
  std::erase_if(options.seeds, HasPairs);
  for (const Orders& seed : options.seeds) Keep(seed);
  AddNeighbours(limit, &options.seeds);
  SearchAnswer answer = Search(problem, options);
  Keep(std::move(answer.orders));
  return answer.evaluations;
}

std::optional<Bytes> FrontierLane::StepNearest(Bytes middle, Bytes low, Bytes high) const {
  std::set<std::tuple<Bytes, Bytes, Bytes>> kinds;  // least, activation, W-state
  const auto add_rank = [&](int rank) {
    for (int chunk = 0; chunk < placement().stages_per_rank; ++chunk) {
      const StageCost& c = made_.costs->of(placement().stage_of(rank, chunk), 0);
      kinds.emplace(least_of_rank_[static_cast<size_t>(rank)], c.activation, c.weight_state);
    }
  };
  if (limits_.have_ratio()) {
    add_rank(limits_.most());
  } else {
    for (int rank = 0; rank < placement().ranks; ++rank) add_rank(rank);
  }
  std::optional<Bytes> nearest;
  for (const auto& [least, activation, weight_state] : kinds) {
    const int64_t most = activation == 0 ? 0 : std::min((high - least) / activation, kMostSteps);
    for (int64_t i = 0; i <= most; ++i) {
      const Bytes held = least + i * activation;
      const int64_t j = weight_state == 0 || held > middle ? 0 : (middle - held) / weight_state;
      for (const Bytes at : {held + j * weight_state, held + (j + 1) * weight_state}) {
        if (at <= low || at >= high) continue;
        if (!nearest || std::abs(at - middle) < std::abs(*nearest - middle)) nearest = at;
      }
    }
  }
  return nearest;
}

void FrontierLane::AddNeighbours(Bytes limit, std::vector<Orders>* seeds) const {
  constexpr size_t kFromAbove = 2;
  if (const KnownOrder* best = BestKnown(limit)) seeds->push_back(best->orders);
  std::vector<const KnownOrder*> above;
  for (const KnownOrder& k : known_) {
    if (k.needs > limit) above.push_back(&k);
  }
  std::sort(above.begin(), above.end(), [](const KnownOrder* a, const KnownOrder* b) {
    return std::pair(a->needs, a->value) < std::pair(b->needs, b->value);
  });
  for (size_t i = 0; i < std::min(kFromAbove, above.size()); ++i) {
    seeds->push_back(above[i]->orders);
  }
}

void FrontierLane::Keep(Orders orders) {
  Evaluator evaluator(*made_.costs);
  const Schedule schedule(orders);
  const Evaluator::Result& result =
      evaluator.Evaluate(schedule, made_.problem.tail, kPeriodIterations);
  KnownOrder one{.orders = std::move(orders),
                 .value = ValueOf(result, made_.problem.objective),
                 .needs = limits_.Holding(result.peak_bytes)};
  for (const KnownOrder& k : known_) {
    if (k.needs <= one.needs && k.value <= one.value) return;
  }
  std::erase_if(known_,
                [&](const KnownOrder& k) { return k.needs >= one.needs && k.value >= one.value; });
  known_.push_back(std::move(one));
}

}  // namespace spiritlevel
