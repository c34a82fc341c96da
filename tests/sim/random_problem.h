// Random SearchProblems with small integers, so that ties abound, and random orders for them. A
// seed tells all; print it where a test fails.
#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/evaluate.h"
#include "sim/search/bound.h"
#include "sim/search/decoder.h"
#include "sim/search/policy.h"
#include "sim/search/problem.h"

namespace spiritlevel {

struct OwnedProblem {
  Costs costs;
  Placement placement;
  std::vector<Bytes> limits;

  SearchProblem As(Objective objective, Tail tail) const {
    return {.placement = placement,
            .costs = &costs,
            .limits = limits,
            .objective = objective,
            .tail = tail};
  }
};

class RandomProblem {
 public:
  explicit RandomProblem(unsigned seed) : random_(seed) {}

  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  Placement MakePlacement(int most_ranks) {
    const int ranks = 1 + Below(most_ranks);
    switch (Below(4)) {
      case 0:
        return {.form = PlacementForm::kLooped, .ranks = ranks, .stages_per_rank = 2 + Below(2)};
      case 1:
        return {.form = PlacementForm::kV, .ranks = ranks, .stages_per_rank = 2};
      default:
        return {.form = PlacementForm::kLinear, .ranks = ranks, .stages_per_rank = 1};
    }
  }

  // Equal or not, by stage and by micro-batch.
  Costs MakeCosts(int stages, int micro_batches) {
    const bool stages_alike = Below(2) == 0;
    const bool by_micro_batch = Below(2) == 0;
    const bool transients = Below(4) == 0;
    std::vector<StageCost> table;
    for (int stage = 0; stage < stages; ++stage) {
      const StageCost of_stage =
          stages_alike && stage > 0 && !by_micro_batch ? table.front() : MakeCost(transients);
      for (int i = 0; i < (by_micro_batch ? micro_batches : 1); ++i) {
        // One micro-batch may be several times as long as the others.
        const int times = by_micro_batch && Below(3) == 0 ? 1 + Below(4) : 1;
        table.push_back(Below(2) == 0 ? Scaled(of_stage, times)
                                      : MakeCostLike(of_stage, transients));
        if (!by_micro_batch) table.back() = of_stage;
      }
    }
    const bool steps_alike = Below(2) == 0;
    Costs::Common common{.hop = {.latency = Below(4), .busy = Below(2) * Below(4)},
                         .launch = Below(3),
                         .optimizer = Below(6),
                         .barrier = Below(4),
                         .static_bytes = Below(20)};
    for (int stage = 0; stage < stages && !steps_alike; ++stage) {
      common.optimizer_by_stage.push_back(Below(9));
    }
    return Costs(stages, micro_batches, std::move(table), common);
  }

  OwnedProblem MakeProblem(int most_ranks, int most_micro_batches) {
    const Placement placement = MakePlacement(most_ranks);
    OwnedProblem problem{.costs = MakeCosts(placement.num_stages(), 1 + Below(most_micro_batches)),
                         .placement = placement,
                         .limits = {}};
    DrawLimits(&problem);
    return problem;
  }

  // From the least that is feasible to more than is needed; for some ranks none.
  void DrawLimits(OwnedProblem* problem) {
    problem->limits.assign(static_cast<size_t>(problem->placement.ranks), kNoLimit);
    const int most_held = 1 + Below(2 * problem->placement.num_stages());
    for (int rank = 0; rank < problem->placement.ranks; ++rank) {
      const Bytes least = LeastFeasibleLimit(problem->As(Objective::kSpan, Tail::kBarrier), rank);
      if (Below(12) == 0) continue;
      const Bytes each = problem->costs.of(problem->placement.stage_of(rank, 0), 0).activation;
      problem->limits[static_cast<size_t>(rank)] =
          least + Below(1 + static_cast<int>(each) * most_held);
    }
  }

  // An order of a list scheduler with random numbers; nothing where it does not fit.
  std::optional<Orders> PolicyOrders(const SearchProblem& problem) {
    Plan plan;
    for (int i = 0; i < problem.micro_batches(); ++i) plan.order.push_back(i);
    if (Below(2) == 0) std::shuffle(plan.order.begin(), plan.order.end(), random_);
    const auto uniform = [&](double from, double to) {
      return std::uniform_real_distribution<double>(from, to)(random_);
    };
    const Policy policy{.gap = uniform(0, 1.2),
                        .forward_bias = uniform(-1, 1),
                        .later_chunk_bias = uniform(-1, 1),
                        .pace = Below(3) == 0 ? uniform(0, 1.2) : 0,
                        .keeps_room = Below(2) == 0};
    if (!ListScheduler(problem).Run(policy, &plan)) return std::nullopt;
    const int fused = Below(3);  // of three
    for (std::vector<Turn>& turns : plan.turns) {
      for (int i = 0; i < 2; ++i) plan.gap_permille.push_back(Below(1100));
      for (Turn& turn : turns) {
        if (KindOf(turn) == TurnKind::kB && Below(3) < fused) {
          turn = MakeTurn(ChunkOf(turn), TurnKind::kBW);
        }
      }
    }
    Decoder decoder(problem);
    if (decoder.Decode(plan) == Decoder::kInfeasible) return std::nullopt;
    return decoder.OrdersOf(plan);
  }

  // Any order at all, each micro-batch overtaking others as it likes, memory aside.
  Orders AnyOrders(const Placement& placement, int micro_batches) {
    const int stages = placement.num_stages();
    const int eagerness = Below(4);  // to run a backward that can run
    // By stage and micro-batch: F, B and W done.
    std::vector<int> done(static_cast<size_t>(stages * micro_batches), 0);
    const auto state = [&](int stage, int i) -> int& {
      return done[static_cast<size_t>(stage * micro_batches + i)];
    };
    Orders orders(static_cast<size_t>(placement.ranks));
    while (true) {
      std::vector<Op> ready;
      std::vector<Op> backward;
      for (int stage = 0; stage < stages; ++stage) {
        for (int i = 0; i < micro_batches; ++i) {
          const auto add = [&](Pass pass) {
            Op op{.micro_batch = i, .stage = static_cast<uint16_t>(stage), .pass = pass};
            ready.push_back(op);
            if (pass != Pass::kF) backward.push_back(op);
          };
          if (state(stage, i) == 0 && (stage == 0 || state(stage - 1, i) >= 1)) add(Pass::kF);
          if (state(stage, i) == 1 && (stage == stages - 1 || state(stage + 1, i) >= 2)) {
            add(Below(2) == 0 ? Pass::kB : Pass::kBW);
          }
          if (state(stage, i) == 2) add(Pass::kW);
        }
      }
      if (ready.empty()) return orders;
      const std::vector<Op>& from = !backward.empty() && Below(4) < eagerness ? backward : ready;
      const Op op = from[static_cast<size_t>(Below(static_cast<int>(from.size())))];
      state(op.stage, op.micro_batch) = op.pass == Pass::kF ? 1 : op.pass == Pass::kB ? 2 : 3;
      orders[static_cast<size_t>(placement.rank_of(op.stage))].push_back(op);
    }
  }

 private:
  StageCost MakeCost(bool transients) {
    const bool by_fusion = Below(2) == 0;
    StageCost cost{.forward = Below(9),
                   .input_grad = Below(9),
                   .weight_grad = Below(9),
                   .activation = Below(7),
                   .weight_state = Below(6)};
    cost.fused_backward = cost.input_grad + cost.weight_grad;
    if (by_fusion) cost.fused_backward = Below(15);
    for (Bytes& transient : cost.transient) transient = transients ? Below(4) : 0;
    return cost;
  }

  StageCost MakeCostLike(const StageCost& other, bool transients) {
    StageCost cost = MakeCost(transients);
    cost.activation = other.activation;
    return cost;
  }

  static StageCost Scaled(StageCost cost, int times) {
    for (TimeNs* t : {&cost.forward, &cost.input_grad, &cost.weight_grad, &cost.fused_backward}) {
      *t *= times;
    }
    cost.activation *= times;
    cost.weight_state *= times;
    return cost;
  }

  std::mt19937 random_;
};

}  // namespace spiritlevel
