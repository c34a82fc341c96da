// What verify predicts with: the costs of each cut of a scenario's model, found once, before
// anything is run.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scenarios/scenario.h"
#include "sim/costs.h"
#include "sim/program.h"
#include "verify/isolated.h"
#include "verify/isolated_tail.h"
#include "verify/model_costs.h"
#include "verify/model_plan.h"
#include "verify/run.h"

namespace spiritlevel {

struct CostsOptions {
  bool emulated = false;
  Tail tail = Tail::kBarrier;
  Transport transport = Transport::kThreads;
  std::vector<int> cores{};  // by rank
  double seconds = 5;        // for each cut's passes, after the least repetitions
  const std::atomic<bool>* stop = nullptr;
};

// What a tail that validates behind the step is held against.
struct ValidatedCosts {
  Costs barrier;  // of the same cut
  // What taking a stage's step back and making it again adds to settling a right one. Empty where
  // it takes what a step takes.
  std::vector<TimeNs> rollback_by_stage{};
};

// One way to cut the model, and what it costs.
struct CutCosts {
  // None where passes are emulated and nothing but their costs is known.
  std::optional<TrainingTask> task{};
  Costs costs;
  std::optional<IsolatedTimes> isolated{};
  std::optional<ValidatedCosts> validated{};  // under a post-validation
};

class CostsBook {
 public:
  // `scenario` must outlive it.
  CostsBook(const Scenario& scenario, const CostsOptions& options);

  // Throws InputError where the scenario has no costs for the schedule's stages, or no kernels.
  // `twins`: each stage lies on two ranks (DualPipe).
  const CutCosts& For(int stages, const StageGroups& groups, bool twins = false);

  // All cuts have been asked for; from here on another one is our defect.
  void Freeze() { frozen_ = true; }

  double seconds() const { return seconds_; }
  std::string Source() const;  // in words
  // FLOPs a second of the best matrix product, on one core while all compute.
  std::optional<double> best_gemm_flops() const { return best_gemm_; }
  std::optional<TimeNs> hop_latency() const { return hop_latency_; }

 private:
  CutCosts Make(int stages, const StageGroups& groups, bool twins);
  CutCosts FromProfile(TrainingTask task, int stages, const StageGroups& groups);
  CutCosts FromKernels(TrainingTask task, bool twins);
  // Puts the tail's own pieces in the place of a barrier's, which `times` are for.
  CutCosts WithTail(TrainingTask task, ModelTimes times, const std::vector<TimeNs>& sums);
  IsolatedOptions Isolated(const TrainingTask& task) const;
  const IsolatedTimes& TimesFor(const TrainingTask& task, bool twins);
  const TailTimes& TailTimesFor(const TrainingTask& task);
  ModelTimes AsModelTimes(const TrainingTask& task, const IsolatedTimes& isolated,
                          bool twins) const;
  void RequireMemory(const TrainingTask& task) const;
  void TimeMachine(const TrainingTask& task);
  RunOptions Running() const;

  const Scenario& scenario_;
  const CostsOptions options_;
  std::map<std::tuple<int, StageGroups, bool>, std::unique_ptr<CutCosts>> cuts_;
  // By layers of each stage, and whether ranks hold two of them in turns: beside that, what a stage
  // takes does not hang on which others are on its rank.
  std::map<std::pair<std::vector<int64_t>, bool>, IsolatedTimes> isolated_;
  std::map<std::vector<int64_t>, TailTimes> tails_;  // likewise
  RuntimeTimes runtime_{};
  std::optional<double> best_gemm_{};
  std::optional<TimeNs> hop_latency_{};
  bool machine_is_timed_ = false;
  bool frozen_ = false;
  double seconds_ = 0;
};

}  // namespace spiritlevel
