#include "models/model_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

// What one stage is made of.
struct StageBlocks {
  std::vector<BlockWork> layers;  // the recomputed part
  std::vector<BlockWork> ends;    // embedding, head
};

std::vector<StageBlocks> BlocksOf(const Architecture& a, const ModelRun& run) {
  const BlockShape shape = run.shape();
  CheckShape(a, shape);
  std::vector<StageBlocks> stages;
  int64_t layer = 0;
  for (const int64_t count : StagesOf(a, run)) {
    StageBlocks& stage = stages.emplace_back();
    for (int64_t i = 0; i < count; ++i) stage.layers.push_back(LayerWork(a, shape, layer++));
  }
  SPIRITLEVEL_CHECK(layer == a.layers, "every layer is on a stage");
  stages.front().ends.push_back(EmbeddingWork(a, shape));
  stages.back().ends.push_back(HeadWork(a, shape));
  return stages;
}

std::vector<Recompute> RecomputeOf(const ModelRun& run, size_t stages) {
  if (run.recompute.size() == stages) return run.recompute;
  if (run.recompute.empty()) return std::vector<Recompute>(stages, Recompute::kNone);
  if (run.recompute.size() == 1) return std::vector<Recompute>(stages, run.recompute.front());
  throw InputError(fmt::format("recompute: {} entries for {} stages", run.recompute.size(), stages),
                   "give one for each stage, or one for all");
}

StageMemory MemoryOf(const StageBlocks& stage, Recompute recompute, Bytes layer_input) {
  StageMemory memory;
  for (const BlockWork& layer : stage.layers) {
    const Bytes whole = KeptAfterForward(layer);
    const bool kept_for_w = recompute != Recompute::kFullAgainInW;
    memory.after_forward += recompute == Recompute::kNone ? whole : layer_input;
    memory.after_input_grad +=
        kept_for_w ? KeptAfterInputGrad(layer) : layer_input + GradientsForW(layer);
    if (recompute != Recompute::kNone) memory.rebuilt = std::max(memory.rebuilt, whole);
  }
  for (const BlockWork& end : stage.ends) {
    memory.after_forward += KeptAfterForward(end);
    memory.after_input_grad += KeptAfterInputGrad(end);
  }
  return memory;
}

double TimeOfAll(const DeviceProfile& profile, const std::vector<BlockWork>& blocks, Pass pass) {
  double ns = 0;
  for (const BlockWork& block : blocks) {
    for (const NamedKernel& k : block.kernels(pass)) ns += NanosecondsOf(profile, k.kernel);
  }
  return ns;
}

TimeNs Rounded(double ns, std::string_view what) {
  if (ns <= static_cast<double>(kMaxPassTime)) return static_cast<TimeNs>(std::floor(ns + 0.5));
  throw InputError(fmt::format("{} takes more than a day", what),
                   "use a smaller micro-batch or more ranks, or measure the device again");
}

StageCost TimesOf(const StageBlocks& stage, Recompute recompute, const DeviceProfile& profile,
                  double slowdown) {
  const auto layers = [&](Pass pass) { return TimeOfAll(profile, stage.layers, pass); };
  const auto ends = [&](Pass pass) { return TimeOfAll(profile, stage.ends, pass); };
  // Only layers are run again; the embedding is a look-up, and the head's input is a layer's
  // output.
  const double again = recompute == Recompute::kNone ? 0 : layers(Pass::kF);
  const double again_in_w = recompute == Recompute::kFullAgainInW ? again : 0;
  const double f = layers(Pass::kF) + ends(Pass::kF);
  const double b = layers(Pass::kB) + ends(Pass::kB) + again;
  const double w = layers(Pass::kW) + ends(Pass::kW);
  StageCost cost;
  cost.forward = Rounded(slowdown * f, "F");
  cost.input_grad = Rounded(slowdown * b, "B");
  cost.weight_grad = Rounded(slowdown * (w + again_in_w), "W");
  // As one op, B and W share what B built again.
  cost.fused_backward =
      recompute == Recompute::kFullAgainInW ? Rounded(slowdown * (b + w), "BW") : kDerived;
  cost.overlapped = kDerived;
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

Costs::Common CommonOf(const Architecture& a, const ModelRun& run, const DeviceProfile& profile) {
  const ParameterCount count = CountParameters(a);
  const std::vector<StageParameters> stages =
      ParametersByStage(count, a.tied_embeddings, StagesOf(a, run));
  const int64_t fullest = stages[FullestStage(stages)].total();
  const Bytes message = LayerInputBytes(a, run.shape());
  Costs::Common common;
  common.hop.latency = Rounded(profile.transfer_latency_ns, "the latency of a message");
  common.hop.busy =
      Rounded(profile.transfer_ns_per_byte * static_cast<double>(message), "a message");
  common.hop.bytes = message;
  common.launch = Rounded(profile.launch_ns, "the launch of an op");
  common.optimizer =
      Rounded(profile.optimizer.At(static_cast<double>(fullest)), "the optimizer step");
  // Up a tree of ranks and down again, a message without content on each edge.
  const int levels = std::bit_width(static_cast<unsigned>(run.ranks - 1));
  common.barrier = 2 * levels * common.hop.latency;
  for (const StageParameters& stage : stages) {
    common.static_by_stage.push_back(TrainingMemory(stage.total(), run.dtype));
  }
  return common;
}

void CheckRun(const ModelRun& run, const DeviceProfile& profile) {
  CheckProfile(profile);
  if (profile.dtype != run.dtype) {
    throw InputError(fmt::format("dtype: the profile was measured with {}, not {}",
                                 Name(profile.dtype), Name(run.dtype)),
                     fmt::format("use {}, or measure again", Name(profile.dtype)));
  }
}

}  // namespace

std::string_view Name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kFull:
      return "full";
    case Recompute::kFullAgainInW:
      return "full-again-in-w";
  }
  return "";
}

Recompute ParseRecompute(std::string_view name) {
  for (const Recompute r : {Recompute::kNone, Recompute::kFull, Recompute::kFullAgainInW}) {
    if (name == Name(r)) return r;
  }
  throw InputError(fmt::format("there is no recomputation \"{}\"", name),
                   "there are none, full and full-again-in-w");
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
  const std::vector<StageBlocks> stages = BlocksOf(a, run);
  const std::vector<Recompute> recompute = RecomputeOf(run, stages.size());
  std::vector<StageMemory> memories;
  for (size_t i = 0; i < stages.size(); ++i) {
    memories.push_back(MemoryOf(stages[i], recompute[i], LayerInputBytes(a, run.shape())));
  }
  return memories;
}

ModelSlices SlicesFromModel(const Architecture& a, const ModelRun& run,
                            const DeviceProfile& profile) {
  CheckRun(run, profile);
  const std::vector<StageBlocks> stages = BlocksOf(a, run);
  const std::vector<Recompute> recompute = RecomputeOf(run, stages.size());
  const double slowdown = run.all_cores_busy ? profile.slowdown_all_cores : 1;
  ModelSlices slices;
  slices.ranks = run.ranks;
  slices.micro_batches = run.micro_batches;
  slices.uniform = false;
  slices.rows = static_cast<int>(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    StageCost cost = TimesOf(stages[i], recompute[i], profile, slowdown);
    const StageMemory memory = MemoryOf(stages[i], recompute[i], LayerInputBytes(a, run.shape()));
    cost.activation = memory.after_forward;
    cost.weight_state = memory.after_input_grad;
    slices.table.push_back(cost);
  }
  slices.common = CommonOf(a, run, profile);
  return slices;
}

}  // namespace spiritlevel
