// ModelWork: a rank's share of a transformer, run node by node with the kernels of
// kernels/cpu/model. docs/runtime.md has the rules on sums, memory and bits.
//
//   const WorkFactory works = ModelWorks(task, {.record = true});
//   const RunReport report = RunProgram(program, works);
//   const TrainingRecord record = RecordOf(task, report.results);   // model_plan_record.h
//
// The Program is lowered from ModelCosts(task, ...) (model_costs.h), which knows the sums that the
// task needs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/model/stage.h"
#include "sim/costs.h"
#include "verify/model_plan.h"
#include "verify/model_work_messages.h"
#include "verify/model_work_rank.h"
#include "verify/model_work_tail.h"
#include "verify/work.h"

namespace spiritlevel {

class ModelWork;

// By replica and rank. Between runs the caller may look at them, and take them back to an earlier
// step (RankModel::BeginAt()).
struct KeptWorks {
  std::mutex mutex{};
  std::map<std::pair<int, int>, std::shared_ptr<ModelWork>> works{};
};

struct ModelWorkOptions {
  // Gradients, parameters and moments of every iteration go into the result. It takes time between
  // and inside of nodes: not for runs that are timed.
  bool record = false;
  // None: SimpleTail.
  TailFactory make_tail{};
  // Given, works are kept there and go on in the next run. Of threads, and under MPI each process
  // its own; not of processes that are forked, which end with their run.
  std::shared_ptr<KeptWorks> kept{};
};

class ModelWork : public RankWork {
 public:
  ModelWork(const RankContext& context, std::shared_ptr<const TrainingTask> task,
            std::shared_ptr<ParameterGather> gather, const ModelWorkOptions& options);

  // For another run, of a Program with the same stages on the rank.
  void BeginRun(const RankContext& context);

  Payload RunOp(OpCall& call) override;
  std::pair<Payload, Payload> RunPair(OpCall& first, OpCall& second) override;
  void StepOptimizer(const StepCall& call) override;
  void RollBack(const StepCall& call) override { tail_->RollBack(call); }
  bool Validate(const ValidationCall& call) override;
  Payload Contribute(const SumCall& call) override;
  void Combine(const SumCall& call,
               std::span<const std::span<const std::byte>> contributions) override;
  Bytes TakePeakBytes() override;
  void Abandon() noexcept override;
  // A RankRecord (model_plan_record.h).
  Payload Finish() override;

  RankModel& model() { return *model_; }
  OptimizerTail& tail() { return *tail_; }

 private:
  using Cell = std::pair<int, int>;  // stage, micro-batch

  Payload RunForward(OpCall& call);
  Payload RunInputGrad(OpCall& call);
  void RunWeightGrad(const OpCall& call);
  Payload RunFusedBackward(OpCall& call);
  cpu::Tensor TakeInput(OpCall& call);
  cpu::Activation TakeActivation(const OpCall& call);
  std::vector<cpu::Tensor*> SummedBy(const SumCall& call);
  void CountWaiting();

  std::shared_ptr<const TrainingTask> task_;
  std::unique_ptr<RankModel> model_;
  MessageDesk messages_;
  std::unique_ptr<OptimizerTail> tail_;
  std::map<Cell, cpu::Activation> activations_;
  std::map<Cell, cpu::WeightState> weight_states_;
  std::map<Cell, cpu::Stage::BackwardInParts> in_parts_;
  std::map<int, StageCost> memory_;  // by stage: what its passes need
  int iterations_ = 0;               // of the run at hand
};

// Works for all ranks and replicas of one run, or of several one after the other.
WorkFactory ModelWorks(const TrainingTask& task, const ModelWorkOptions& options = {});

}  // namespace spiritlevel
