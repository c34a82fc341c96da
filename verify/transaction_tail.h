// TransactionalTail: the optimizer's tail as a transaction, for every tail of a Program but none.
//
//   barrier      the norm is known at the step: each stage steps right at once.
//   strict       a stage steps eagerly where its prefix of the norm allows it. The validation,
//   before
//                the rank's first op, settles each stage in place: nobody has read it yet.
//   speculative  the same, but forwards of the next iteration run before the validation. Where the
//                norm is not what eager steps were made for, the iteration's version is rejected on
//                all ranks: with a Program that was lowered for it, forwards are dropped, the
//                rollback settles each stage, and they run again; with another, the run ends with
//                FailureKind::kVerdict, and Recover() brings each rank to where such a rollback
//                would have.
//
// A stage decides as soon as its prefix is known: at the rank's step, or, where ranks before it
// were not done by then, at the first forward of the next iteration that reaches it. What it
// decides depends on gradients alone, when it decides on timing. docs/transactions.md has the
// rules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "verify/model_work_tail.h"
#include "verify/transaction_prefix.h"
#include "verify/transaction_stage.h"

namespace spiritlevel {

// One entry of a gradient, replaced once all sums are formed; in every run of the iteration, on
// every rank that holds it.
struct GradientFault {
  int64_t iteration = 0;  // the task's
  int stage = 0;
  int parameter = 0;  // of the stage
  int64_t entry = 0;
  float value = 0;
};

struct TransactionOptions {
  LossScaling loss_scaling{};
  UndoBy undo_by = UndoBy::kSnapshot;
  std::vector<GradientFault> faults{};
  // For tests: told when a stage has been taken back and has not made the right step yet.
  std::function<void(int stage, int64_t iteration)> on_rollback{};
};

// What became of a stage's iterations on one rank.
struct StageCounts {
  int64_t stage = 0;
  int64_t eager = 0;      // steps before the norm was known
  int64_t skipped = 0;    // that the prefix forbade
  int64_t late = 0;       // of both: decided behind the rank's own step
  int64_t undecided = 0;  // the norm was known before the prefix was needed
  int64_t rolled_back = 0;
  int64_t dropped_forwards = 0;
  int64_t overflows = 0;

  friend bool operator==(const StageCounts&, const StageCounts&) = default;
};

class TransactionalTail : public OptimizerTail {
 public:
  // Throws InputError for a Program without a tail, and for a sharded optimizer, whose replicas
  // would have to agree before each eager step.
  TransactionalTail(RankModel& model, const RankContext& context, const TransactionOptions& options,
                    std::shared_ptr<PrefixTable> prefix);

  void BeginPass(const OpCall& call) override;
  void EndPass(const OpCall& call) override;
  float loss_scale() const override { return loss_scale_; }
  Payload Contribute(const SumCall& call) override;
  void Combine(const SumCall& call,
               std::span<const std::span<const std::byte>> contributions) override;
  void Step(const StepCall& call) override;
  bool Validate(const ValidationCall& call) override;
  void RollBack(const StepCall& call) override;
  void Abandon() noexcept override;
  // A drain point: settles the last iteration.
  void Finish() override;

  // Behind a run that has failed with kVerdict: takes back what was provisional and steps right.
  // False, and nothing is changed, where this rank has no step to judge.
  bool Recover();
  // Goes on from somewhere else: the tensors were put there, and this is what belongs to them.
  void Resume(const TrainingScalars& scalars);

  // Behind the last settled iteration.
  const TrainingScalars& scalars() const { return scalars_; }
  bool is_drained() const;
  // What runs that have failed had come to before Recover(), for once.
  TrainingRecord TakeTold() { return std::exchange(told_, {}); }
  const std::vector<StageCounts>& counts() const { return counts_; }
  std::span<const std::unique_ptr<TransactionalStage>> stages() const { return stages_; }

 private:
  size_t PlaceOf(int stage) const;
  void Publish();
  void DecideIfKnown(size_t place);
  // For a forward that has come to the stage.
  void DecideNow(size_t place);
  // Where ranks have no memory in common.
  std::optional<PrefixSender> Sender() const;
  void SettleAll();
  void DropAhead();
  void Inject(int64_t iteration);

  RankModel& model_;
  Tail tail_;
  TransactionOptions options_;
  std::shared_ptr<PrefixTable> prefix_;
  std::vector<std::unique_ptr<TransactionalStage>> stages_;  // ascending
  std::vector<StageCounts> counts_;                          // of each
  std::vector<int64_t> ahead_;  // of each: forwards that ran before their version was judged
  // Before the iteration that is under way or is to be judged.
  TrainingScalars scalars_;
  std::optional<SquaredNorm> full_;  // of that iteration
  float loss_scale_ = 1;             // of the pass at hand
  TrainingRecord told_;
};

// One PrefixTable for all ranks of a run, or under MPI for each process: make a new factory, or
// Clear() the table, for the next.
TailFactory TransactionalTails(const TrainingTask& task, const TransactionOptions& options,
                               std::shared_ptr<PrefixTable> prefix);
std::shared_ptr<PrefixTable> MakePrefixTable(const TrainingTask& task);

}  // namespace spiritlevel
