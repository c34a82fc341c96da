#include "sim/search/problem.h"

#include <array>

namespace spiritlevel {

std::string_view Name(PlacementForm form) {
  constexpr std::array<std::string_view, 3> kNames = {"linear", "looped", "v"};
  return kNames[static_cast<size_t>(form)];
}

std::string_view Name(Objective objective) {
  constexpr std::array<std::string_view, 3> kNames = {"span", "makespan", "step"};
  return kNames[static_cast<size_t>(objective)];
}

Bytes SearchProblem::room(int rank) const {
  const Bytes limit = limits[static_cast<size_t>(rank)];
  if (limit == kNoLimit) return kNoLimit;
  std::vector<int> stages;
  for (int chunk = 0; chunk < placement.stages_per_rank; ++chunk) {
    stages.push_back(placement.stage_of(rank, chunk));
  }
  return limit - Total(costs->static_memory(stages, placement.ranks));
}

}  // namespace spiritlevel
