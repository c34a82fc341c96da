// Searching on a scenario: what search and frontier share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/play.h"
#include "scenarios/scenario.h"
#include "sim/costs.h"
#include "sim/search/bound.h"
#include "sim/search/search.h"
#include "sim/search/stop_sign.h"

namespace spiritlevel {

// A problem with the costs that it points to. Sums of gradients are left out of them: they stand
// behind all ops, and no order of these changes what they take.
struct ScenarioProblem {
  std::unique_ptr<Costs> costs;
  SearchProblem problem;
};

Costs WithoutSums(const Costs& costs);

// Throws InputError where the scenario has no costs for that placement.
ScenarioProblem ProblemOf(const Scenario& scenario, const Placement& placement,
                          std::vector<Bytes> limits);

// The placement of a schedule; nothing for one that no problem can have (DualPipe).
std::optional<Placement> PlacementOf(const Schedule& schedule);

// "looped, 3 stages a rank"; "linear" and "v" say it all.
std::string NameOf(const Placement& placement);

// Every named schedule of that placement, those made for the problem's limits included; of those
// that are ready before `stop` is up, or before ctrl-C is pressed.
std::vector<Orders> SeedsFor(const Scenario& scenario, const SearchProblem& problem,
                             const StopSign& stop = {});

// Ops of a schedule, F, B and W each, above which a search is refused: with a single look at an
// order taking so long, hardly any would be looked at.
inline constexpr int64_t kMostSearchedOps = 2'000'000;

struct Found {
  Placement placement{};
  SearchAnswer answer{};
  Certificate certificate{};
  double seconds_meant = 0;  // of a budget of time
  bool interrupted = false;  // before its budget was used up
};

// What is to be found, and where its limits come from ("--memory-limit"), for complaints about
// them.
struct SearchRequest {
  std::vector<Placement> placements;
  std::vector<Bytes> limits;  // by rank
  std::string limits_from;
  Objective objective = Objective::kSpan;
  Tail tail = Tail::kBarrier;
};

// The best of all placements: each is searched, with an equal share of the budget. Of placements
// that the scenario has no costs for, or whose limits hold nothing, `passed_over` says why. After
// an interrupt the ones to come are not searched.
//
// With a budget of time, a small problem whose bound is not reached after a fifth of it is handed
// to the exact solver, if there is one. No other thread of this process may run meanwhile.
//
// Throws InputError where no placement is left.
struct FoundInAll {
  Found best{};
  std::vector<Found> all{};
  std::vector<Placement> not_searched{};
  std::vector<std::string> passed_over{};

  bool interrupted() const;
};
FoundInAll SearchPlacements(const Scenario& scenario, const SearchRequest& request,
                            const SearchOptions& options);

}  // namespace spiritlevel
