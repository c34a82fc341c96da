#include "models/model_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "models/model_gradients.h"

namespace spiritlevel {
namespace {

std::vector<Recompute> RecomputeOf(const ModelRun& run, size_t stages) {
  if (run.recompute.size() == stages) return run.recompute;
  if (run.recompute.empty()) return std::vector<Recompute>(stages, Recompute::kNothing);
  if (run.recompute.size() == 1) return std::vector<Recompute>(stages, run.recompute.front());
  throw InputError(fmt::format("recompute: {} entries for {} stages", run.recompute.size(), stages),
                   "give one for each stage, or one for all");
}

std::vector<StageBlocks> BlocksByStage(const ModelBlocks& model, const ModelRun& run,
                                       const LayersPerStage& layers) {
  const std::vector<Recompute> recompute = RecomputeOf(run, layers.size());
  std::vector<StageBlocks> stages;
  int64_t first = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    stages.push_back(model.Stage({.first_layer = first,
                                  .layers = layers[i],
                                  .embedding = i == 0,
                                  .head = i + 1 == layers.size(),
                                  .recompute = recompute[i]}));
    first += layers[i];
  }
  return stages;
}

StageCost CostOf(const StageBlocks& stage, const DeviceProfile& profile) {
  const auto time = [&](Pass pass, std::string_view name) {
    return RoundedTime(NanosecondsOf(profile, stage, pass), name);
  };
  StageCost cost;
  cost.forward = time(Pass::kF, "F");
  cost.input_grad = time(Pass::kB, "B");
  cost.weight_grad = time(Pass::kW, "W");
  // The sum of its parts to the nanosecond, unless as one op they share what each would build
  // again.
  const bool twice = std::any_of(stage.begin(), stage.end(), [](const StageBlock& block) {
    return block.recompute == Recompute::kFullAgainInW;
  });
  cost.fused_backward = twice ? time(Pass::kBW, "BW") : cost.input_grad + cost.weight_grad;
  cost.overlapped = cost.forward + cost.fused_backward;
  const StageMemory memory = MemoryOf(stage);
  cost.activation = memory.after_forward;
  cost.weight_state = memory.after_input_grad;
  cost.transient = memory.transient;
  return cost;
}

MemoryByCategory TrainingMemory(int64_t parameters, DType dtype) {
  const TrainingBytes each = BytesPerParameter(dtype);
  MemoryByCategory memory{};
  memory[static_cast<size_t>(MemoryCategory::kParameters)] = parameters * each.parameter;
  memory[static_cast<size_t>(MemoryCategory::kGradients)] = parameters * each.gradient;
  memory[static_cast<size_t>(MemoryCategory::kOptimizer)] = parameters * each.optimizer;
  return memory;
}

void AddMessages(const Architecture& a, const ModelRun& run, const DeviceProfile& profile,
                 Costs::Common* common) {
  const Bytes message = LayerInputBytes(a, run.shape());
  common->hop.latency = RoundedTime(profile.transfer_latency_ns, "the latency of a message");
  common->hop.busy =
      RoundedTime(profile.transfer_ns_per_byte * static_cast<double>(message), "a message");
  common->hop.bytes = message;
  common->launch = RoundedTime(profile.launch_ns, "the launch of an op");
  // Up a tree of ranks and down again, a message without content on each edge.
  const int levels = std::bit_width(static_cast<unsigned>(run.ranks - 1));
  common->barrier = 2 * levels * common->hop.latency;
}

void AddStatic(const Architecture& a, const ModelRun& run, const LayersPerStage& layers,
               const DeviceProfile& profile, Costs::Common* common) {
  constexpr std::string_view kStep = "the optimizer step";
  // Of a rank, and on top of it of each parameter that the rank holds.
  const double base = profile.optimizer.At(0);
  const auto step = [&](int64_t parameters) {
    return RoundedTime(profile.optimizer.At(static_cast<double>(parameters)) - base, kStep);
  };
  const ParameterCount count = CountParameters(a);
  common->optimizer = RoundedTime(base, kStep);
  for (const StageParameters& stage : ParametersByStage(count, a.tied_embeddings, layers)) {
    common->static_by_stage.push_back(TrainingMemory(stage.total(), run.dtype));
    common->optimizer_by_stage.push_back(step(stage.total()));
  }
  if (!a.tied_embeddings) return;
  common->tied_static = TrainingMemory(count.embedding, run.dtype);
  common->tied_optimizer = std::min(step(count.embedding), common->optimizer_by_stage.back());
}

// As each rank of the run sees it. Throws InputError where the two do not fit.
DeviceProfile ProfileOf(const ModelRun& run, const DeviceProfile& profile) {
  CheckProfile(profile);
  if (profile.dtype != run.dtype) {
    throw InputError(fmt::format("dtype: the profile was measured with {}, not {}",
                                 Name(profile.dtype), Name(run.dtype)),
                     fmt::format("use {}, or measure again", Name(profile.dtype)));
  }
  if (run.data_parallel < 1 || run.bucket_bytes < 1) {
    throw InputError(fmt::format("data parallel: {} replicas with buckets of {} bytes",
                                 run.data_parallel, run.bucket_bytes),
                     "use 1 or more of both");
  }
  return run.all_cores_busy ? WhileAllCoresAreBusy(profile) : profile;
}

// F, B and W of a layer on a stage of this kind, and of the ends.
class TimesOfSplits {
 public:
  TimesOfSplits(const Architecture& a, const ModelRun& run, const DeviceProfile& profile,
                std::vector<Recompute> recompute)
      : model_(a, run.shape()), profile_(profile), recompute_(std::move(recompute)) {
    embedding_ = TimeOf(model_.Stage({.embedding = true}));
    head_ = TimeOf(model_.Stage({.head = true}));
    for (const Recompute kind : recompute_) {
      std::vector<TimeNs>& sums = until_[static_cast<size_t>(kind)];
      if (!sums.empty()) continue;
      sums.push_back(0);
      for (int64_t i = 0; i < a.layers; ++i) {
        const StageBlocks layer = model_.Stage({.first_layer = i, .layers = 1, .recompute = kind});
        sums.push_back(sums.back() + TimeOf(layer));
      }
    }
  }

  TimeNs operator()(size_t stage, int64_t first, int64_t layers) const {
    const std::vector<TimeNs>& until = until_[static_cast<size_t>(recompute_[stage])];
    return until[static_cast<size_t>(first + layers)] - until[static_cast<size_t>(first)] +
           (stage == 0 ? embedding_ : 0) + (stage + 1 == recompute_.size() ? head_ : 0);
  }

 private:
  TimeNs TimeOf(const StageBlocks& blocks) const {
    double ns = 0;
    for (const Pass pass : {Pass::kF, Pass::kB, Pass::kW}) {
      ns += NanosecondsOf(profile_, blocks, pass);
    }
    return RoundedTime(ns, "F, B and W of one layer");
  }

  ModelBlocks model_;
  const DeviceProfile& profile_;
  std::vector<Recompute> recompute_;
  TimeNs embedding_ = 0;
  TimeNs head_ = 0;
  std::array<std::vector<TimeNs>, 3> until_;  // by Recompute, of the layers before
};

}  // namespace

TimeNs RoundedTime(double ns, std::string_view what) {
  if (ns <= static_cast<double>(kMaxPassTime)) return static_cast<TimeNs>(std::floor(ns + 0.5));
  throw InputError(fmt::format("more than a day for {}", what),
                   "use a smaller micro-batch or more ranks, or measure the device again");
}

LayersPerStage StagesOf(const Architecture& a, const ModelRun& run) {
  if (run.ranks < 1) throw InputError(fmt::format("ranks: {} is none", run.ranks), "use 1 or more");
  if (run.layers_per_stage.empty()) {
    return EvenStages(a.layers, run.stages > 0 ? run.stages : run.ranks);
  }
  LayersPerStage given = GivenStages(a.layers, run.layers_per_stage);
  const size_t wanted = run.stages > 0 ? static_cast<size_t>(run.stages) : given.size();
  if (given.size() != wanted || given.size() % static_cast<size_t>(run.ranks) != 0) {
    throw InputError(fmt::format("layers per stage: {} entries do not fit {} stages on {} ranks",
                                 given.size(), wanted, run.ranks),
                     "give an entry for each stage, the same number of stages on every rank");
  }
  return given;
}

LayersPerStage BalancedSplit(const Architecture& a, const ModelRun& run,
                             const DeviceProfile& measured, const StageGroups& groups) {
  const DeviceProfile profile = ProfileOf(run, measured);
  const int stages = run.stages > 0 ? run.stages : run.ranks;
  CheckStageCount(a.layers, stages);
  const TimesOfSplits times(a, run, profile, RecomputeOf(run, static_cast<size_t>(stages)));
  return StagesOnRanks(a.layers, stages, groups, std::cref(times));
}

Bytes StaticBytesOn(const Architecture& a, const ModelRun& run, std::span<const int> stages) {
  const StageParameters held =
      ParametersOn(CountParameters(a), a.tied_embeddings, StagesOf(a, run), stages);
  return held.total() * BytesPerParameter(run.dtype).total();
}

std::vector<Bytes> StaticBytesByStage(const Architecture& a, const ModelRun& run) {
  const Bytes each = BytesPerParameter(run.dtype).total();
  std::vector<Bytes> bytes;
  for (const StageParameters& stage :
       ParametersByStage(CountParameters(a), a.tied_embeddings, StagesOf(a, run))) {
    bytes.push_back(stage.total() * each);
  }
  return bytes;
}

std::vector<StageMemory> StageMemories(const Architecture& a, const ModelRun& run) {
  const ModelBlocks model(a, run.shape());
  std::vector<StageMemory> memories;
  for (const StageBlocks& stage : BlocksByStage(model, run, StagesOf(a, run))) {
    memories.push_back(MemoryOf(stage));
  }
  return memories;
}

Costs CostsFromModel(const Architecture& a, const ModelRun& run, const DeviceProfile& measured) {
  const DeviceProfile profile = ProfileOf(run, measured);
  const LayersPerStage layers = StagesOf(a, run);
  const ModelBlocks model(a, run.shape());
  const std::vector<StageBlocks> stages = BlocksByStage(model, run, layers);
  std::vector<StageCost> table;
  for (const StageBlocks& stage : stages) table.push_back(CostOf(stage, profile));
  Costs::Common common;
  AddMessages(a, run, profile, &common);
  AddStatic(a, run, layers, profile, &common);
  common.gradients = SumsOf(a, run, stages, profile);
  return Costs(static_cast<int>(stages.size()), run.micro_batches, std::move(table), common);
}

std::span<const std::string_view> NotModelled() {
  static constexpr std::array<std::string_view, 6> kLines = {
      "tensor, context and expert parallelism",
      "workspaces of libraries, buffers of messages, and what a framework holds for itself",
      "tensors that live only within one layer's B",
      "sums of gradients at another speed than a hand-over between two ranks",
      "a barrier's real cost: two latencies are taken for each level of a tree of ranks",
      "ranks on other devices than the one that was measured",
  };
  return kLines;
}

}  // namespace spiritlevel
