// Searching on a scenario: what search and frontier share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/play.h"
#include "scenarios/scenario.h"
#include "sim/search/bound.h"
#include "sim/search/search.h"

namespace spiritlevel {

// A problem with the costs that it points to. Sums of gradients are left out of them: they stand
// behind all ops, and no order of these changes what they take.
struct ScenarioProblem {
  std::unique_ptr<Costs> costs;
  SearchProblem problem;
};

// Throws InputError where the scenario has no costs for that placement.
ScenarioProblem ProblemOf(const Scenario& scenario, const Placement& placement,
                          std::vector<Bytes> limits);

// The placement of a schedule; nothing for one that no problem can have (DualPipe).
std::optional<Placement> PlacementOf(const Schedule& schedule);

// Every named schedule of that placement, those made for the problem's limits included.
std::vector<Orders> SeedsFor(const Scenario& scenario, const SearchProblem& problem);

struct Found {
  Placement placement{};
  SearchAnswer answer{};
  Certificate certificate{};
};

// The best of all placements: each is searched, with an equal share of the budget. Of placements
// that the scenario has no costs for, or whose limits hold nothing, `passed_over` says why.
//
// With a budget of time, a small problem whose bound is not reached after a fifth of it is handed
// to the exact solver, if there is one. No other thread of this process may run meanwhile.
//
// Throws InputError where no placement is left.
struct FoundInAll {
  Found best{};
  std::vector<Found> all{};
  std::vector<std::string> passed_over{};
};
FoundInAll SearchPlacements(const Scenario& scenario, const std::vector<Placement>& placements,
                            const std::vector<Bytes>& limits, Objective objective, Tail tail,
                            const SearchOptions& options);

}  // namespace spiritlevel
