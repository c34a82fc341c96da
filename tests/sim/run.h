// Shared by the tests of sim/: play a schedule and sum it up, on both engines.
#pragma once

#include <string_view>

#include "sim/analysis/summary.h"
#include "sim/costs.h"
#include "sim/engine.h"
#include "sim/evaluate.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "sim/schedules/catalog.h"

namespace spiritlevel {

// Plain units: every pass 1, an activation kept from F to W.
inline constexpr StageCost kUnit{.forward = 1,
                                 .input_grad = 1,
                                 .weight_grad = 1,
                                 .fused_backward = 2,
                                 .overlapped = 3,
                                 .activation = 1,
                                 .weight_state = 1};

// A stage's cost with fused and overlapped passes the sums of their parts.
inline StageCost SumOfParts(TimeNs f, TimeNs b, TimeNs w, Bytes activation = 0,
                            Bytes weight_state = 0) {
  return {.forward = f,
          .input_grad = b,
          .weight_grad = w,
          .fused_backward = b + w,
          .overlapped = f + b + w,
          .activation = activation,
          .weight_state = weight_state};
}

inline Costs UniformFor(const Schedule& schedule, const StageCost& cost,
                        const Costs::Common& common = {}) {
  return Costs::Uniform(schedule.num_stages(), schedule.num_micro_batches(), cost, common);
}

inline Summary SumUp(const Schedule& schedule, const Costs& costs, Tail tail = Tail::kBarrier) {
  const Program program = Lower(schedule, costs, {.tail = tail, .iterations = kPeriodIterations});
  return Summarize(program, costs, SimulateInOrder(program));
}

inline Summary SumUp(const Schedule& schedule, const StageCost& cost,
                     const Costs::Common& common = {}, Tail tail = Tail::kBarrier) {
  return SumUp(schedule, UniformFor(schedule, cost, common), tail);
}

inline Schedule Make(std::string_view name, int ranks, int micro_batches, int stages_per_rank = 2,
                     int group = 0) {
  return FindSchedule(name).Make({.ranks = ranks,
                                  .micro_batches = micro_batches,
                                  .stages_per_rank = stages_per_rank,
                                  .group = group});
}

}  // namespace spiritlevel
