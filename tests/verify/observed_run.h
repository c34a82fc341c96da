// Runs a Program once on works that write down, before each node, where their stages' steps stand:
// what a TrainingRun of the same Program, task and faults goes through in its first attempt.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "verify/run.h"
#include "verify/training_run_work.h"

namespace spiritlevel {

struct StageStanding {
  int stage = 0;
  StepState state = StepState::kNotStarted;
  bool has_run_ahead = false;
};

struct Standing {
  NodeId node = kNone;
  int64_t judged = kNone;  // the iteration, where the node is a validation that judges one
  std::vector<StageStanding> stages{};
};

class ObservedWork : public TrainingWork {
 public:
  using TrainingWork::TrainingWork;

  Payload RunOp(OpCall& call) override {
    WriteDown(call.node);
    return TrainingWork::RunOp(call);
  }
  // Its two halves are ops of one node.
  std::pair<Payload, Payload> RunPair(OpCall& first, OpCall& second) override {
    WriteDown(first.node);
    return TrainingWork::RunPair(first, second);
  }
  void StepOptimizer(const StepCall& call) override {
    WriteDown(call.node);
    TrainingWork::StepOptimizer(call);
  }
  void RollBack(const StepCall& call) override {
    WriteDown(call.node);
    TrainingWork::RollBack(call);
  }
  bool Validate(const ValidationCall& call) override {
    WriteDown(call.node);
    if (call.judges) standings_.back().judged = call.iteration - 1;
    return TrainingWork::Validate(call);
  }

  // By node, in the order in which they ran.
  const std::vector<Standing>& standings() const { return standings_; }

  // As it stands now: of a rank that was killed, as it died.
  std::vector<StageStanding> Now() {
    std::vector<StageStanding> now;
    for (const std::unique_ptr<TransactionalStage>& stage : transaction().stages()) {
      const StageTransaction& machine = stage->machine();
      now.push_back({stage->number(), machine.state(), machine.has_run_ahead()});
    }
    return now;
  }

 private:
  void WriteDown(NodeId node) {
    if (!standings_.empty() && standings_.back().node == node) return;
    standings_.push_back({.node = node, .stages = Now()});
  }

  std::vector<Standing> standings_;
};

struct ObservedRun {
  // One replica, from the task's first iteration, on threads.
  ObservedRun(const Program& program, const TrainingTask& task, TransactionOptions transaction,
              const std::vector<Fault>& faults = {})
      : works(static_cast<size_t>(program.num_ranks())) {
    transaction.on_rollback = nullptr;
    const auto shared_task = std::make_shared<const TrainingTask>(task);
    const ModelWorkOptions options{
        .make_tail = TransactionalTails(task, transaction, MakePrefixTable(task))};
    const WorkFactory make = [&](const RankContext& context) -> std::shared_ptr<RankWork> {
      auto work = std::make_shared<ObservedWork>(context, shared_task, nullptr, options);
      works[static_cast<size_t>(context.rank)] = work;
      return work;
    };
    report = RunProgram(program, make, {.patience = 0, .faults = faults});
  }

  std::vector<std::shared_ptr<ObservedWork>> works;  // by rank
  RunReport report{};
};

inline bool IsAnyProvisional(const std::vector<StageStanding>& stages) {
  return std::ranges::any_of(
      stages, [](const StageStanding& at) { return at.state == StepState::kProvisional; });
}

// Nodes before which a stage stands provisional, whoever was faster: one that waits for nobody
// (stage 0 is its own prefix), or one that has run a forward ahead and so must have decided.
inline std::vector<NodeId> PlacesBehindAStep(const ObservedRun& run) {
  std::vector<NodeId> places;
  for (const std::shared_ptr<ObservedWork>& work : run.works) {
    for (const Standing& standing : work->standings()) {
      const bool is_certain = std::ranges::any_of(standing.stages, [](const StageStanding& at) {
        return at.state == StepState::kProvisional && (at.stage == 0 || at.has_run_ahead);
      });
      if (is_certain) places.push_back(standing.node);
    }
  }
  return places;
}

}  // namespace spiritlevel
