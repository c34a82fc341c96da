#include "verify/transaction_stage.h"

#include <utility>

#include "base/check.h"

namespace spiritlevel {

TransactionalStage::TransactionalStage(HeldStage& held, const TrainingTask& task,
                                       const ParameterNumbers& numbers, UndoBy undo_by,
                                       int64_t iteration, std::vector<uint8_t> micro_batches)
    : held_(held),
      task_(task),
      numbers_(numbers),
      undo_by_(undo_by),
      micro_batches_(std::move(micro_batches)),
      machine_(held.number, iteration, iteration, micro_batches_) {
  TakeSnapshot();
}

void TransactionalStage::BeginAt(int64_t iteration) {
  machine_ = StageTransaction(held_.number, iteration, iteration, micro_batches_);
}

void TransactionalStage::TakeSnapshot() {
  if (undo_by_ != UndoBy::kSnapshot) return;
  before_.reset();
  before_ = held_.optimizer.TakeSnapshot();
}

std::vector<double> TransactionalStage::Partials() const {
  std::vector<double> partials = held_.optimizer.SquaredNorms(held_.gradients);
  for (size_t i = 0; i < partials.size(); ++i) {
    // Not times zero: that is NaN for an overflow, which the copy that counts has as well.
    const int number = numbers_.first_of(held_.number) + static_cast<int>(i);
    if (!numbers_.counts_in_norm(number)) partials[i] = 0;
  }
  return partials;
}

void TransactionalStage::Decide(const SquaredNorm& prefix, const TrainingScalars& scalars) {
  if (IsWithin(task_, prefix, scalars)) {
    StepEagerly(scalars);
  } else {
    machine_.Skip();
  }
}

void TransactionalStage::StepEagerly(const TrainingScalars& scalars) {
  machine_.StepEagerly();
  const StageTransaction::Changing changing(machine_);
  options_ = OptionsOf(task_, scalars);
  factor_ = UnclippedFactor(scalars);
  TakeSnapshot();
  held_.optimizer.Step(options_, held_.gradients, factor_);
}

bool TransactionalStage::TakeBackIfWrong(const SquaredNorm& full, const TrainingScalars& scalars) {
  if (machine_.state() != StepState::kProvisional || IsWithin(task_, full, scalars)) return false;
  machine_.RollBack();
  const StageTransaction::Changing changing(machine_);
  if (undo_by_ == UndoBy::kSnapshot) {
    held_.optimizer.Restore(*before_);
  } else {
    held_.optimizer.Undo(options_, held_.gradients, factor_);
  }
  return true;
}

void TransactionalStage::Settle(const SquaredNorm& full, const TrainingScalars& scalars) {
  const bool nothing_to_clip = IsWithin(task_, full, scalars);
  if (machine_.state() == StepState::kProvisional) {
    SPIRITLEVEL_CHECK(nothing_to_clip, "a step that was wrong is taken back before");
    return machine_.Validate();
  }
  SPIRITLEVEL_CHECK(machine_.state() != StepState::kSkipped || !nothing_to_clip,
                    "what is too much for a prefix is too much for the whole");
  machine_.StepRight();
  if (full.has_overflow) return;
  const StageTransaction::Changing changing(machine_);
  held_.optimizer.Step(OptionsOf(task_, scalars), held_.gradients,
                       GradientFactor(task_, full, scalars));
}

}  // namespace spiritlevel
