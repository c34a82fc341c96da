// RankModel: the stages that one rank holds, with their gradients and their optimizer, and what
// iterations leave to be told. What ModelWork and its OptimizerTail share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/model/memory_meter.h"
#include "kernels/cpu/model/stage.h"
#include "kernels/cpu/model/stage_optimizer.h"
#include "verify/model_plan.h"
#include "verify/model_plan_record.h"
#include "verify/model_work_gather.h"
#include "verify/work.h"

namespace spiritlevel {

struct HeldStage {
  HeldStage(const TrainingTask& task, int number, int replica, cpu::MemoryMeter* meter);

  int number;
  cpu::Stage stage;
  cpu::GradientStore gradients;
  cpu::StageOptimizer optimizer;
  std::vector<BlockRun> buckets;
  // By bucket: its sum over replicas or ranks has begun, so no W may add to it until
  // RankModel::EndIteration().
  std::vector<uint8_t> is_closed;
};

class RankModel {
 public:
  RankModel(const RankContext& context, std::shared_ptr<const TrainingTask> task,
            std::shared_ptr<ParameterGather> gather, bool record);

  // For another run.
  void BeginRun(const RankContext& context);

  const TrainingTask& task() const { return *task_; }
  const ParameterNumbers& numbers() const { return numbers_; }
  int replica() const { return replica_; }
  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }  // of each replica
  // Of the run at hand; none where ranks have memory in common.
  SideChannel* side() const { return side_; }
  cpu::MemoryMeter& meter() const { return *meter_; }
  std::shared_ptr<cpu::MemoryMeter> shared_meter() const { return meter_; }
  std::span<const std::unique_ptr<HeldStage>> stages() const { return stages_; }
  HeldStage& stage(int number) const;

  // The task's iteration, of a Program's in the run at hand.
  int64_t StepOf(int iteration) const { return first_step_ + iteration; }
  // With which the next run begins; Finish() of the work adds the run's iterations. Also forgets
  // all gradients. For whoever takes a failed run back.
  void BeginAt(int64_t step);

  // Adds the gradients of both copies of a tied embedding where the rank has both. Once an
  // iteration, whoever calls it first; ModelWork does before OptimizerTail::Contribute() and
  // OptimizerTail::Step().
  void TieLocally();

  // Makes version `step` + 1 of one stage, or of all. With a sharded optimizer GatherParameters()
  // must follow, on all replicas.
  void StepStage(HeldStage& held, int64_t step, float clip);
  void StepAll(int64_t step, float clip);
  // Gets the parameters that other replicas have stepped. Waits for them; what it waits for is
  // given up when the run fails.
  void GatherParameters();

  // What an iteration has come to: gradients as they are now, parameters and moments. Overwrites
  // what was told before of the same step. `clip` is what gradients were multiplied with.
  void Tell(int64_t step, std::optional<double> norm, float clip);
  void TellLoss(int64_t step, int micro_batch, double loss_sum);

  // Gradients are 0 again, and W may add to them.
  void EndIteration();

  // What was told since the last call; the next run begins `iterations` later.
  RankRecord EndRun(int iterations);
  MemoryRecord& memory_record() { return record_.memory; }

 private:
  StepRecord& RecordOfStep(int64_t step);
  void CheckSums(const RankContext& context) const;
  void GatherBySending();
  bool Holds(int number) const;

  std::shared_ptr<const TrainingTask> task_;
  ParameterNumbers numbers_;
  int rank_;
  int num_ranks_;
  int replica_;
  const std::atomic<bool>* stopping_;
  SideChannel* side_ = nullptr;
  std::shared_ptr<cpu::MemoryMeter> meter_;
  std::vector<std::unique_ptr<HeldStage>> stages_;
  std::vector<int> copies_;  // by stage held: which of the ranks that hold it this one is
  std::shared_ptr<ParameterGather> gather_;
  bool records_;
  bool is_tied_ = false;  // in this iteration
  int64_t gathers_ = 0;
  int64_t first_step_ = 0;
  RankRecord record_;
};

}  // namespace spiritlevel
