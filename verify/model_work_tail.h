// OptimizerTail: what a rank does once its gradients are complete. ModelWork runs the passes and
// the sums of gradients, and asks its tail for everything that ends an iteration.
//
// All is called on the rank's thread. Iterations are the Program's; RankModel::StepOf() has the
// task's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "verify/model_work_rank.h"
#include "verify/work.h"

namespace spiritlevel {

class OptimizerTail {
 public:
  virtual ~OptimizerTail() = default;

  // Before each pass (its first part), dropped ones included; and behind it (its last).
  virtual void BeginPass(const OpCall&) {}
  virtual void EndPass(const OpCall&) {}
  // By what the gradients of a forward that runs now are multiplied, beside 1 / tokens. A power of
  // two.
  virtual float loss_scale() const { return 1; }

  // The barrier (kCollective) and what a post-validation is about (kReduction): by now all
  // gradients are summed, those of the local copies of a tied embedding included.
  virtual Payload Contribute(const SumCall& call) = 0;
  virtual void Combine(const SumCall& call,
                       std::span<const std::span<const std::byte>> contributions) = 0;

  // Steps all stages of the rank, or leaves that to later, and calls RankModel::EndIteration() once
  // the gradients are not needed any more.
  virtual void Step(const StepCall& call) = 0;
  // What dropped forwards have kept is let go of by ModelWork when this returns.
  virtual bool Validate(const ValidationCall& call) = 0;
  virtual void RollBack(const StepCall& call) = 0;

  virtual void Abandon() noexcept {}
  // Behind the last node of a run.
  virtual void Finish() {}
};

using TailFactory =
    std::function<std::unique_ptr<OptimizerTail>(RankModel& model, const RankContext& context)>;

// Squared norms of single parameters, and their sum in model order over all stages, whoever has
// them: the same bits on every rank.
class NormParts {
 public:
  // Of what this rank has and, where the optimizer is sharded, owns.
  static Payload Of(const RankModel& model);
  // Of all members of a collective. Copies must agree, to the bit.
  static double SquaredNorm(const RankModel& model,
                            std::span<const std::span<const std::byte>> contributions);
};

// No tail, or a barrier: the step comes once everything is known. Refuses other Programs.
class SimpleTail : public OptimizerTail {
 public:
  SimpleTail(RankModel& model, const RankContext& context);

  Payload Contribute(const SumCall& call) override;
  void Combine(const SumCall& call,
               std::span<const std::span<const std::byte>> contributions) override;
  void Step(const StepCall& call) override;
  bool Validate(const ValidationCall& call) override;
  void RollBack(const StepCall& call) override;

 private:
  RankModel& model_;
  std::optional<double> norm_;  // of the iteration at hand; none without a barrier
};

}  // namespace spiritlevel
