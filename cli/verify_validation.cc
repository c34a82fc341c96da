#include "cli/verify_validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "report/verification_figures.h"
#include "sim/engine.h"
#include "verify/isolated_tail.h"

namespace spiritlevel {
namespace {

TimeNs StepOf(const Program& program) {
  const std::vector<IterationFigures> all = FiguresByIteration(program, SimulateInOrder(program));
  return MedianOf(std::span(all).subspan(1)).step;
}

}  // namespace

ValidationRuns::ValidationRuns(const Schedule& schedule, const CutCosts& cut,
                               const VerifySettings& settings, std::optional<Bytes> memory_limit,
                               TimeNs predicted_step)
    : schedule_(schedule), cut_(cut), settings_(settings), memory_limit_(memory_limit) {
  PredictBarrier();
  if (settings.tail == Tail::kStrictValidation) {
    PredictInPlace(predicted_step);
  } else {
    PredictReplay(predicted_step);
  }
}

void ValidationRuns::PredictBarrier() {
  LoweringOptions lowering = LoweringFor(settings_, IterationsOf(settings_));
  lowering.tail = Tail::kBarrier;
  barrier_ = std::make_shared<const Program>(Lower(schedule_, cut_.validated->barrier, lowering));
  barrier_predicted_ = StepOf(*barrier_);
}

TimeNs ValidationRuns::OnRank(int rank, const std::vector<TimeNs>& by_stage) const {
  TimeNs sum = 0;
  for (const int stage : barrier_->stages_of(rank)) sum += by_stage[static_cast<size_t>(stage)];
  return sum;
}

TimeNs ValidationRuns::LargestRollback() const {
  if (cut_.validated->rollback_by_stage.empty()) return 0;
  TimeNs largest = 0;
  for (int rank = 0; rank < barrier_->num_ranks(); ++rank) {
    largest = std::max(largest, OnRank(rank, cut_.validated->rollback_by_stage));
  }
  return largest;
}

// The simulator's rollback takes as long as a step. It stands before every op of the replay, on all
// ranks, so by what the longest takes beyond that, so much later is the replay.
void ValidationRuns::PredictReplay(TimeNs predicted_step) {
  if (settings_.posting != Posting::kIdeal) {
    note_ = "no version is rejected under this posting";
    return;
  }
  const int rejected = rejected_iteration();
  LoweringOptions lowering = LoweringFor(settings_, rejected_iterations());
  lowering.rejected = {rejected};
  rejected_ = std::make_shared<const Program>(Lower(schedule_, cut_.costs, lowering));
  rollback_predicted_ =
      TimeBetween(*rejected_, SimulateInOrder(*rejected_), rejected, rejected + 2) -
      2 * predicted_step;
  if (cut_.validated->rollback_by_stage.empty()) return;
  TimeNs step = 0;
  for (int rank = 0; rank < barrier_->num_ranks(); ++rank) {
    step = std::max(step, OnRank(rank, cut_.costs.common().optimizer_by_stage));
  }
  rollback_predicted_ += LargestRollback() - step;
}

// What stands between a rank's step and its next first op is longer by the rollback, whether that
// waits for the step or for the reduction: so play it with both longer.
void ValidationRuns::PredictInPlace(TimeNs predicted_step) {
  if (settings_.emulated) {
    note_ = "emulated passes leave no step to take back in place";
    return;
  }
  rejected_ = std::make_shared<const Program>(
      Lower(schedule_, cut_.costs, LoweringFor(settings_, rejected_iterations())));
  Costs::Common common = cut_.costs.common();
  for (size_t stage = 0; stage < common.optimizer_by_stage.size(); ++stage) {
    common.optimizer_by_stage[stage] += cut_.validated->rollback_by_stage[stage];
  }
  common.barrier += LargestRollback();
  std::vector<StageCost> table;
  for (int stage = 0; stage < cut_.costs.num_stages(); ++stage) {
    table.push_back(cut_.costs.of(stage, 0));
  }
  const Costs later(cut_.costs.num_stages(), cut_.costs.num_micro_batches(), std::move(table),
                    common);
  rollback_predicted_ =
      StepOf(Lower(schedule_, later, LoweringFor(settings_, IterationsOf(settings_)))) -
      predicted_step;
}

bool ValidationRuns::Keep(const Program& program, const RunReport& report, std::string_view of,
                          VerifiedSchedule* verdict) {
  if (report.failure) {
    note_ = fmt::format("a run {} failed", of);
    verdict->failures.push_back(fmt::format("a run {}: {}", of, report.failure->message));
    return false;
  }
  const Timeline& timeline = report.timelines[0];
  AddFindings(CheckRun(program, timeline, memory_limit_), fmt::format("measured {}", of),
              &verdict->findings);
  memory_matches_ = memory_matches_ && MetersMatch(report, PeaksByRank(program, timeline));
  return true;
}

void ValidationRuns::RunBarrier(TimeNs normal, VerifiedSchedule* verdict) {
  const RunReport report =
      RunFor(settings_, verdict->schedule, *barrier_, cut_.task ? &*cut_.task : nullptr);
  if (!Keep(*barrier_, report, "with a barrier", verdict)) return;
  const std::vector<IterationFigures> figures = FiguresByIteration(*barrier_, report.timelines[0]);
  std::vector<TimeNs> steps;
  for (auto i = static_cast<size_t>(ColdIterations(figures)); i < figures.size(); ++i) {
    steps.push_back(figures[i].step);
  }
  normal_paths_.push_back(normal - MedianOf(steps));
  barrier_steps_.insert(barrier_steps_.end(), steps.begin(), steps.end());
}

void ValidationRuns::RunRejected(VerifiedSchedule* verdict) {
  if (rejected_ == nullptr) return;
  const int rejected = rejected_iteration();
  std::vector<GradientFault> faults;
  if (cut_.task) faults.push_back(FaultBehindAll(*cut_.task, rejected));
  const RunReport report =
      RunFor(settings_, verdict->schedule, *rejected_, cut_.task ? &*cut_.task : nullptr, faults);
  if (!Keep(*rejected_, report, "with a rejected version", verdict)) return;
  const Timeline& timeline = report.timelines[0];
  const std::vector<IterationFigures> figures = FiguresByIteration(*rejected_, timeline);
  const auto normal = std::span(figures).subspan(1, static_cast<size_t>(rejected) - 1);
  rollbacks_.push_back(TimeBetween(*rejected_, timeline, rejected, rejected + 2) -
                       2 * MedianOf(normal).step);
}

std::optional<ValidationCost> ValidationRuns::Sum(const PredictedAndMeasured& normal) const {
  if (barrier_steps_.empty()) return std::nullopt;
  const auto spread = [&](const std::vector<TimeNs>& values) {
    return static_cast<double>(BetweenQuartiles(values)) / static_cast<double>(normal.measured);
  };
  ValidationCost cost{
      .normal_step = normal,
      .barrier_step = {.predicted = barrier_predicted_, .measured = MedianOf(barrier_steps_)},
      .normal_path = {.predicted = normal.predicted - barrier_predicted_,
                      .measured = MedianOf(normal_paths_)},
      .rollback_note = note_,
      .normal_path_spread = spread(normal_paths_),
      .memory_matches = memory_matches_};
  if (rollbacks_.empty()) return cost;
  cost.rollback = {.predicted = rollback_predicted_, .measured = MedianOf(rollbacks_)};
  cost.rollback_spread = spread(rollbacks_);
  return cost;
}

}  // namespace spiritlevel
