#include "sim/search/waves.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <tuple>
#include <vector>

namespace spiritlevel {
namespace {

struct Planned {
  double at = 0;
  Turn turn = 0;
  int32_t place = 0;
};

class Planner {
 public:
  Planner(const SearchProblem& problem, const Waves& waves, const Plan& plan)
      : problem_(problem),
        waves_(waves),
        plan_(plan),
        by_rank_(static_cast<size_t>(problem.placement.ranks)) {}

  void PlanMicroBatch(int32_t place) {
    const Placement& placement = problem_.placement;
    const int32_t micro_batch = plan_.order[static_cast<size_t>(place)];
    double at = Launch(place);
    const int stages = placement.num_stages();
    for (int stage = 0; stage < stages; ++stage) {
      const StageCost& cost = problem_.costs->of(stage, micro_batch);
      Add(stage, TurnKind::kF, at, place);
      at += static_cast<double>(cost.forward) * (1 + waves_.forward_slack) + Hop(stage, stage + 1);
    }
    at += waves_.turn_slack *
          static_cast<double>(problem_.costs->of(stages - 1, micro_batch).forward);
    for (int stage = stages - 1; stage >= 0; --stage) {
      const StageCost& cost = problem_.costs->of(stage, micro_batch);
      Add(stage, TurnKind::kB, at, place);
      at += static_cast<double>(cost.input_grad) +
            static_cast<double>(cost.forward) * waves_.backward_slack + Hop(stage, stage - 1);
    }
  }

  bool TakeTurns(int rank, std::vector<Turn>* turns) {
    std::vector<Planned>& planned = by_rank_[static_cast<size_t>(rank)];
    std::sort(planned.begin(), planned.end(), [](const Planned& a, const Planned& b) {
      return std::tie(a.at, a.place, a.turn) < std::tie(b.at, b.place, b.turn);
    });
    std::list<Planned> left(planned.begin(), planned.end());
    Room room{problem_, rank};
    turns->clear();
    while (!left.empty()) {
      const auto next = std::find_if(left.begin(), left.end(), [&](const Planned& p) {
        return room.Fits(p, plan_.order[static_cast<size_t>(p.place)]);
      });
      if (next == left.end()) return false;
      room.Take(*next, plan_.order[static_cast<size_t>(next->place)]);
      turns->push_back(next->turn);
      left.erase(next);
    }
    return true;
  }

 private:
  // What the rank holds once every W that can run has run.
  struct Room {
    const SearchProblem& problem;
    int rank;
    Bytes live = 0;
    std::vector<int32_t> forwards =
        std::vector<int32_t>(static_cast<size_t>(problem.placement.stages_per_rank), 0);
    Bytes room = problem.room(rank);

    const StageCost& CostOf(Turn turn, int32_t micro_batch) const {
      return problem.costs->of(problem.placement.stage_of(rank, ChunkOf(turn)), micro_batch);
    }
    bool Fits(const Planned& p, int32_t micro_batch) const {
      const StageCost& cost = CostOf(p.turn, micro_batch);
      const int32_t done = forwards[static_cast<size_t>(ChunkOf(p.turn))];
      if (KindOf(p.turn) != TurnKind::kF) return p.place < done;
      return p.place == done &&
             live <= room - cost.activation - cost.transient[static_cast<size_t>(Pass::kF)];
    }
    void Take(const Planned& p, int32_t micro_batch) {
      const StageCost& cost = CostOf(p.turn, micro_batch);
      const bool forward = KindOf(p.turn) == TurnKind::kF;
      live += forward ? cost.activation : -cost.activation;
      if (forward) ++forwards[static_cast<size_t>(ChunkOf(p.turn))];
    }
  };

  double Launch(int32_t place) const {
    if (!waves_.keeps_grid) return waves_.grid * waves_.rate * place;
    const int32_t in_burst = place % waves_.burst;
    return waves_.grid * (std::floor((place - in_burst) * waves_.rate + waves_.phase) + in_burst);
  }

  double Hop(int from, int to) const {
    const Placement& placement = problem_.placement;
    if (to < 0 || to >= placement.num_stages()) return 0;
    if (placement.rank_of(from) == placement.rank_of(to)) return 0;
    const HopCost& hop = problem_.costs->common().hop;
    return static_cast<double>(hop.latency + hop.busy);
  }

  void Add(int stage, TurnKind kind, double at, int32_t place) {
    const Placement& placement = problem_.placement;
    const int rank = placement.rank_of(stage);
    int chunk = 0;
    while (placement.stage_of(rank, chunk) != stage) ++chunk;
    by_rank_[static_cast<size_t>(rank)].push_back({at, MakeTurn(chunk, kind), place});
  }

  const SearchProblem& problem_;
  const Waves& waves_;
  const Plan& plan_;
  std::vector<std::vector<Planned>> by_rank_;
};

}  // namespace

bool MakeWaves(const SearchProblem& problem, const Waves& waves, Plan* plan) {
  Planner planner(problem, waves, *plan);
  for (size_t place = 0; place < plan->order.size(); ++place) {
    planner.PlanMicroBatch(static_cast<int32_t>(place));
  }
  plan->turns.resize(static_cast<size_t>(problem.placement.ranks));
  for (int rank = 0; rank < problem.placement.ranks; ++rank) {
    if (!planner.TakeTurns(rank, &plan->turns[static_cast<size_t>(rank)])) return false;
  }
  return true;
}

}  // namespace spiritlevel
