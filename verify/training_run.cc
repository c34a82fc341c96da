#include "verify/training_run.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "verify/model_costs.h"
#include "verify/mpi_job.h"
#include "verify/training_run_work.h"

namespace spiritlevel {

// Iterations between two drain points, as far as they are not done.
struct TrainingRun::Segment {
  int64_t first = 0;
  int iterations = 0;
  std::set<int64_t> rejected{};  // known by now
};

namespace {

void Require(bool fulfilled, const std::string& what, const std::string& way_out) {
  if (!fulfilled) throw InputError(what, way_out);
}

void CheckOptions(const TrainingTask& task, const TrainingRunOptions& options) {
  Require(options.tail != Tail::kNoTail,
          "without a tail no norm is formed, and no step can be judged",
          "use barrier, post-validation-strict or post-validation-speculative");
  Require(!task.sharded_optimizer || task.replicas == 1,
          "a sharded optimizer cannot step before the norm is known",
          "use an optimizer that is not sharded");
  const bool is_under_mpi = options.transport == Transport::kMpi;
  Require(!is_under_mpi || HasMpi(), "this build is without MPI",
          "install libopenmpi-dev and build again, or run ranks as threads or processes");
  Require(!is_under_mpi || IsInMpiJob(), "MPI has not been begun", "run it under mpirun");
  Require(options.iterations_per_segment >= 1, "a segment of no iterations", "one or more");
  Require(!options.checkpoint_folder.empty() || options.segments_per_checkpoint == 0,
          "checkpoints without a folder", "name one");
}

Costs CostsFor(const TrainingTask& task, const TrainingRunOptions& options) {
  CheckTrainingTask(task);
  return ModelCosts(task, {}, {.keeps_snapshot = options.transaction.undo_by == UndoBy::kSnapshot});
}

}  // namespace

TrainingRun::TrainingRun(const Schedule& schedule, const TrainingTask& task,
                         const TrainingRunOptions& options)
    : schedule_(schedule),
      task_(std::make_shared<TrainingTask>(task)),
      options_(options),
      costs_(CostsFor(task, options)),
      prefix_(MakePrefixTable(task)) {
  CheckOptions(task, options);
  state_.scalars = FirstScalars(task, options.transaction.loss_scaling);
  counts_.resize(static_cast<size_t>(schedule.num_ranks() * task.replicas));
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::Resume(const TrainingState& state) {
  state_ = state;
  shards_.clear();
  TrainingScalars& scalars = state_.scalars;
  const int64_t samples = task_->samples_per_step();
  scalars.iteration = std::min(scalars.iteration, scalars.consumed_samples / samples);
  task_ = std::make_shared<TrainingTask>(*task_);
  task_->first_sample = scalars.consumed_samples - scalars.iteration * samples;
}

bool TrainingRun::ResumeFrom(const std::filesystem::path& folder) {
  std::string packed;
  const auto read = [&] {
    if (!HasCheckpoint(folder)) return;
    const TrainingState state = LoadCheckpoint(folder);
    packed = Pack(state.scalars, state.parameters);
  };
  if (is_under_mpi()) {
    DoAtFirst(read);
    ShareFromFirst(&packed);
  } else {
    read();
  }
  if (packed.empty()) return false;
  Resume(Unpack(packed));
  return true;
}

std::optional<Failure> TrainingRun::Run(int64_t iterations) {
  const int64_t end = state_.scalars.iteration + iterations;
  int failures = 0;
  while (state_.scalars.iteration < end) {
    const int64_t begin = state_.scalars.iteration;
    const auto left = std::min<int64_t>(options_.iterations_per_segment, end - begin);
    Segment segment{.first = begin, .iterations = static_cast<int>(left)};
    while (segment.iterations > 0) {
      const Program program = LowerFor(segment);
      const RunReport report = RunOnce(segment, program);
      if (!report.failure) {
        failures = 0;
        Drain(report);
        break;
      }
      if (report.failure->kind == FailureKind::kVerdict) {
        HandleVerdict(program, *report.failure, &segment);
        continue;
      }
      works_.clear();
      if (++failures > options_.most_failures) return report.failure;
      segment.first = begin;
      segment.iterations = static_cast<int>(left);
    }
  }
  return std::nullopt;
}

Program TrainingRun::LowerFor(const Segment& segment) const {
  LoweringOptions lowering{.tail = options_.tail, .iterations = segment.iterations};
  for (const int64_t iteration : segment.rejected) {
    // The last one is settled at the drain point: nothing has run on it.
    const int64_t place = iteration - segment.first;
    if (place >= 0 && place < segment.iterations - 1) {
      lowering.rejected.push_back(static_cast<int>(place));
    }
  }
  return Lower(schedule_, costs_, lowering);
}

RunReport TrainingRun::RunOnce(const Segment& segment, const Program& program) {
  prefix_->Clear();
  RunOptions options{.transport = options_.transport,
                     .replicas = task_->replicas,
                     .patience = options_.patience,
                     .stall_limit = options_.stall_limit,
                     .shared_payload_bytes = options_.shared_payload_bytes};
  const auto attempt = static_cast<int>(attempts_.size());
  if (options_.faults) options.faults = options_.faults(attempt, program);
  if (works_.empty()) {
    works_.resize(static_cast<size_t>(schedule_.num_ranks() * task_->replicas));
  }
  RunReport report = RunProgram(
      program, [this](const RankContext& context) { return WorkFor(context); }, options);
  if (is_under_mpi() && !report.failure) ShareFromFirst(&report.results);
  attempts_.push_back({.first_iteration = segment.first,
                       .iterations = segment.iterations,
                       .rejected = segment.rejected,
                       .failure = report.failure});
  return report;
}

// On the rank's own thread. A process makes its own, which ends with it.
std::shared_ptr<TrainingWork> TrainingRun::WorkFor(const RankContext& context) {
  const int index = context.replica * schedule_.num_ranks() + context.rank;
  std::shared_ptr<TrainingWork>& work = works_[static_cast<size_t>(index)];
  if (work != nullptr) {
    work->BeginRun(context);
    return work;
  }
  work = std::make_shared<TrainingWork>(
      context, task_, nullptr,
      ModelWorkOptions{.record = options_.record,
                       .make_tail = TransactionalTails(*task_, options_.transaction, prefix_)});
  work->Load(state_);
  return work;
}

// The verdict was about the iteration before that of the validation.
void TrainingRun::HandleVerdict(const Program& program, const Failure& failure, Segment* segment) {
  const int64_t judged = segment->first + program.nodes()[failure.node].iteration - 1;
  const bool was_expected = segment->rejected.erase(judged) > 0;
  if (!was_expected) segment->rejected.insert(judged);
  if (options_.transport == Transport::kThreads && !options_.restart_after_rejection &&
      RecoverWorks()) {
    const int64_t done = judged + 1 - segment->first;
    segment->first += done;
    segment->iterations -= static_cast<int>(done);
    return;
  }
  works_.clear();
  const int64_t done = segment->first - state_.scalars.iteration;
  segment->first -= done;
  segment->iterations += static_cast<int>(done);
}

bool TrainingRun::RecoverWorks() {
  return std::ranges::all_of(works_, [](const std::shared_ptr<TrainingWork>& work) {
    return work != nullptr && work->transaction().Recover();
  });
}

void TrainingRun::Drain(const RunReport& report) {
  works_.clear();
  shards_.clear();
  std::vector<std::string> parts;
  std::vector<Payload> records;
  for (size_t index = 0; index < report.results.size(); ++index) {
    TrainingResult result = ParseTrainingResult(report.results[index]);
    parts.push_back(result.shard);
    // Replicas have the same; one of them is saved.
    if (index < static_cast<size_t>(schedule_.num_ranks())) {
      shards_.push_back({.rank = static_cast<int>(index), .bytes = std::move(result.shard)});
    }
    records.push_back(std::move(result.record));
    std::ranges::move(result.counts, std::back_inserter(counts_[index]));
  }
  state_ = Merge(parts);
  for (StepRecord& step : RecordOf(*task_, records)) record_.push_back(std::move(step));
  ++segments_;
  if (IsCheckpointDue()) Commit();
}

bool TrainingRun::IsCheckpointDue() {
  const int every = options_.segments_per_checkpoint;
  if (every > 0 && segments_ % every == 0) return true;
  const bool is_requested = checkpoint_requested_.load();
  return is_under_mpi() ? IsTrueOfAny(is_requested) : is_requested;
}

void TrainingRun::Commit() {
  if (options_.checkpoint_folder.empty()) return;
  checkpoint_requested_.store(false);
  const auto commit = [this] { CommitCheckpoint(options_.checkpoint_folder, shards_); };
  if (is_under_mpi()) {
    DoAtFirst(commit);
  } else {
    commit();
  }
  ++checkpoints_;
}

}  // namespace spiritlevel
