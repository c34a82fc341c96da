// Problems for the zero-bubble heuristics and what must hold of every answer.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "sim/analysis/check_schedule.h"
#include "sim/search/problem.h"
#include "sim/search/zb_plan.h"
#include "tests/sim/run.h"

namespace spiritlevel {

// The same limit on every rank.
inline SearchProblem Problem(const Placement& placement, const Costs& costs, Bytes limit) {
  return {.placement = placement,
          .costs = &costs,
          .limits = std::vector<Bytes>(static_cast<size_t>(placement.ranks), limit)};
}

// Small integers, so that ties and zeros abound, in problems that are linear or V.
class RandomZbProblem {
 public:
  explicit RandomZbProblem(unsigned seed) : random_(seed), costs_(MakeCosts()) {
    problem_.costs = &costs_;
    SetLimits(8);
  }

  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  const SearchProblem& problem() const { return problem_; }
  const Costs& costs() const { return costs_; }

  Bytes Least(int rank) const { return Static(rank) + LeastRoom(problem_.placement, costs_, rank); }

  // The least feasible and up to `most` more, by chance.
  void SetLimits(int most) {
    problem_.limits.clear();
    for (int rank = 0; rank < problem_.placement.ranks; ++rank) {
      const Bytes more = Below(3) == 0 ? 0 : Below(most);
      problem_.limits.push_back(Below(8) == 0 ? kNoLimit : Least(rank) + more);
    }
  }

  void LowerLimit(int rank) { problem_.limits[static_cast<size_t>(rank)] = Least(rank) - 1; }

 private:
  Bytes Static(int rank) const {
    std::vector<int> stages;
    for (int chunk = 0; chunk < problem_.placement.stages_per_rank; ++chunk) {
      stages.push_back(problem_.placement.stage_of(rank, chunk));
    }
    return Total(costs_.static_memory(stages, problem_.placement.ranks));
  }

  Costs MakeCosts() {
    if (Below(2) == 0) problem_.placement = {.form = PlacementForm::kV, .stages_per_rank = 2};
    problem_.placement.ranks = 1 + Below(6);
    const int stages = problem_.placement.num_stages();
    const int micro_batches = 1 + Below(14);
    const int rows = stages * (Below(2) == 0 ? micro_batches : 1);
    const bool has_workspace = Below(2) == 0;
    std::vector<StageCost> table;
    for (int i = 0; i < rows; ++i) {
      StageCost cost = SumOfParts(Below(5), Below(5), Below(4), Below(6), Below(5));
      for (Bytes& transient : cost.transient) transient = has_workspace ? Below(4) : 0;
      table.push_back(cost);
    }
    return Costs(stages, micro_batches, std::move(table),
                 {.hop = {.latency = Below(4), .busy = Below(3)},
                  .launch = Below(2),
                  .static_bytes = Below(50)});
  }

  std::mt19937 random_;
  SearchProblem problem_;
  Costs costs_;
};

// Legal, and by no byte over the limit.
inline void ExpectGood(const Orders& orders, const SearchProblem& problem) {
  const ScheduleVerdict verdict = CheckSchedule(orders);
  ASSERT_TRUE(verdict.legal()) << verdict.findings[0].what << "\n" << ToString(orders);
  const Schedule schedule(orders);
  Evaluator evaluator(*problem.costs);
  const Evaluator::Result& result = evaluator.Evaluate(schedule, Tail::kNoTail);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (const int stage : schedule.stages_of(rank)) {
      EXPECT_EQ(problem.placement.rank_of(stage), rank);
    }
    EXPECT_LE(result.peak_bytes[static_cast<size_t>(rank)],
              problem.limits[static_cast<size_t>(rank)])
        << "rank " << rank << "\n"
        << ToString(orders);
  }
}

}  // namespace spiritlevel
