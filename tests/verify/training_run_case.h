// Training runs of models so small that hundreds of them take seconds.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/sanitized.h"
#include "tests/sim/run.h"
#include "verify/training_run.h"

namespace spiritlevel {

// A model with a layer or so for each stage of the schedule.
inline TrainingTask TinyTask(const Schedule& schedule, int layers = 0) {
  cpu::ModelShape shape{.layers = layers > 0 ? layers : schedule.num_stages(),
                        .hidden = 8,
                        .heads = 2,
                        .kv_heads = 1,
                        .head_dim = 4,
                        .intermediate = 8,
                        .vocabulary = 13,
                        .sequence = 4,
                        .seed = 5};
  TrainingTask task{.shape = shape,
                    .stages = cpu::EvenStages(shape, schedule.num_stages()),
                    .micro_batches = schedule.num_micro_batches(),
                    .warmup_steps = 3,
                    .clip_norm = 1e3};
  task.adamw.rate = 1e-2f;
  return task;
}

// The dumbest way to the same bits: the norm is known before anybody steps.
inline TrainingRunOptions Barrier(const TransactionOptions& transaction = {}) {
  // Hundreds of these run beside other tests: who waits sleeps.
  TrainingRunOptions options{.tail = Tail::kBarrier, .patience = 0};
  options.transaction.loss_scaling = transaction.loss_scaling;
  options.transaction.faults = transaction.faults;
  return options;
}

inline std::string Words(const std::vector<Attempt>& attempts) {
  std::string words;
  for (const Attempt& attempt : attempts) {
    words += "iterations " + std::to_string(attempt.first_iteration) + " to " +
             std::to_string(attempt.first_iteration + attempt.iterations) + ": " +
             (attempt.failure ? attempt.failure->message : "done") + "\n";
  }
  return words;
}

// Names of parameters that differ, and whether the scalars do.
inline std::string Differences(const TrainingState& a, const TrainingState& b) {
  std::string words;
  if (a.scalars != b.scalars) words += "scalars ";
  for (const auto& [name, state] : a.parameters) {
    const auto other = b.parameters.find(name);
    if (other == b.parameters.end() || other->second != state) words += name + " ";
  }
  if (a.parameters.size() != b.parameters.size()) words += "number of parameters";
  return words;
}

inline TrainingState StateAfter(const Schedule& schedule, const TrainingTask& task,
                                const TrainingRunOptions& options, int64_t iterations) {
  TrainingRun run(schedule, task, options);
  const std::optional<Failure> failure = run.Run(iterations);
  if (failure) ADD_FAILURE() << failure->message;
  return run.state();
}

inline StageCounts Sum(const StageCounts& a, const StageCounts& b) {
  return {.eager = a.eager + b.eager,
          .skipped = a.skipped + b.skipped,
          .late = a.late + b.late,
          .undecided = a.undecided + b.undecided,
          .rolled_back = a.rolled_back + b.rolled_back,
          .dropped_forwards = a.dropped_forwards + b.dropped_forwards,
          .overflows = a.overflows + b.overflows};
}

// Over ranks and stages.
inline StageCounts Total(const TrainingRun& run) {
  StageCounts total;
  for (const std::vector<StageCounts>& rank : run.counts()) {
    for (const StageCounts& stage : rank) total = Sum(total, stage);
  }
  return total;
}

}  // namespace spiritlevel
