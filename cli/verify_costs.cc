#include "cli/verify_costs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/available_memory.h"
#include "base/check.h"
#include "cli/verify_model.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/model/stage_sizes.h"
#include "verify/clock.h"
#include "verify/model_work.h"

namespace spiritlevel {
namespace {

TimeNs MedianOf(std::vector<TimeNs> values) {
  if (values.empty()) return 0;
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

TimeNs LargestMedian(const std::vector<std::vector<TimeNs>>& by_rank) {
  TimeNs largest = 0;
  for (const std::vector<TimeNs>& values : by_rank) largest = std::max(largest, MedianOf(values));
  return largest;
}

// Round robin: any placement does, since each stage is timed by itself. DualPipe's: each stage on
// two ranks.
std::vector<std::vector<int>> StagesByRank(int stages, int ranks, bool twins = false) {
  std::vector<std::vector<int>> by_rank(static_cast<size_t>(ranks));
  if (twins) {
    for (int rank = 0; rank < ranks; ++rank) {
      by_rank[static_cast<size_t>(rank)] = {rank};
      if (ranks - 1 != 2 * rank) by_rank[static_cast<size_t>(rank)].push_back(ranks - 1 - rank);
    }
    return by_rank;
  }
  for (int stage = 0; stage < stages; ++stage) {
    by_rank[static_cast<size_t>(stage % ranks)].push_back(stage);
  }
  return by_rank;
}

cpu::StageSizes SizesOf(const TrainingTask& task, int stage) {
  return cpu::SizesOf(task.shape, task.stages[static_cast<size_t>(stage)]);
}

// Sums of gradients, by stage. A Program has them beside compute, as a network would do them; here
// the rank's own core does, which cannot compute meanwhile, and all of them before the step. So
// they are charged to it.
std::vector<TimeNs> SumsByStage(const TrainingTask& task, const IsolatedTimes& isolated,
                                bool twins) {
  std::vector<TimeNs> sums(task.stages.size(), 0);
  if (!twins) return sums;
  for (size_t stage = 0; stage < sums.size(); ++stage) sums[stage] = MedianOf(isolated.sums[stage]);
  return sums;
}

// A rank's time, shared out over its stages by parameters, which is what a tail goes through.
std::vector<TimeNs> SharedOut(const TrainingTask& task, const std::vector<TimeNs>& by_rank,
                              bool twins = false) {
  const std::vector<std::vector<int>> stages_of =
      StagesByRank(task.num_stages(), static_cast<int>(by_rank.size()), twins);
  std::vector<TimeNs> by_stage(task.stages.size(), 0);
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    Bytes all = 0;
    for (const int stage : stages_of[rank]) all += SizesOf(task, stage).parameters;
    for (const int stage : stages_of[rank]) {
      const Int128 share = static_cast<Int128>(by_rank[rank]) * SizesOf(task, stage).parameters;
      by_stage[static_cast<size_t>(stage)] = static_cast<TimeNs>(share / all);
    }
  }
  return by_stage;
}

std::vector<TimeNs> MediansOf(const std::vector<std::vector<TimeNs>>& by_rank) {
  std::vector<TimeNs> medians;
  for (const std::vector<TimeNs>& values : by_rank) medians.push_back(MedianOf(values));
  return medians;
}

void AddTo(std::vector<TimeNs>& sums, const std::vector<TimeNs>& more) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
}

std::vector<int64_t> LayersOf(const TrainingTask& task) {
  std::vector<int64_t> layers;
  for (const cpu::StageRange& stage : task.stages) layers.push_back(stage.layers);
  return layers;
}

}  // namespace

CostsBook::CostsBook(const Scenario& scenario, const CostsOptions& options)
    : scenario_(scenario), options_(options) {
  if (scenario.model) cpu::UseOneBlasThread();
}

const CutCosts& CostsBook::For(int stages, const StageGroups& groups, bool twins) {
  std::unique_ptr<CutCosts>& cut = cuts_[{stages, groups, twins}];
  if (cut == nullptr) {
    SPIRITLEVEL_CHECK(!frozen_, "costs are found before anything is run");
    const TimeNs begin = Now();
    cut = std::make_unique<CutCosts>(Make(stages, groups, twins));
    seconds_ += static_cast<double>(Now() - begin) * 1e-9;
  }
  return *cut;
}

CutCosts CostsBook::Make(int stages, const StageGroups& groups, bool twins) {
  const bool has_all_times = !scenario_.model || scenario_.model->profile;
  if (options_.emulated && has_all_times) {
    Costs costs = CostsFor(scenario_, stages, groups);
    std::optional<ValidatedCosts> validated;
    if (IsPostValidation(options_.tail)) validated = {.barrier = costs, .rollback_by_stage = {}};
    return {
        .task = {}, .costs = std::move(costs), .isolated = {}, .validated = std::move(validated)};
  }
  TrainingTask task = TaskOf(scenario_, stages, groups);
  TimeMachine(task);
  CutCosts cut = has_all_times ? FromProfile(std::move(task), stages, groups)
                               : FromKernels(std::move(task), twins);
  // Emulated works keep no tensors.
  if (options_.emulated) cut.task.reset();
  return cut;
}

// Times by the profile, bytes by the kernels that run.
CutCosts CostsBook::FromProfile(TrainingTask task, int stages, const StageGroups& groups) {
  const Costs predicted = CostsFor(scenario_, stages, groups);
  const Costs::Common& common = predicted.common();
  ModelTimes times{.launch = common.launch,
                   .hop_latency = common.hop.latency,
                   .hop_busy = common.hop.busy,
                   .optimizer_by_stage = common.optimizer_by_stage,
                   .barrier = common.barrier};
  for (int stage = 0; stage < stages; ++stage) {
    const StageCost& cost = predicted.of(stage, 0);
    times.passes.push_back({.forward = cost.forward,
                            .input_grad = cost.input_grad,
                            .weight_grad = cost.weight_grad,
                            .fused_backward = cost.fused_backward,
                            .overlapped = cost.overlapped});
  }
  return WithTail(std::move(task), std::move(times), {});
}

CutCosts CostsBook::FromKernels(TrainingTask task, bool twins) {
  const IsolatedTimes& isolated = TimesFor(task, twins);
  ModelTimes times = AsModelTimes(task, isolated, twins);
  CutCosts cut = WithTail(std::move(task), std::move(times), SumsByStage(task, isolated, twins));
  cut.isolated = isolated;
  return cut;
}

// A Program has the reduction beside compute and a validation that takes no time. Here both are
// done by the rank's own core: what it adds to the reduction between its last op and its step, and
// what settles the step where the validation stands. Both are charged to the step. What the
// reduction waits for is charged to it as well: a rank goes on when the later of both has ended.
CutCosts CostsBook::WithTail(TrainingTask task, ModelTimes times, const std::vector<TimeNs>& sums) {
  Costs barrier = ModelCosts(task, times);
  if (!IsPostValidation(options_.tail)) return {.task = std::move(task), .costs = barrier};
  const TailTimes& tail = TailTimesFor(task);
  const std::vector<TimeNs> settlements = MediansOf(tail.settlements);
  std::vector<TimeNs> steps = MediansOf(tail.contributions);
  std::vector<TimeNs> rollbacks = MediansOf(tail.rollbacks);
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    steps[rank] += MedianOf(tail.steps[rank]) + settlements[rank];
    rollbacks[rank] = std::max<TimeNs>(0, rollbacks[rank] - settlements[rank]);
  }
  times.optimizer_by_stage = SharedOut(task, steps);
  if (!sums.empty()) AddTo(times.optimizer_by_stage, sums);
  times.barrier = runtime_.barrier + LargestMedian(tail.contributions) +
                  *std::max_element(settlements.begin(), settlements.end());
  Costs costs = ModelCosts(task, times, {.keeps_snapshot = true});
  std::vector<TimeNs> rollback_by_stage = SharedOut(task, rollbacks);
  return {.task = WithDistantThreshold(std::move(task)),
          .costs = std::move(costs),
          .isolated = {},
          .validated = ValidatedCosts{.barrier = std::move(barrier),
                                      .rollback_by_stage = std::move(rollback_by_stage)}};
}

const IsolatedTimes& CostsBook::TimesFor(const TrainingTask& task, bool twins) {
  const std::pair layers{LayersOf(task), twins};
  const auto known = isolated_.find(layers);
  if (known != isolated_.end()) return known->second;
  TrainingTask timed = task;
  timed.micro_batches = std::max(timed.micro_batches, kMicroBatchesInFlight);
  const Program placement =
      PlacementProgram(StagesByRank(timed.num_stages(), scenario_.ranks, twins), ModelCosts(timed),
                       Tail::kBarrier, twins);
  IsolatedOptions isolated = Isolated(timed);
  isolated.alternates = twins;
  return isolated_.emplace(layers, TimeInIsolation(placement, ModelWorks(timed), isolated))
      .first->second;
}

const TailTimes& CostsBook::TailTimesFor(const TrainingTask& task) {
  const std::vector<int64_t> layers = LayersOf(task);
  const auto known = tails_.find(layers);
  if (known != tails_.end()) return known->second;
  IsolatedOptions isolated = Isolated(task);
  isolated.budget = DivideHalfUp(isolated.budget, 4);  // pieces are few, and next to no kernels
  return tails_
      .emplace(layers, TimeTail(task, StagesByRank(task.num_stages(), scenario_.ranks), isolated))
      .first->second;
}

IsolatedOptions CostsBook::Isolated(const TrainingTask& task) const {
  IsolatedOptions isolated{.cores = options_.cores,
                           .budget = static_cast<TimeNs>(options_.seconds * 1e9),
                           .stop = options_.stop};
  for (int stage = 0; stage < task.num_stages(); ++stage) {
    isolated.input_bytes.push_back(SizesOf(task, stage).input);
    isolated.output_bytes.push_back(SizesOf(task, stage).output);
  }
  return isolated;
}

ModelTimes CostsBook::AsModelTimes(const TrainingTask& task, const IsolatedTimes& isolated,
                                   bool twins) const {
  ModelTimes times{.launch = runtime_.launch,
                   .hop_latency = runtime_.hop,
                   .barrier = runtime_.barrier + LargestMedian(isolated.contributions) +
                              LargestMedian(isolated.combinations)};
  for (int stage = 0; stage < task.num_stages(); ++stage) {
    const auto of = [&](Pass pass) { return isolated.MedianOf(stage, pass); };
    times.passes.push_back({.forward = of(Pass::kF),
                            .input_grad = of(Pass::kB),
                            .weight_grad = of(Pass::kW),
                            .fused_backward = of(Pass::kBW),
                            .overlapped = of(Pass::kF) + of(Pass::kBW)});
  }
  // A rank's step was timed as a whole.
  times.optimizer_by_stage = SharedOut(task, MediansOf(isolated.steps), twins);
  AddTo(times.optimizer_by_stage, SumsByStage(task, isolated, twins));
  return times;
}

RunOptions CostsBook::Running() const {
  return {.transport = options_.transport, .cores = options_.cores};
}

// OpenBLAS takes its buffers when it first multiplies, and asks for ever where there is no memory
// for them; an allocation that fails on a rank's thread ends the program.
void CostsBook::RequireMemory(const TrainingTask& task) const {
  constexpr Bytes kBuffersOfBlas = Bytes{192} << 20;  // for each thread
  constexpr Bytes kProgram = Bytes{64} << 20;
  Bytes need = kProgram + kBuffersOfBlas * std::ssize(options_.cores);
  if (!options_.emulated) {
    for (int stage = 0; stage < task.num_stages(); ++stage) {
      const cpu::StageSizes sizes = SizesOf(task, stage);
      need += sizes.parameters + sizes.gradients + sizes.optimizer + sizes.constants +
              kMicroBatchesInFlight * (sizes.activation + sizes.input + sizes.output);
    }
  }
  const Bytes have = AvailableMemory();
  if (need <= have) return;
  throw InputError(
      fmt::format("the ranks and their kernels would take about {} of memory, and {} "
                  "is free",
                  FormatBytes(need), FormatBytes(have)),
      "use a smaller model, or raise the limit of memory (ulimit -v, the container's)");
}

// What hangs on the model's widths alone.
void CostsBook::TimeMachine(const TrainingTask& task) {
  if (machine_is_timed_) return;
  RequireMemory(task);
  best_gemm_ = TimeBestGemm(options_.cores);
  const bool has_profile = scenario_.model && scenario_.model->profile.has_value();
  if (!options_.emulated && (!has_profile || IsPostValidation(options_.tail))) {
    runtime_ = TimeRuntime(scenario_.ranks, SizesOf(task, 0).output, Running());
    hop_latency_ = runtime_.hop;
  }
  machine_is_timed_ = true;
}

std::string CostsBook::Source() const {
  if (!scenario_.model) return "typed into the scenario";
  if (scenario_.model->profile) {
    const bool timed = IsPostValidation(options_.tail) && !options_.emulated;
    return "device profile " + scenario_.model->profile->name +
           (timed ? "; the tail timed by itself before any run" : "");
  }
  return fmt::format("this machine's kernels, timed by themselves before any run, {} ranks at once",
                     std::min(scenario_.ranks, static_cast<int>(options_.cores.size())));
}

}  // namespace spiritlevel
