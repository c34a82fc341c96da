// Runs a small transformer through a Program, and judges it by a plain loop on one rank.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/model/model_shape.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "tests/sim/run.h"
#include "tests/verify/traced_run.h"
#include "verify/model_costs.h"
#include "verify/model_plan.h"
#include "verify/model_plan_record.h"
#include "verify/model_work.h"
#include "verify/reference_step.h"
#include "verify/run.h"
#include "verify/transaction_tail.h"

namespace spiritlevel {

// Layers and all else as small as can be without any two sizes being equal.
inline cpu::ModelShape TinyShape(int64_t layers) {
  return {.layers = layers,
          .hidden = 16,
          .heads = 2,
          .kv_heads = 1,
          .head_dim = 6,
          .intermediate = 20,
          .vocabulary = 24,
          .sequence = 8,
          .seed = 5};
}

inline TrainingTask TinyTask(const cpu::ModelShape& shape, int stages, int micro_batches) {
  return {.shape = shape,
          .stages = cpu::EvenStages(shape, stages),
          .micro_batches = micro_batches,
          .adamw = {.rate = 1e-2f},
          .warmup_steps = 4,
          .clip_norm = 0.5,
          .data_seed = 11};
}

inline TrainingTask TinyTask(const Schedule& schedule) {
  return TinyTask(TinyShape(schedule.num_stages()), schedule.num_stages(),
                  schedule.num_micro_batches());
}

// Whatever is asked of all schedules at once: one F, B and W is as long as the other.
inline ModelTimes UnitTimes(int stages) {
  return {
      .passes = std::vector<PassTimes>(
          static_cast<size_t>(stages),
          {.forward = 1, .input_grad = 1, .weight_grad = 1, .fused_backward = 2, .overlapped = 3})};
}

inline Costs UnitCosts(const TrainingTask& task) {
  return ModelCosts(task, UnitTimes(task.num_stages()));
}

// A schedule by its name, of a task's micro-batches; nothing where it cannot be.
inline std::optional<Schedule> ScheduleFor(const ScheduleInfo& info, const Shape& shape) {
  if (info.Refusal(shape)) return std::nullopt;
  return info.Make(shape);
}

struct RunOfModel {
  Program program;
  RunReport report;
  TrainingRecord record;
};

// As a tail has them: a step that may have to be taken back keeps a snapshot.
inline Costs CostsUnder(Tail tail, const TrainingTask& task, int replica = 0) {
  return ModelCosts(task, UnitTimes(task.num_stages()),
                    {.keeps_snapshot = IsPostValidation(tail), .replica = replica});
}

inline RunOfModel RunModel(const TrainingTask& task, const Schedule& schedule,
                           const LoweringOptions& options, const RunOptions& run_options = {}) {
  RunOfModel run{.program = Lower(schedule, CostsUnder(options.tail, task), options),
                 .report = {},
                 .record = {}};
  ModelWorkOptions works{.record = true};
  if (IsPostValidation(options.tail)) {
    works.make_tail = TransactionalTails(task, {}, MakePrefixTable(task));
  }
  run.report = RunProgram(run.program, ModelWorks(task, works), run_options);
  EXPECT_FALSE(run.report.failure) << run.report.failure->message;
  if (!run.report.failure) run.record = RecordOf(task, run.report.results);
  return run;
}

inline bool IsPartOfFusedBackward(const Node& node) {
  return node.kind == NodeKind::kPart && node.op.pass == Pass::kBW;
}

// What is live at each node is what the ledger says, to the byte. The ledger cuts a BW in
// proportion to W, so of its parts it is only true that none holds more than there is when the
// first begins.
inline void ExpectLedgerIsMeasured(const Program& program, const Timeline& measured) {
  const Timeline predicted = SimulateInOrder(program);
  int wrong = 0;
  for (NodeId id = 0; id < program.num_lane_nodes(); ++id) {
    const Node& node = program.nodes()[static_cast<size_t>(id)];
    const bool is_part = IsPartOfFusedBackward(node);
    const NodeId first = is_part ? id - program.part(node).index : id;
    const Bytes live = measured.nodes[static_cast<size_t>(id)].live;
    const Bytes ledger = predicted.nodes[static_cast<size_t>(first)].live;
    const bool is_right = is_part ? live <= ledger : live == ledger;
    if (is_right || ++wrong > 3) continue;
    ADD_FAILURE() << "rank " << program.rank_of(id) << ", node " << id << " of kind "
                  << static_cast<int>(node.kind) << ", " << ToString(node.op) << ": " << live
                  << " bytes are live, and " << ledger << " in the ledger";
  }
  EXPECT_EQ(wrong, 0);
}

// Every rule for predicted timelines holds for this one as well; where BW are cut in parts, the
// ledger's is the one above.
inline void ExpectReplicaIsLegal(const Program& program, const Costs& costs,
                                 const Timeline& timeline) {
  ExpectLedgerIsMeasured(program, timeline);
  const std::vector<Event> events = CollectEvents(program, timeline, program.num_iterations());
  std::vector<Finding> findings = CheckTimeline(events, std::nullopt);
  const bool has_parts = std::ranges::any_of(program.nodes(), IsPartOfFusedBackward);
  if (has_parts) std::erase_if(findings, [](const Finding& f) { return f.rule == "ledger"; });
  EXPECT_EQ(Words(findings), "");
  EXPECT_EQ(Words(CheckAccounts(events, AccountForStalls(program, costs, timeline))), "");
}

inline void ExpectModelRunsRight(const TrainingTask& task, const Schedule& schedule,
                                 const LoweringOptions& options,
                                 const RunOptions& run_options = {}) {
  const RunOfModel run = RunModel(task, schedule, options, run_options);
  if (run.report.failure) return;
  const TrainingRecord expected =
      ReferenceSteps(task, GradientOrder::Of(schedule),
                     {.steps = options.iterations, .has_norm = options.tail != Tail::kNoTail});
  EXPECT_EQ(Difference(task, run.record, expected), "");
  for (int replica = 0; replica < task.replicas; ++replica) {
    SCOPED_TRACE("replica " + std::to_string(replica));
    const Costs costs = CostsUnder(options.tail, task, replica);
    ExpectReplicaIsLegal(Lower(schedule, costs, options), costs,
                         run.report.timelines[static_cast<size_t>(replica)]);
  }
}

}  // namespace spiritlevel
