#include "cli/searching.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "cli/exact_apart.h"
#include "sim/analysis/check_schedule.h"
#include "sim/search/zb_heuristic.h"
#include "sim/search/zb_v_heuristic.h"

namespace spiritlevel {
namespace {

StageGroups GroupsOf(const Placement& placement) {
  StageGroups groups;
  if (placement.stages_per_rank < 2) return groups;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    std::vector<int>& stages = groups.emplace_back();
    for (int chunk = 0; chunk < placement.stages_per_rank; ++chunk) {
      stages.push_back(placement.stage_of(rank, chunk));
    }
  }
  return groups;
}

Costs WithoutSums(const Costs& costs) {
  if (costs.common().gradients.empty()) return costs;
  const int rows = costs.varies_by_micro_batch() ? costs.num_micro_batches() : 1;
  std::vector<StageCost> table;
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    for (int i = 0; i < rows; ++i) table.push_back(costs.of(stage, i));
  }
  Costs::Common common = costs.common();
  common.gradients = {};
  return Costs(costs.num_stages(), costs.num_micro_batches(), std::move(table), common);
}

// F, B and W of each stage and micro-batch. Of problems with more of them hardly any is proved
// within seconds.
constexpr int64_t kMostOpsToProve = 200;
// What the search of such a problem gets of the time; it seldom finds better later.
constexpr double kSearchShare = 0.2;

// A budget by count is to give the same answer everywhere, and how far the solver comes in a time
// is another on each machine.
bool MayBeProved(const SearchProblem& problem, const SearchOptions& options) {
  const int64_t ops = int64_t{3} * problem.placement.num_stages() * problem.micro_batches();
  return ExactIsAvailable() && options.evaluations == 0 && problem.objective != Objective::kStep &&
         ops <= kMostOpsToProve;
}

// Where the search does not reach the bound, the integer program may raise the bound to what was
// found, or find better.
void Prove(const SearchProblem& problem, double seconds, const std::atomic<bool>* stop,
           Found* found) {
  const auto begin = std::chrono::steady_clock::now();
  std::optional<ExactAnswer> exact =
      SolveExactlyApart(problem, seconds, found->answer.orders, stop);
  found->answer.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!exact) return;
  if (exact->value < found->answer.value) {
    found->answer.value = exact->value;
    found->answer.orders = std::move(exact->orders);
  }
  found->certificate = Certify(exact->bound, found->answer.value);
}

Found SearchAndProve(const SearchProblem& problem, const Bound& bound, SearchOptions options) {
  const double seconds = options.seconds;
  const bool may_be_proved = MayBeProved(problem, options);
  if (may_be_proved) options.seconds *= kSearchShare;
  Found found{.placement = problem.placement, .answer = Search(problem, options)};
  found.certificate = Certify(bound, found.answer.value);
  const bool stopped = options.stop != nullptr && options.stop->load();
  if (may_be_proved && !stopped && !found.certificate.proved_optimal) {
    Prove(problem, seconds - found.answer.seconds, options.stop, &found);
  }
  return found;
}

std::string NameOf(const Placement& placement) {
  return placement.form == PlacementForm::kLooped
             ? fmt::format("looped, {} stages a rank", placement.stages_per_rank)
             : std::string(Name(placement.form));
}

}  // namespace

ScenarioProblem ProblemOf(const Scenario& scenario, const Placement& placement,
                          std::vector<Bytes> limits) {
  ScenarioProblem made;
  made.costs = std::make_unique<Costs>(
      WithoutSums(CostsFor(scenario, placement.num_stages(), GroupsOf(placement))));
  made.problem = {.placement = placement, .costs = made.costs.get(), .limits = std::move(limits)};
  return made;
}

std::optional<Placement> PlacementOf(const Schedule& schedule) {
  if (!schedule.one_rank_per_stage() || schedule.num_stages() % schedule.num_ranks() != 0) {
    return {};
  }
  const int chunks = schedule.num_stages() / schedule.num_ranks();
  std::vector<Placement> forms;
  if (chunks == 1) forms.push_back({PlacementForm::kLinear, schedule.num_ranks(), 1});
  if (chunks == 2) forms.push_back({PlacementForm::kV, schedule.num_ranks(), 2});
  if (chunks > 1) forms.push_back({PlacementForm::kLooped, schedule.num_ranks(), chunks});
  for (const Placement& form : forms) {
    bool same = true;
    for (int stage = 0; stage < schedule.num_stages(); ++stage) {
      same &= schedule.rank_of(stage, 0) == form.rank_of(stage);
    }
    if (same) return form;
  }
  return {};
}

std::vector<Orders> SeedsFor(const Scenario& scenario, const SearchProblem& problem) {
  std::vector<Orders> seeds;
  const auto add = [&](const auto& make) {
    try {
      seeds.push_back(make());
    } catch (const InputError&) {
      // It cannot be made on this shape, or under these limits.
    }
  };
  const int chunks = problem.placement.stages_per_rank;
  const Shape shape{.ranks = scenario.ranks,
                    .micro_batches = scenario.micro_batches,
                    .stages_per_rank = chunks,
                    .group = scenario.group};
  for (const ScheduleInfo& info : AllSchedules()) {
    if (info.stages_per_rank(shape) != chunks) continue;
    add([&] {
      const Schedule schedule = info.Make(shape, *problem.costs);
      const std::optional<Placement> placement = PlacementOf(schedule);
      return placement == problem.placement ? schedule.ToOrders() : Orders{};
    });
    if (!seeds.empty() && seeds.back().empty()) seeds.pop_back();
  }
  if (problem.placement.form == PlacementForm::kLinear) {
    add([&] { return BestZbHeuristic(problem); });
  }
  if (problem.placement.form == PlacementForm::kV) {
    add([&] { return BestZbVHeuristic(problem); });
  }
  return seeds;
}

FoundInAll SearchPlacements(const Scenario& scenario, const std::vector<Placement>& placements,
                            const std::vector<Bytes>& limits, Objective objective, Tail tail,
                            const SearchOptions& options) {
  FoundInAll found;
  std::optional<InputError> last_error;
  const auto share = static_cast<double>(placements.size());
  for (size_t i = 0; i < placements.size(); ++i) {
    try {
      ScenarioProblem made = ProblemOf(scenario, placements[i], limits);
      made.problem.objective = objective;
      made.problem.tail = tail;
      const Bound bound = LowerBound(made.problem);
      SearchOptions one = options;
      one.seconds = options.seconds / share;
      one.evaluations =
          options.evaluations == 0
              ? 0
              : std::max<int64_t>(1, options.evaluations / static_cast<int64_t>(placements.size()));
      one.lower_bound = bound.value;
      one.seeds = SeedsFor(scenario, made.problem);
      if (options.observer) {
        one.observer = [&, i](double done, TimeNs best) {
          options.observer((static_cast<double>(i) + std::min(1.0, done)) / share, best);
        };
      }
      Found here = SearchAndProve(made.problem, bound, one);
      const bool better = found.all.empty() || here.answer.value < found.best.answer.value;
      if (better) found.best = here;
      found.all.push_back(std::move(here));
    } catch (const InputError& error) {
      found.passed_over.push_back(NameOf(placements[i]) + ": " + error.problem());
      last_error = error;
    }
  }
  if (found.all.empty()) throw *last_error;
  return found;
}

}  // namespace spiritlevel
