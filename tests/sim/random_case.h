// Random schedules and costs: what a generator writes, disturbed wherever the result still runs,
// and small integers, so that ties abound. A seed tells all; print it where a test fails.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/analysis/check_schedule.h"
#include "tests/sim/run.h"

namespace spiritlevel {

class RandomCase {
 public:
  explicit RandomCase(unsigned seed) : random_(seed) {}

  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  Schedule MakeSchedule() {
    while (true) {
      const ScheduleInfo& info =
          AllSchedules()[static_cast<size_t>(Below(static_cast<int>(AllSchedules().size())))];
      const Shape shape{.ranks = 1 + Below(6),
                        .micro_batches = 1 + Below(12),
                        .stages_per_rank = 1 + Below(3),
                        .group = Below(4) == 0 ? 1 + Below(6) : 0};
      if (info.Refusal(shape)) continue;
      try {
        return Disturbed(info.Make(shape));
      } catch (const InputError&) {
        // A group that deadlocks.
      }
    }
  }

  Costs MakeCosts(const Schedule& schedule) {
    const bool by_micro_batch = Below(2) == 0;
    const int rows = schedule.num_stages() * (by_micro_batch ? schedule.num_micro_batches() : 1);
    std::vector<StageCost> table;
    for (int i = 0; i < rows; ++i) {
      StageCost cost = SumOfParts(Below(4), Below(4), Below(4), Below(9), Below(9));
      cost.fused_backward = Below(7);
      // At least the longer part, so that no pair of two stages takes less than nothing.
      cost.overlapped = std::max(cost.forward, cost.fused_backward) + Below(3);
      table.push_back(cost);
    }
    return Costs(schedule.num_stages(), schedule.num_micro_batches(), std::move(table),
                 {.hop = {.latency = Below(4), .busy = Below(3), .bytes = Below(100)},
                  .launch = Below(2),
                  .optimizer = Below(5),
                  .barrier = Below(4),
                  .static_bytes = Below(50)});
  }

  // The same with gradients that are summed over replicas, by bucket.
  Costs WithBuckets(const Costs& costs) {
    return WithGradients(costs, {.buckets = Buckets(costs)});
  }

  // And with sums between ranks.
  Costs WithSums(const Costs& costs, bool over_replicas) {
    GradientSums sums;
    if (over_replicas) sums.buckets = Buckets(costs);
    for (int stage = 0; stage < costs.num_stages(); ++stage) {
      sums.twins.push_back({.bytes = Below(100), .duration = Below(6)});
    }
    sums.tied = {{.bytes = Below(100), .duration = Below(6)}};
    return WithGradients(costs, sums);
  }

 private:
  std::vector<std::vector<GradientBucket>> Buckets(const Costs& costs) {
    std::vector<std::vector<GradientBucket>> buckets(static_cast<size_t>(costs.num_stages()));
    for (auto& stage : buckets) {
      for (int left = 1 + Below(3); left > 0; --left) {
        stage.push_back(
            {.share = 1 + Below(3), .sum = {.bytes = Below(100), .duration = Below(6)}});
      }
    }
    return buckets;
  }

  static Costs WithGradients(const Costs& costs, const GradientSums& sums) {
    std::vector<StageCost> table;
    for (int stage = 0; stage < costs.num_stages(); ++stage) {
      for (int i = 0; i < costs.num_micro_batches(); ++i) table.push_back(costs.of(stage, i));
    }
    Costs::Common common = costs.common();
    common.gradients = sums;
    return Costs(costs.num_stages(), costs.num_micro_batches(), std::move(table), common);
  }

  // Neighbouring ops change places wherever the result still runs: orders no generator writes.
  Schedule Disturbed(const Schedule& schedule) {
    Orders orders = schedule.ToOrders();
    for (int tries = Below(30); tries > 0; --tries) {
      std::vector<Op>& ops = orders[static_cast<size_t>(Below(schedule.num_ranks()))];
      if (ops.size() < 2) continue;
      const size_t i = static_cast<size_t>(Below(static_cast<int>(ops.size()) - 1));
      const bool in_pair =
          ops[i].overlaps_next || ops[i + 1].overlaps_next || (i > 0 && ops[i - 1].overlaps_next);
      if (in_pair) continue;
      std::swap(ops[i], ops[i + 1]);
      if (!CheckSchedule(orders).legal()) std::swap(ops[i], ops[i + 1]);
    }
    return Schedule(orders);
  }

  std::mt19937 random_;
};

inline std::string Describe(const Schedule& s, const Costs& costs) {
  const Costs::Common& c = costs.common();
  return testing::PrintToString(s.ToString()) + " latency " + std::to_string(c.hop.latency) +
         " busy " + std::to_string(c.hop.busy) + " launch " + std::to_string(c.launch);
}

}  // namespace spiritlevel
