// One placement's part of the frontier: what is known of it under any limit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cli/searching.h"
#include "scenarios/scenario.h"
#include "sim/evaluate.h"
#include "sim/search/bound.h"
#include "sim/search/problem.h"
#include "sim/search/search.h"

namespace spiritlevel {

bool HasPairs(const Orders& orders);  // ops that overlap the next

TimeNs ValueOf(const Evaluator::Result& result, Objective objective);

// One number for the limits of all ranks. Without a ratio it is the limit of each; with one, of the
// rank that `ratio` leaves most room beside its static memory, and the others' rooms keep theirs.
class FrontierLimits {
 public:
  FrontierLimits(std::vector<Bytes> statics, std::vector<Bytes> ratio);

  std::vector<Bytes> Of(Bytes limit) const;
  // The least number that gives each rank what it needs.
  Bytes Holding(const std::vector<Bytes>& needs) const;

  bool have_ratio() const { return !ratio_.empty(); }
  int most() const { return static_cast<int>(most_); }

 private:
  Bytes Share(size_t rank) const { return ratio_[rank] - statics_[rank]; }

  std::vector<Bytes> statics_;
  std::vector<Bytes> ratio_;
  size_t most_ = 0;
};

struct KnownOrder {
  Orders orders;
  TimeNs value = 0;
  Bytes needs = 0;  // the least limit that holds it
};

class FrontierLane {
 public:
  // Throws InputError where the scenario has no costs for the placement, and for a ratio that
  // leaves a rank no room. `scenario` must outlive it.
  FrontierLane(const Scenario& scenario, const Placement& placement, Objective objective, Tail tail,
               const std::vector<Bytes>& ratio);

  const Placement& placement() const { return made_.problem.placement; }
  Bytes least() const { return least_; }  // feasible
  Bytes LeastOf(int rank) const { return least_of_rank_[static_cast<size_t>(rank)]; }
  const FrontierLimits& limits() const { return limits_; }
  const Bound& BoundUnder(Bytes limit);  // worked out once

  // The best order under `limit` that is known already; null for none.
  const KnownOrder* BestKnown(Bytes limit) const;

  const std::vector<KnownOrder>& known() const { return known_; }

  // Adds what it finds to what is known, and gives the evaluations that it took. Begins with named
  // schedules, the best known, and those that need a little more.
  int64_t SearchUnder(Bytes limit, SearchOptions options);

  // Of limits between `low` and `high` at which some rank has room for one more activation or
  // W-state, the one nearest to `middle`; nothing where there is none.
  std::optional<Bytes> StepNearest(Bytes middle, Bytes low, Bytes high) const;

 private:
  void AddNeighbours(Bytes limit, std::vector<Orders>* seeds) const;
  void Keep(Orders orders);

  const Scenario& scenario_;
  ScenarioProblem made_;
  FrontierLimits limits_;
  std::vector<Bytes> least_of_rank_;
  Bytes least_ = 0;
  std::map<Bytes, Bound> bounds_;
  std::vector<KnownOrder> known_;  // none as good as another that needs no more
};

}  // namespace spiritlevel
