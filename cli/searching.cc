#include "cli/searching.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "cli/exact_apart.h"
#include "cli/interrupt.h"
#include "sim/analysis/check_schedule.h"
#include "sim/search/zb_heuristic.h"
#include "sim/search/zb_plan.h"
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

bool IsAsked(const std::atomic<bool>* stop) { return stop != nullptr && stop->load(); }

void RefuseTooLarge(const SearchProblem& problem) {
  const int64_t ops = int64_t{3} * problem.placement.num_stages() * problem.micro_batches();
  if (ops <= kMostSearchedOps) return;
  throw InputError(
      fmt::format("{} stages x {} micro-batches are {} ops, more than the {} that are searched",
                  problem.placement.num_stages(), problem.micro_batches(), ops, kMostSearchedOps),
      fmt::format("search with {} micro_batches: a cycle that repeats shows long before",
                  kMostSearchedOps / (int64_t{3} * problem.placement.num_stages())));
}

// Like RequireFeasible(), but it says whose limit is too small, and what would do on all ranks.
void RefuseTightLimits(const SearchProblem& problem, const std::string& limits_from) {
  const std::vector<Bytes>& limits = problem.limits;
  const bool one_for_all =
      std::all_of(limits.begin(), limits.end(), [&](Bytes limit) { return limit == limits[0]; });
  Bytes most = 0;
  int at = -1;
  for (int rank = 0; rank < problem.placement.ranks; ++rank) {
    const Bytes least = LeastFeasibleLimit(problem, rank);
    const bool short_of = limits[static_cast<size_t>(rank)] < least;
    if (!short_of || least <= most) continue;
    most = least;
    at = rank;
  }
  if (at < 0) return;
  throw InputError(
      fmt::format("{}: no order of {} placement fits into {} bytes on rank {}", limits_from,
                  NameOf(problem.placement), limits[static_cast<size_t>(at)], at),
      fmt::format("one micro-batch at a time needs {} bytes there ({}): give at least as many{}",
                  most, FormatBytes(most), one_for_all ? "" : " to that rank"));
}

// One placement's search.
class OneSearch {
 public:
  OneSearch(const Scenario& scenario, const Placement& placement, const SearchRequest& request)
      : scenario_(scenario), made_(ProblemOf(scenario, placement, request.limits)) {
    made_.problem.objective = request.objective;
    made_.problem.tail = request.tail;
    RefuseTooLarge(made_.problem);
    RefuseTightLimits(made_.problem, request.limits_from);
  }

  // All of it, seeds included, in options.seconds.
  Found Run(SearchOptions options) const {
    const auto begin = StopSign::Clock::now();
    const double meant = options.evaluations == 0 ? options.seconds : 0;
    StopSign stop{.asked = options.stop};
    if (options.evaluations == 0) {
      stop.at = begin + std::chrono::duration_cast<StopSign::Clock::duration>(
                            std::chrono::duration<double>(kMostForSeeds * options.seconds));
    }
    const Bound bound = LowerBound(made_.problem);
    options.lower_bound = bound.value;
    options.seeds = SeedsFor(scenario_, made_.problem, stop);
    const double spent = std::chrono::duration<double>(StopSign::Clock::now() - begin).count();
    options.seconds -= spent;
    Found found = SearchAndProve(made_.problem, bound, options);
    found.answer.seconds += spent;
    found.seconds_meant = meant;
    found.interrupted = IsAsked(options.stop) && !found.certificate.proved_optimal;
    return found;
  }

 private:
  // Of the time. They are ready at once but where there is a great number of ops.
  static constexpr double kMostForSeeds = 0.5;

  const Scenario& scenario_;
  ScenarioProblem made_;
};

}  // namespace

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

std::string NameOf(const Placement& placement) {
  return placement.form == PlacementForm::kLooped
             ? fmt::format("looped, {} stages a rank", placement.stages_per_rank)
             : std::string(Name(placement.form));
}

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

namespace {

class Seeds {
 public:
  Seeds(const Scenario& scenario, const SearchProblem& problem, const StopSign& stop)
      : problem_(problem),
        shape_{.ranks = scenario.ranks,
               .micro_batches = scenario.micro_batches,
               .stages_per_rank = problem.placement.stages_per_rank,
               .group = scenario.group},
        stop_(stop) {
    if (stop_.asked == nullptr) stop_.asked = &interrupted;
  }

  std::vector<Orders> Make() {
    // Those made for the limits first: they fit.
    AddAutomatic(problem_.limits);
    for (const ScheduleInfo& info : AllSchedules()) {
      const bool automatic = info.hangs_on_costs();  // as are those below
      if (automatic || info.stages_per_rank(shape_) != problem_.placement.stages_per_rank) continue;
      Add([&] {
        const Schedule schedule = info.Make(shape_);
        return PlacementOf(schedule) == problem_.placement ? schedule.ToOrders() : Orders{};
      });
    }
    // What the catalog's automatic ones are made for.
    if (problem_.placement.form != PlacementForm::kLooped) {
      AddAutomatic(LimitsInActivations(problem_.placement, *problem_.costs, 1));
    }
    if (problem_.placement.form == PlacementForm::kLinear) {
      AddAutomatic(LimitsInActivations(problem_.placement, *problem_.costs, 2));
    }
    return std::move(seeds_);
  }

 private:
  template <class MakeOrders>
  void Add(MakeOrders make) {
    if (stop_.IsUp()) return;
    try {
      Orders orders = make();
      if (!orders.empty()) seeds_.push_back(std::move(orders));
    } catch (const InputError&) {
      // It cannot be made on this shape, or under these limits.
    }
  }

  void AddAutomatic(std::vector<Bytes> limits) {
    SearchProblem problem = problem_;
    problem.limits = std::move(limits);
    if (problem.placement.form == PlacementForm::kLinear) {
      Add([&] { return BestZbHeuristic(problem, stop_); });
    }
    if (problem.placement.form == PlacementForm::kV) {
      Add([&] { return BestZbVHeuristic(problem, stop_); });
    }
  }

  const SearchProblem& problem_;
  const Shape shape_;
  StopSign stop_;
  std::vector<Orders> seeds_;
};

}  // namespace

std::vector<Orders> SeedsFor(const Scenario& scenario, const SearchProblem& problem,
                             const StopSign& stop) {
  return Seeds(scenario, problem, stop).Make();
}

bool FoundInAll::interrupted() const {
  return !not_searched.empty() ||
         std::any_of(all.begin(), all.end(), [](const Found& f) { return f.interrupted; });
}

FoundInAll SearchPlacements(const Scenario& scenario, const SearchRequest& request,
                            const SearchOptions& options) {
  FoundInAll found;
  std::optional<InputError> last_error;
  const std::vector<Placement>& placements = request.placements;
  const auto share = static_cast<double>(placements.size());
  for (size_t i = 0; i < placements.size(); ++i) {
    try {
      const OneSearch search(scenario, placements[i], request);
      // Of one at least there is an order.
      if (!found.all.empty() && IsAsked(options.stop)) {
        found.not_searched.push_back(placements[i]);
        continue;
      }
      SearchOptions one = options;
      one.seconds = options.seconds / share;
      one.evaluations =
          options.evaluations == 0
              ? 0
              : std::max<int64_t>(1, options.evaluations / static_cast<int64_t>(placements.size()));
      if (options.observer) {
        one.observer = [&, i](double done, TimeNs best) {
          options.observer((static_cast<double>(i) + std::min(1.0, done)) / share, best);
        };
      }
      Found here = search.Run(std::move(one));
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
