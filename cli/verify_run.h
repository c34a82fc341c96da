// Runs schedules on real ranks and holds what they take against the prediction.
//
//   Verifier verifier(scenario, &book, settings);
//   for (const std::string& name : names) verifier.Add(name);
//   verifier.Run();                 // interleaved and repeated
//   verifier.Take().schedules;
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verify_costs.h"
#include "cli/verify_settings.h"
#include "cli/verify_validation.h"
#include "report/verification.h"
#include "scenarios/scenario.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "sim/timeline.h"
#include "verify/model_plan_record.h"
#include "verify/reference_step.h"
#include "verify/run.h"

namespace spiritlevel {

inline constexpr std::string_view kSearched = "search";

// One schedule with all that its runs are held against.
struct PlannedSchedule {
  VerifiedSchedule verdict;
  // Nothing of what stands below where it cannot run.
  std::unique_ptr<const Schedule> schedule{};
  const CutCosts* cut = nullptr;
  std::shared_ptr<const Program> program{};  // of a cold iteration, those that count, and a last
  std::shared_ptr<const Program> one{};      // of one iteration
  Timeline predicted{};
  std::vector<IterationFigures> counted{};       // of all runs
  TimeNs round_step = 0;                         // of the last run
  std::vector<PassSample> samples{};             // of these iterations
  Timeline measured{};                           // of the last run
  int drawn = 1;                                 // its iteration that is nearest to the median
  std::unique_ptr<ValidationRuns> validation{};  // under a post-validation
  std::optional<InputError> refusal{};           // why it cannot run, with its way out
};

class Verifier {
 public:
  // Both must outlive it.
  Verifier(const Scenario& scenario, CostsBook* book, const VerifySettings& settings);

  // A schedule of the catalog, or kSearched. Throws InputError for an unknown name; one that cannot
  // run here stands in the answer with its reason.
  void Add(const std::string& name);

  // The runs. Each ends what it can when `stop` turns true; what was run by then counts.
  void Run();

  const std::vector<PlannedSchedule>& planned() const { return planned_; }
  Verification Take();
  // One for each schedule of Take().
  std::vector<VerificationDrawing> Drawings() const;

 private:
  Schedule Make(const std::string& name, PlannedSchedule& plan);
  Schedule Search(PlannedSchedule& plan);
  void Predict(PlannedSchedule& plan);
  void RunOnce(PlannedSchedule& plan);
  void Keep(PlannedSchedule& plan, const RunReport& report);
  void CheckGradients();
  void RunRound(int round);
  void KeepMemory(PlannedSchedule& plan, const RunReport& report);
  void CheckBits(PlannedSchedule& plan);
  void CheckBitsOfARollback(PlannedSchedule& plan);
  const TrainingRecord& ReferenceOf(const PlannedSchedule& plan, bool rolls_back);
  void Sum(PlannedSchedule& plan) const;
  struct Reference {
    const CutCosts* cut = nullptr;
    GradientOrder order;
    bool rolls_back = false;
    TrainingRecord record;
  };

  bool stopped() const { return settings_.stop != nullptr && *settings_.stop; }

  const Scenario& scenario_;
  CostsBook& book_;
  const VerifySettings settings_;
  std::vector<PlannedSchedule> planned_;
  std::list<Reference> references_;  // whose places stay
  double searching_seconds_ = 0;
  double running_seconds_ = 0;
  int rounds_ = 0;
};

}  // namespace spiritlevel
