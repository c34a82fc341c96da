#include "sim/search/plan.h"

#include <algorithm>

namespace spiritlevel {
namespace {

int ChunkOfStage(const Placement& placement, int rank, int stage) {
  for (int chunk = 0; chunk < placement.stages_per_rank; ++chunk) {
    if (placement.stage_of(rank, chunk) == stage) return chunk;
  }
  return -1;
}

TurnKind KindOfPass(Pass pass) {
  if (pass == Pass::kF) return TurnKind::kF;
  return pass == Pass::kB ? TurnKind::kB : TurnKind::kBW;
}

}  // namespace

bool ReadPlan(const SearchProblem& problem, const Orders& orders, Plan* plan) {
  const Placement& placement = problem.placement;
  const auto micro_batches = static_cast<size_t>(problem.micro_batches());
  if (orders.size() != static_cast<size_t>(placement.ranks)) return false;
  *plan = {.order = {}, .turns = {}, .gap_permille = {}};
  for (const Op& op : orders[0]) {
    if (op.pass == Pass::kF && op.stage == placement.stage_of(0, 0)) {
      plan->order.push_back(op.micro_batch);
    }
  }
  if (plan->order.size() != micro_batches) return false;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    std::vector<Turn>& turns = plan->turns.emplace_back();
    std::vector<size_t> forwards(static_cast<size_t>(placement.stages_per_rank), 0);
    std::vector<size_t> backwards = forwards;
    for (const Op& op : orders[static_cast<size_t>(rank)]) {
      if (op.pass == Pass::kW) {
        turns.push_back(kTurnW);
        continue;
      }
      const int chunk = ChunkOfStage(placement, rank, op.stage);
      if (chunk < 0 || op.overlaps_next) return false;
      size_t& next = (op.pass == Pass::kF ? forwards : backwards)[static_cast<size_t>(chunk)];
      if (next >= micro_batches || plan->order[next] != op.micro_batch) return false;
      ++next;
      turns.push_back(MakeTurn(chunk, KindOfPass(op.pass)));
    }
  }
  plan->gap_permille.assign(2 * static_cast<size_t>(placement.ranks), 1000);
  return true;
}

}  // namespace spiritlevel
