#include "cli/size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/available_memory.h"
#include "base/check.h"
#include "sim/evaluate.h"
#include "sim/program.h"

namespace spiritlevel {
namespace {

// Of one stage and micro-batch, split in F, B and W and sending both ways.
constexpr Bytes kOnce = 500;           // orders, schedule, the checker of orders, the evaluator
constexpr Bytes kEachIteration = 600;  // nodes, messages, their times, the checker of timelines

Bytes Cells(const Scenario& scenario, const ScheduleChoice& choice) {
  if (choice.orders) {
    Bytes ops = 0;
    for (const std::vector<Op>& row : *choice.orders) ops += static_cast<Bytes>(row.size());
    return ops / 2;
  }
  const Shape shape{.ranks = scenario.ranks,
                    .micro_batches = scenario.micro_batches,
                    .stages_per_rank = scenario.stages_per_rank,
                    .group = scenario.group};
  return Bytes{scenario.ranks} * choice.info->stages_per_rank(shape) * scenario.micro_batches;
}

double SumsOfGradients(const GradientSums& sums) {
  double all = 0;
  for (const std::vector<GradientBucket>& buckets : sums.buckets) {
    for (const GradientBucket& bucket : buckets) all += static_cast<double>(bucket.sum.duration);
  }
  for (const GradientSum& sum : sums.twins) all += static_cast<double>(sum.duration);
  for (const GradientSum& sum : sums.tied) all += static_cast<double>(sum.duration);
  return all;
}

// Of one stage, copy for copy; by-bucket, any number of its W's may be done in parts.
int64_t Parts(const Costs& costs, int copies, WeightGrads weight_grads) {
  int64_t buckets = 0;
  for (const std::vector<GradientBucket>& of_stage : costs.common().gradients.buckets) {
    buckets += static_cast<int64_t>(of_stage.size());
  }
  return buckets * copies *
         (weight_grads == WeightGrads::kByBucket ? costs.num_micro_batches() : 1);
}

constexpr Bytes kEachPart = 300;    // of one iteration: a node, its times, its check
constexpr Bytes kEachVaried = 900;  // where micro-batches differ, each has costs of its own

}  // namespace

Bytes MemoryOfRun(const Scenario& scenario, const ScheduleChoice& choice, int iterations) {
  const ModelSlices& slices = scenario.slices;
  const bool varies = !scenario.model && slices.table.size() > static_cast<size_t>(slices.rows);
  const Bytes once = kOnce + (varies ? kEachVaried : 0);
  return Cells(scenario, choice) * (once + iterations * kEachIteration);
}

Bytes MemoryOfParts(const Costs& costs, int copies, WeightGrads weight_grads, int iterations) {
  return Parts(costs, copies, weight_grads) * iterations * kEachPart;
}

void RefuseTooManyParts(const Schedule& schedule, const Costs& costs, WeightGrads weight_grads,
                        int iterations) {
  const int copies = schedule.parameter_copies();
  const int64_t parts = Parts(costs, copies, weight_grads);
  // Twice the ops, for sends and receives; a few of each rank end an iteration.
  const int64_t nodes = iterations * (2 * static_cast<int64_t>(schedule.all_ops().size()) + parts +
                                      8 * int64_t{schedule.num_ranks()});
  const char* const way_out =
      weight_grads == WeightGrads::kByBucket
          ? "use --weight-grads by-micro-batch, larger buckets, or fewer iterations"
          : "use fewer iterations or micro-batches, or larger buckets";
  if (nodes > std::numeric_limits<NodeId>::max()) {
    throw InputError(fmt::format("{} iterations have {:.3g} ops and parts of ops, more than can be "
                                 "numbered",
                                 iterations, static_cast<double>(nodes)),
                     way_out);
  }
  const Bytes need = MemoryOfParts(costs, copies, weight_grads, iterations);
  const Bytes have = AvailableMemory();
  if (need <= have) return;
  throw InputError(
      fmt::format("{} parts of ops, one for each bucket of gradients, would take about "
                  "{} of memory in {} iterations, and {} is free",
                  parts, FormatBytes(need), iterations, FormatBytes(have)),
      way_out);
}

void RefuseWhatDoesNotFit(const Scenario& scenario, const ScheduleChoice& choice, int iterations) {
  const Bytes need = MemoryOfRun(scenario, choice, iterations);
  const Bytes have = AvailableMemory();
  if (need <= have) return;
  const Bytes one = MemoryOfRun(scenario, choice, kPeriodIterations);
  if (one <= have && iterations > kPeriodIterations) {
    const auto each = (need - one) / (iterations - kPeriodIterations);
    throw InputError(
        fmt::format("{} iterations would take about {} of memory, and {} is free", iterations,
                    FormatBytes(need), FormatBytes(have)),
        fmt::format("use at most {} iterations", kPeriodIterations + (have - one) / each));
  }
  const Bytes fits = static_cast<Bytes>(static_cast<Int128>(scenario.micro_batches) * have / need);
  throw InputError(
      fmt::format("{} ranks, {} micro-batches and {} iterations would take about {} of memory, and "
                  "{} is free",
                  scenario.ranks, scenario.micro_batches, iterations, FormatBytes(need),
                  FormatBytes(have)),
      fmt::format("use at most {} micro-batches, or fewer iterations", fits));
}

// No path through an iteration is longer than everything in it, done one after the other.
void RefuseOverflow(const Schedule& schedule, const Costs& costs, int iterations) {
  const Costs::Common& common = costs.common();
  double all = SumsOfGradients(common.gradients) * schedule.parameter_copies();
  for (const Op& op : schedule.all_ops()) {
    all += static_cast<double>(costs.duration(op) + common.launch + common.hop.latency +
                               common.hop.busy);
  }
  all += static_cast<double>(common.barrier);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    all += static_cast<double>(costs.optimizer(schedule.stages_of(rank)));
  }
  // Accounts sum the makespan over ranks.
  constexpr double kMost = 4.6e18;  // 2^62
  const double one = all * schedule.num_ranks();
  if (std::max(one, all * iterations) <= kMost) return;
  if (one > kMost) {
    throw InputError(fmt::format("one iteration may take {:.3g} s on {} ranks, too long to be "
                                 "counted in nanoseconds",
                                 all * 1e-9, schedule.num_ranks()),
                     "times are in microseconds; are they right?");
  }
  const auto fits = static_cast<int64_t>(kMost / all);
  throw InputError(
      fmt::format("{} iterations may take {:.3g} s, too long to be counted in "
                  "nanoseconds",
                  iterations, all * iterations * 1e-9),
      fits >= kPeriodIterations
          ? fmt::format("use at most {} iterations", fits)
          : fmt::format("use fewer micro_batches or shorter passes: the period takes {} "
                        "iterations, however few are asked for",
                        kPeriodIterations));
}

}  // namespace spiritlevel
