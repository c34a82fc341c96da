// Verification: what was predicted of schedules, and what came of running them; before it becomes a
// table, JSON or a page.
//
// Predicted and measured figures follow from timelines of the same Program by the same rule
// (report/verification_figures.h). docs/verify.md says what is measured and how.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "report/html.h"
#include "report/provenance.h"
#include "report/result.h"
#include "report/verification_figures.h"
#include "sim/memory.h"
#include "sim/op.h"

namespace spiritlevel {

// A spread above this is no measurement.
inline constexpr double kMostSpread = 0.02;
// The bar that a prediction is held against: the step's error, and the idle share's. Of emulated
// passes, whose times are exact, the step alone.
inline constexpr double kStepBar = 0.05;
inline constexpr double kEmulatedStepBar = 0.02;
inline constexpr double kIdleBar = 0.02;
// How far the process's resident size may lie from the ledger.
inline constexpr double kResidentBar = 0.1;
// Schedules whose steps differ by no more than this may stand in either order.
inline constexpr double kLeastDifference = 0.02;

// One pass of one stage: as it was timed before any run, and in the runs.
struct VerifiedPass {
  int stage = 0;
  Pass pass = Pass::kF;
  TimeNs calibrated = 0;
  TimeNs p50 = 0;
  TimeNs p95 = 0;
  int64_t samples = 0;
  // Of its matrix products: FLOPs over time, against the best rate of a product on such a core.
  // None where passes compute nothing, and of a pass without products.
  std::optional<double> gemm_efficiency{};
};

struct VerifiedRank {
  PeakMemory peak{};  // of emulated passes `live` is the costs' as well, and is shown nowhere
  // The most of each category between nodes, by the work's own meter; nothing where there is none.
  std::optional<MemoryByCategory> measured{};
  // The most of results on their way and of contributions to sums, which neither ledger nor meter
  // count: they are the runtime's by then.
  std::optional<Bytes> handed_over{};

  bool matches() const;  // the meter's peak is the ledger's, and so in each category
};

struct PredictedAndMeasured {
  TimeNs predicted = 0;
  TimeNs measured = 0;

  TimeNs difference() const { return predicted - measured; }
};

// What it costs to validate behind the step: on the normal path against a barrier, whose runs take
// turns with those of the tail, and where one version is rejected.
struct ValidationCost {
  PredictedAndMeasured normal_step{};   // nothing rejected
  PredictedAndMeasured barrier_step{};  // of the same schedule
  // Normal less barrier. What is measured of either in one round is close in time, so this is the
  // median of the rounds' differences and not the difference of two medians.
  PredictedAndMeasured normal_path{};
  // Of one rejected version: from a rank's first op of the iteration that left it to its first op
  // two iterations later, the largest over ranks, less two normal steps of the same run.
  std::optional<PredictedAndMeasured> rollback{};
  std::string rollback_note{};  // why there is none, or what ended a run
  // How far the rounds lie apart, over a normal step.
  double normal_path_spread = 0;
  double rollback_spread = 0;
  // The same steps as a reference that knows the norm first, to the bit, where one was taken back.
  std::optional<bool> rollback_equal{};
  // Live bytes of the barrier's and of the rejected runs.
  bool memory_matches = true;

  bool noisy() const { return std::max(normal_path_spread, rollback_spread) > kMostSpread; }
};

struct VerifiedSchedule {
  std::string schedule;
  // Why it was not run: refused before, or not reached. Empty where it was.
  std::string reason{};
  // What ended a run of it: of the timed ones, of the recorded ones, of those of its validation.
  std::vector<std::string> failures{};
  std::string placement{};
  int stages = 0;

  IterationFigures predicted{};
  IterationFigures measured{};  // medians of the iterations that count, over all runs
  std::vector<TimeNs> steps{};  // of these iterations, run by run
  std::vector<TimeNs> cold_steps{};
  int runs = 0;
  double spread = 0;                  // of the middle half of the steps
  std::vector<TimeNs> round_steps{};  // the median of each run
  // Of the passes that it was predicted from, each over its median, weighted by time; 0 where they
  // were not timed here.
  double calibration_spread = 0;

  // The gradients of the run, bit by bit, against one rank that runs combined backwards. Nothing
  // where there are none, as under emulation.
  std::optional<bool> gradients_equal{};
  std::string gradients_note{};
  // What the checkers say against a timeline of it, the measured ones included.
  std::vector<std::string> findings{};

  // Measured: as the works counted what they kept; nothing where they kept nothing.
  int waiting_b_predicted = 0;
  std::optional<int> waiting_b_measured{};
  int waiting_w_predicted = 0;
  std::optional<int> waiting_w_measured{};
  std::vector<VerifiedRank> memory{};  // by rank
  // It has F&B pairs. A core runs both passes one after the other, so the room that their overlap
  // takes is set aside as the costs have it: there the meter cannot contradict the ledger.
  bool reserves_for_pairs = false;
  // Of the process while it ran, above what it had before; nothing where the system does not say.
  std::optional<Bytes> resident_bytes{};
  std::vector<VerifiedPass> passes{};
  std::optional<ValidationCost> validation{};

  bool ran() const { return runs > 0; }
  // Of all, for a prediction from times that did not hold still is none either.
  bool noisy() const {
    return ran() && std::max({spread, round_spread(), calibration_spread}) > kMostSpread;
  }
  // (largest - smallest) / median: of the medians of single runs, which shows a run that the middle
  // half does not; and of all steps, which shows each outlier.
  double round_spread() const;
  double range() const;
  double step_error() const;       // (predicted - measured) / measured
  double idle_difference() const;  // predicted - measured, of shares
  bool memory_matches() const;     // on every rank
  Bytes ledger_bytes() const;      // peaks of all ranks, summed
  // Resident size over that; nothing where it is not known.
  std::optional<double> resident_ratio() const;
  std::optional<bool> resident_within_bar() const;
};

struct Verification {
  std::string scenario;
  int ranks = 0;
  int micro_batches = 0;
  std::optional<Bytes> memory_limit{};
  std::string posting{};
  std::string tail{};
  // Passes sleep for their time instead of computing.
  bool emulated = false;
  std::string transport{};  // "threads", "processes"
  std::vector<int> cores{};
  std::string cpu{};
  std::string date{};
  int64_t tokens_per_step = 0;   // 0: unknown
  int64_t micro_batch_size = 0;  // sequences; 0: unknown
  int64_t sequence_length = 0;
  int iterations = 0;  // that count, of each run
  int rounds = 0;      // runs of each schedule

  std::string costs_from{};  // "isolated kernels, timed before any run"
  double calibrating_seconds = 0;
  double searching_seconds = 0;
  double running_seconds = 0;
  std::optional<double> best_gemm_flops{};  // a second, on one core
  TimeNs hop_latency = 0;
  bool interrupted = false;
  std::vector<std::string> warnings{};

  std::vector<VerifiedSchedule> schedules{};
};

// Pairs of schedules that ran, were not noisy, and whose measured steps differ by more than
// kLeastDifference.
struct OrderVerdict {
  int pairs = 0;
  // Of these, those of which the prediction has it the other way round: faster first, as measured.
  std::vector<std::pair<std::string, std::string>> wrong{};
};
OrderVerdict JudgeOrder(const Verification& verification);

// Names, the fastest first.
std::vector<std::string> OrderPredicted(const Verification& verification);
std::vector<std::string> OrderMeasured(const Verification& verification);

enum class BarVerdict : uint8_t {
  kNotRun,
  kTooNoisy,
  kWithin,
  kMissed,
};
std::string_view Name(BarVerdict verdict);
BarVerdict JudgeBar(const VerifiedSchedule& schedule, const Verification& verification);
// "step within 5 %, idle share within 2 points"
std::string BarInWords(const Verification& verification);

// Names of schedules by their verdict; of those with a resident size, by that.
struct BarSummary {
  std::vector<std::string> within{};
  std::vector<std::string> missed{};
  std::vector<std::string> too_noisy{};
  std::vector<std::string> resident_within{};
  std::vector<std::string> resident_missed{};
};
BarSummary SumUpBars(const Verification& verification);

// What of a schedule is not what was asked for, each in a word or three; nothing where all is
// right: a run that failed, a finding of a checker, other bits than the reference's or none that
// could be compared, live bytes that are not the ledger's. Not wrong are a schedule that was
// refused before any run, what an interrupt left out, and a bar that was missed.
std::vector<std::string> WrongsOf(const VerifiedSchedule& schedule,
                                  const Verification& verification);

// None of the schedules has any.
bool IsRight(const Verification& verification);

// A row for each schedule, predicted and measured side by side, and what is to be said of all of
// them. With `details` passes and memory, too.
std::string VerificationTable(const Verification& verification, bool details);

std::string VerificationJson(const Verification& verification);

// One iteration of the prediction and one that was measured, for the page's drawings. `measured` of
// a schedule that did not run has no summary.
struct VerificationDrawing {
  Result predicted{};
  HtmlRun predicted_run{};
  Result measured{};
  HtmlRun measured_run{};
};

struct VerificationPageInput {
  const Verification& verification;
  std::vector<VerificationDrawing> drawings{};  // one for each schedule
  std::string scenario_file{};
  std::string scenario_text{};
  std::vector<ProvenanceLine> provenance{};
};

// One file that opens offline; the drawings are those of HtmlReport(). report/verification_page.cc
std::string VerificationPage(const VerificationPageInput& input);

}  // namespace spiritlevel
