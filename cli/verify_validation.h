// What validating behind the step costs one schedule: runs of it with a barrier, and runs in which
// one version is rejected, each held against its prediction.
//
//   ValidationRuns runs(schedule, cut, settings, limit, predicted_step);
//   runs.RunBarrier(step, &verdict);           // once a round, in turn with the tail's own
//   runs.RunRejected(&verdict);
//   runs.Sum({.predicted = ..., .measured = ...});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/verify_costs.h"
#include "cli/verify_settings.h"
#include "report/verification.h"
#include "sim/program.h"
#include "sim/schedule.h"

namespace spiritlevel {

class ValidationRuns {
 public:
  // Predicts. `schedule`, `cut` and `settings`, whose tail is a post-validation, must outlive it.
  ValidationRuns(const Schedule& schedule, const CutCosts& cut, const VerifySettings& settings,
                 std::optional<Bytes> memory_limit, TimeNs predicted_step);

  // What checkers say against a timeline, and what ended a run, is added to `verdict`. `normal` is
  // the step under the tail in the same round.
  void RunBarrier(TimeNs normal, VerifiedSchedule* verdict);
  void RunRejected(VerifiedSchedule* verdict);

  // Nothing unless the barrier has run. `normal` is the step under the tail itself.
  std::optional<ValidationCost> Sum(const PredictedAndMeasured& normal) const;

 private:
  void PredictBarrier();
  // Under a speculative validation forwards are dropped and run again, which the simulator plays.
  void PredictReplay(TimeNs predicted_step);
  // Under a strict one nobody has read the version: it is taken back where it is judged.
  void PredictInPlace(TimeNs predicted_step);
  TimeNs LargestRollback() const;
  // Adds up a cost by stage over the rank's.
  TimeNs OnRank(int rank, const std::vector<TimeNs>& by_stage) const;
  bool Keep(const Program& program, const RunReport& report, std::string_view of,
            VerifiedSchedule* verdict);
  // A cold one and normal ones stand before it, and two that it tells on behind it.
  int rejected_iteration() const { return settings_.iterations; }
  int rejected_iterations() const { return settings_.iterations + 3; }

  const Schedule& schedule_;
  const CutCosts& cut_;
  const VerifySettings& settings_;
  const std::optional<Bytes> memory_limit_;
  std::shared_ptr<const Program> barrier_;
  std::shared_ptr<const Program> rejected_;  // none where it cannot be run
  TimeNs barrier_predicted_ = 0;
  TimeNs rollback_predicted_ = 0;
  std::vector<TimeNs> barrier_steps_;
  std::vector<TimeNs> normal_paths_;  // by round
  std::vector<TimeNs> rollbacks_;     // likewise
  std::string note_;
  bool memory_matches_ = true;
};

}  // namespace spiritlevel
