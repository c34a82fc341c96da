// What a search, a bound and a certificate are about: costs, a placement, memory limits and an
// objective. The answer (an order), and facts about it, are other types.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "sim/costs.h"
#include "sim/program.h"

namespace spiritlevel {

// Which rank holds which stages, the same for every micro-batch.
//   linear: one stage on each rank.
//   looped: stage s on rank s mod ranks.
//   V:      two on each: stage s < ranks on rank s, and back again from the last rank.
enum class PlacementForm : uint8_t { kLinear, kLooped, kV };

std::string_view Name(PlacementForm form);  // "linear", "looped", "v"

struct Placement {
  PlacementForm form = PlacementForm::kLinear;
  int ranks = 1;
  int stages_per_rank = 1;  // linear 1, V 2

  int num_stages() const { return ranks * stages_per_rank; }
  int rank_of(int stage) const {
    if (form == PlacementForm::kV && stage >= ranks) return 2 * ranks - 1 - stage;
    return stage % ranks;
  }
  // The rank's stages, ascending.
  int stage_of(int rank, int chunk) const {
    if (form == PlacementForm::kV && chunk == 1) return 2 * ranks - 1 - rank;
    return chunk * ranks + rank;
  }

  friend bool operator==(const Placement&, const Placement&) = default;
};

// All of one iteration by itself, from an empty pipeline, but for the step.
enum class Objective : uint8_t {
  kSpan,      // the largest rank span: first op's start to last op's end, on one rank
  kMakespan,  // with the tail
  kStep,      // the period under the tail
};

std::string_view Name(Objective objective);  // "span", "makespan", "step"

inline constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

struct SearchProblem {
  Placement placement{};
  const Costs* costs = nullptr;  // of placement.num_stages() stages; must outlive the problem
  std::vector<Bytes> limits{};   // by rank: of live memory, static memory included
  Objective objective = Objective::kSpan;
  Tail tail = Tail::kBarrier;  // none or barrier

  int micro_batches() const { return costs->num_micro_batches(); }
  // What the ops of a rank may hold at once; negative where its static memory is over the limit.
  Bytes room(int rank) const;
};

}  // namespace spiritlevel
