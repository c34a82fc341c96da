// TrainingRun: many iterations of a TrainingTask, through rejected steps, faults and restarts.
//
//   TrainingRun run(schedule, task, {.tail = Tail::kSpeculativeValidation});
//   if (HasCheckpoint(folder)) run.Resume(LoadCheckpoint(folder));
//   if (const std::optional<Failure> failure = run.Run(100)) throw ...;
//   run.state().parameters.at("layers.3.mlp.up.weight");
//
// It runs in segments. Each is a Program, lowered with the verdicts that are known, and ends at a
// drain point: everything is validated, nothing is on its way, and all ranks have packed their part
// of one TrainingState. Checkpoints are written there and nowhere else, whenever they are asked
// for.
//
//   - Where a validation finds what the Program was not lowered for, the version is taken back on
//     every rank and the rest of the segment runs as a Program of its own: where ranks are threads,
//     on the same works; where they are processes, which end with their run, from the last drain
//     point, with a Program that knows the verdict and has the rollback in it.
//   - After any other failure the segment begins anew from its drain point.
//
// Either way the bits are those of a run in which nothing went wrong.
//
// Under MPI each process makes the same TrainingRun and calls the same functions. At drain points
// all get the state of all; the first writes checkpoints, and all go on, or none does. A process
// that is killed takes the job with it: the next mpirun, of as many ranks as it likes, calls
// ResumeFrom().
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "verify/checkpoint.h"
#include "verify/model_plan_record.h"
#include "verify/run.h"
#include "verify/transaction_tail.h"

namespace spiritlevel {

class TrainingWork;

struct TrainingRunOptions {
  Tail tail = Tail::kSpeculativeValidation;
  Transport transport = Transport::kThreads;
  TransactionOptions transaction{};
  int iterations_per_segment = 4;
  // Begin a segment anew after a rejection among threads, too, as processes must.
  bool restart_after_rejection = false;
  // In a row, without a segment that was done.
  int most_failures = 3;
  // Empty: none are written. Else every so many segments (0: only when asked for).
  std::filesystem::path checkpoint_folder{};
  int segments_per_checkpoint = 0;
  // Gradients and losses of every iteration are kept in record().
  bool record = false;
  std::optional<TimeNs> patience{};  // as those of RunOptions
  std::optional<TimeNs> stall_limit{};
  size_t shared_payload_bytes = size_t{1} << 28;
  // For tests: what is to go wrong in a run of a Program. `attempt` counts from 0 over all runs.
  std::function<std::vector<Fault>(int attempt, const Program& program)> faults{};
};

// One run of a Program.
struct Attempt {
  int64_t first_iteration = 0;
  int iterations = 0;
  std::set<int64_t> rejected{};  // the task's iterations that it was lowered for
  std::optional<Failure> failure{};
};

class TrainingRun {
 public:
  // Throws InputError for what cannot be run.
  TrainingRun(const Schedule& schedule, const TrainingTask& task,
              const TrainingRunOptions& options);
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  // Goes on from there, with this run's schedule, stages and micro-batches. The sample position and
  // all bits stay; iterations are counted anew where they have become larger, so that none consumes
  // samples before the first.
  void Resume(const TrainingState& state);

  // From the checkpoint in a folder, if there is one. Under MPI the first process alone reads it.
  bool ResumeFrom(const std::filesystem::path& folder);

  // Until so many more iterations are validated. A failure: that of the last attempt, once there
  // were too many; the state is then still that of the last drain point.
  std::optional<Failure> Run(int64_t iterations);

  // From any thread, at any time; written at the next drain point. Under MPI from any process.
  void RequestCheckpoint() { checkpoint_requested_.store(true); }

  const TrainingState& state() const { return state_; }
  // As it goes on: its first sample is such that this iteration begins at the sample position.
  const TrainingTask& task() const { return *task_; }
  const std::vector<Attempt>& attempts() const { return attempts_; }
  const TrainingRecord& record() const { return record_; }
  // By rank, replica by replica, over all segments that were done.
  const std::vector<std::vector<StageCounts>>& counts() const { return counts_; }
  int64_t checkpoints() const { return checkpoints_; }

 private:
  struct Segment;

  Program LowerFor(const Segment& segment) const;
  RunReport RunOnce(const Segment& segment, const Program& program);
  std::shared_ptr<TrainingWork> WorkFor(const RankContext& context);
  void HandleVerdict(const Program& program, const Failure& failure, Segment* segment);
  bool RecoverWorks();
  bool is_under_mpi() const { return options_.transport == Transport::kMpi; }
  void Drain(const RunReport& report);
  bool IsCheckpointDue();
  void Commit();

  Schedule schedule_;
  std::shared_ptr<TrainingTask> task_;
  TrainingRunOptions options_;
  Costs costs_;
  std::shared_ptr<PrefixTable> prefix_;
  std::vector<std::shared_ptr<TrainingWork>> works_;  // threads: by rank, replica by replica
  TrainingState state_;                               // at the last drain point
  std::vector<RankShard> shards_;                     // the same, as the ranks packed it
  std::vector<Attempt> attempts_;
  TrainingRecord record_;
  std::vector<std::vector<StageCounts>> counts_;
  std::atomic<bool> checkpoint_requested_{false};
  int64_t segments_ = 0;
  int64_t checkpoints_ = 0;
};

}  // namespace spiritlevel
