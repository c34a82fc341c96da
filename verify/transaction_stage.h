// TransactionalStage: one stage's tensors under a StageTransaction.
//
// Every change of parameters, moments and master weights goes through here, and through the state
// machine first. Gradients are to be kept until the step is settled, since a step that was wrong is
// made again from them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cpu/model/stage_optimizer.h"
#include "verify/model_work_rank.h"
#include "verify/transaction.h"
#include "verify/transaction_scalars.h"

namespace spiritlevel {

// How a provisional step is taken back: from a copy of everything, or by arithmetic, which needs no
// memory and loses digits (docs/numerics.md).
enum class UndoBy : uint8_t { kSnapshot, kInverse };

class TransactionalStage {
 public:
  // `micro_batches[i]`: whether this copy of the stage runs micro-batch i.
  TransactionalStage(HeldStage& held, const TrainingTask& task, const ParameterNumbers& numbers,
                     UndoBy undo_by, int64_t iteration, std::vector<uint8_t> micro_batches);

  int number() const { return held_.number; }
  HeldStage& held() { return held_; }
  StageTransaction& machine() { return machine_; }
  const StageTransaction& machine() const { return machine_; }

  // Squared norms of the gradients as they are now, in the order of the stage's parameters.
  std::vector<double> Partials() const;

  // Steps as if nothing were clipped, or leaves that, as the prefix says.
  void Decide(const SquaredNorm& prefix, const TrainingScalars& scalars);
  // With the full norm: takes a provisional step back that was not right for it. True if it was so.
  bool TakeBackIfWrong(const SquaredNorm& full, const TrainingScalars& scalars);
  // Then: keeps a provisional step, and makes the right one where there is none. Validated after.
  void Settle(const SquaredNorm& full, const TrainingScalars& scalars);

  // Begins anew before `iteration`, whatever was under way; the tensors are the caller's matter.
  void BeginAt(int64_t iteration);

 private:
  void StepEagerly(const TrainingScalars& scalars);
  void TakeSnapshot();

  HeldStage& held_;
  const TrainingTask& task_;
  const ParameterNumbers& numbers_;
  UndoBy undo_by_;
  std::vector<uint8_t> micro_batches_;
  StageTransaction machine_;
  // There is always one, so that memory does not depend on what happens.
  std::optional<cpu::StageOptimizer::Snapshot> before_;
  // What the eager step was made with: the inverse needs the same.
  cpu::AdamW options_{};
  float factor_ = 1;
};

}  // namespace spiritlevel
