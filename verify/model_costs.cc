#include "verify/model_costs.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/model/stage_sizes.h"

namespace spiritlevel {
namespace {

// Of a fixed and a proportional part.
GradientSum SumOf(const ModelTimes& times, Bytes bytes) {
  const Int128 scaled = static_cast<Int128>(bytes) * times.sum_per_byte;
  return {.bytes = bytes,
          .duration = times.sum + static_cast<TimeNs>((scaled + (Int128{1} << 31)) >> 32)};
}

Bytes GradientBytes(const TrainingTask& task, int stage, const BlockRun& blocks) {
  Bytes sum = 0;
  for (const cpu::ParameterInfo& info :
       cpu::ParametersOf(task.shape, task.stages[static_cast<size_t>(stage)])) {
    if (info.block >= blocks.first && info.block < blocks.second) {
      sum += info.size() * Bytes{sizeof(float)};
    }
  }
  return sum;
}

// In proportion to what W holds of each, so that the memory that each part frees is exact.
std::vector<GradientBucket> BucketCosts(const TrainingTask& task, const ModelTimes& times,
                                        int stage) {
  const cpu::StageRange& range = task.stages[static_cast<size_t>(stage)];
  std::vector<GradientBucket> costs;
  for (const BlockRun& run : BucketsOf(task, stage)) {
    Bytes share = 0;
    for (int block = run.first; block < run.second; ++block) {
      share += cpu::WeightStateOfBlock(task.shape, range, block);
    }
    costs.push_back({.share = share, .sum = SumOf(times, GradientBytes(task, stage, run))});
  }
  return costs;
}

GradientSums SumsOf(const TrainingTask& task, const ModelTimes& times) {
  GradientSums sums;
  for (int s = 0; s < task.num_stages(); ++s) {
    const BlockRun all{0, task.stages[static_cast<size_t>(s)].num_blocks()};
    sums.twins.push_back(SumOf(times, GradientBytes(task, s, all)));
    if (task.replicas > 1) sums.buckets.push_back(BucketCosts(task, times, s));
  }
  if (task.shape.tied_embeddings) {
    sums.tied.push_back(
        SumOf(times, task.shape.vocabulary * task.shape.hidden * Bytes{sizeof(float)}));
  }
  return sums;
}

Bytes OptimizerBytes(const TrainingTask& task, int stage, int replica) {
  const auto infos = cpu::ParametersOf(task.shape, task.stages[static_cast<size_t>(stage)]);
  const bool has_master = task.shape.storage != cpu::DType::kFloat32;
  Bytes sum = 0;
  for (const int i : OwnedBy(task, stage, replica)) {
    sum += infos[static_cast<size_t>(i)].size() * Bytes{sizeof(float)} * (has_master ? 3 : 2);
  }
  return sum;
}

// Of its parameters, moments and master weights, all of which a snapshot has.
Bytes SnapshotBytes(const TrainingTask& task, int stage, int replica) {
  const auto infos = cpu::ParametersOf(task.shape, task.stages[static_cast<size_t>(stage)]);
  Bytes sum = OptimizerBytes(task, stage, replica);
  for (const int i : OwnedBy(task, stage, replica)) {
    sum += infos[static_cast<size_t>(i)].size() * cpu::SizeOf(task.shape.storage);
  }
  return sum;
}

MemoryByCategory StaticMemory(const TrainingTask& task, int stage,
                              const ModelCostsOptions& options) {
  const cpu::StageSizes sizes = cpu::SizesOf(task.shape, task.stages[static_cast<size_t>(stage)]);
  MemoryByCategory memory{};
  const auto at = [&](MemoryCategory category) -> Bytes& {
    return memory[static_cast<size_t>(category)];
  };
  at(MemoryCategory::kParameters) = sizes.parameters;
  at(MemoryCategory::kGradients) = sizes.gradients;
  at(MemoryCategory::kOptimizer) = OptimizerBytes(task, stage, options.replica);
  if (options.keeps_snapshot) {
    at(MemoryCategory::kOptimizer) += SnapshotBytes(task, stage, options.replica);
  }
  at(MemoryCategory::kWorkspace) = sizes.constants;
  return memory;
}

}  // namespace

// What a pass holds for a while: its peak, with the messages that it takes and returns, above what
// the ledger has for it without.
StageCost MemoryCostOf(const TrainingTask& task, int stage) {
  const cpu::StageSizes sizes = cpu::SizesOf(task.shape, task.stages[static_cast<size_t>(stage)]);
  StageCost cost{.activation = sizes.kept, .weight_state = sizes.weight_state};
  const auto set = [&](Pass pass, const cpu::PassBytes& bytes, Bytes in_ledger) {
    SPIRITLEVEL_CHECK(bytes.peak >= in_ledger,
                      "a pass holds at least what it begins and ends with");
    cost.transient[static_cast<size_t>(pass)] = bytes.peak - in_ledger;
  };
  set(Pass::kF, sizes.forward, sizes.kept);
  set(Pass::kB, sizes.input_grad_from_kept, std::max(sizes.kept, sizes.weight_state));
  set(Pass::kW, sizes.weight_grad, sizes.weight_state);
  set(Pass::kBW, sizes.fused_backward_from_kept, sizes.kept);
  return cost;
}

Costs ModelCosts(const TrainingTask& task, const ModelTimes& times,
                 const ModelCostsOptions& options) {
  CheckTrainingTask(task);
  SPIRITLEVEL_CHECK(times.passes.empty() || std::ssize(times.passes) == task.num_stages(),
                    "times are given for each stage, or not");
  std::vector<StageCost> table;
  Costs::Common common{
      .hop = {.latency = times.hop_latency,
              .busy = times.hop_busy,
              .bytes = task.shape.tokens() * task.shape.hidden * cpu::SizeOf(task.shape.storage)},
      .launch = times.launch,
      .optimizer_by_stage = times.optimizer_by_stage,
      .barrier = times.barrier,
      .gradients = SumsOf(task, times)};
  for (int s = 0; s < task.num_stages(); ++s) {
    StageCost cost = MemoryCostOf(task, s);
    if (!times.passes.empty()) {
      const PassTimes& passes = times.passes[static_cast<size_t>(s)];
      cost.forward = passes.forward;
      cost.input_grad = passes.input_grad;
      cost.weight_grad = passes.weight_grad;
      cost.fused_backward = passes.fused_backward;
      cost.overlapped = passes.overlapped;
    }
    table.push_back(cost);
    common.static_by_stage.push_back(StaticMemory(task, s, options));
  }
  return Costs(task.num_stages(), task.micro_batches, std::move(table), common);
}

}  // namespace spiritlevel
