#include "cli/verify_run.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/check.h"
#include "calibrate/machine.h"
#include "cli/searching.h"
#include "cli/verify_model.h"
#include "report/waterfall.h"
#include "sim/analysis/deadlock.h"
#include "sim/analysis/summary.h"
#include "sim/engine.h"
#include "sim/schedules/catalog.h"
#include "sim/search/search.h"
#include "verify/clock.h"

namespace spiritlevel {
namespace {

// What a schedule's gradients are looked at for: the second step shows what the first left.
constexpr int kCheckedSteps = 2;

Shape ShapeOf(const Scenario& scenario) {
  return {.ranks = scenario.ranks,
          .micro_batches = scenario.micro_batches,
          .stages_per_rank = scenario.stages_per_rank,
          .group = scenario.group};
}

double SecondsSince(TimeNs begin) { return static_cast<double>(Now() - begin) * 1e-9; }

// "VmHWM" or "VmRSS" of this process, in bytes; nothing where the system does not say.
std::optional<Bytes> StatusBytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  return std::nullopt;
}

// The most this process holds while it lives, above what it held before.
class ResidentMeter {
 public:
  ResidentMeter() {
    ::malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins again from what is there
    before_ = StatusBytes("VmRSS");
  }
  std::optional<Bytes> Most() const {
    const std::optional<Bytes> most = StatusBytes("VmHWM");
    if (!before_ || !most) return std::nullopt;
    return std::max<Bytes>(0, *most - *before_);
  }

 private:
  std::optional<Bytes> before_;
};

// Weighted by the time that each pass takes in the schedule.
double CalibrationSpread(const PlannedSchedule& plan) {
  if (!plan.cut->isolated) return 0;
  double time = 0;
  double spread = 0;
  for (const Op& op : plan.schedule->all_ops()) {
    const auto took = static_cast<double>(plan.cut->costs.duration(op));
    time += took;
    spread += took * plan.cut->isolated->SpreadOf(op.stage, op.pass);
  }
  return time == 0 ? 0 : spread / time;
}

// A row has room for the first line of a problem; a deadlock's picture is for whoever asks for that
// schedule alone.
std::string InOneLine(const InputError& error) {
  std::string line = error.problem().substr(0, error.problem().find('\n'));
  if (line.ends_with(':')) line.pop_back();
  return error.way_out().empty() ? line : fmt::format("{}; {}", line, error.way_out());
}

// The search plays no post-validation. A strict one has a barrier's period, and a speculative one
// that of ranks that step by themselves, but for what the reduction takes beyond a warm-up.
Tail SearchedTail(Tail tail) {
  if (!IsPostValidation(tail)) return tail;
  return tail == Tail::kStrictValidation ? Tail::kBarrier : Tail::kNoTail;
}

bool HasPairs(const Program& program) {
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    for (NodeId id = program.iteration_begin(rank, 0); id < program.iteration_begin(rank, 1);
         ++id) {
      if (program.nodes()[id].kind == NodeKind::kPair) return true;
    }
  }
  return false;
}

// So that the first norm passes it, and no prefix of it does.
double ThresholdBelow(const TrainingRecord& reference) { return reference.at(0).norm * (1 - 1e-9); }

// Empty where all bits are those of the reference. Ranks that contradict each other are no defect
// of this program's own: it is what was looked for.
std::string DifferenceFrom(const TrainingRecord& reference, const TrainingTask& task,
                           const RunReport& report) {
  std::optional<TrainingRecord> record;
  try {
    record = RecordOf(task, report.results);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return Difference(task, reference, *record);
}

std::string PlacementName(const Schedule& schedule, const ScheduleInfo* info) {
  if (info != nullptr) return std::string(info->placement);
  const std::optional<Placement> placement = PlacementOf(schedule);
  return placement ? std::string(Name(placement->form)) : "other";
}

}  // namespace

Verifier::Verifier(const Scenario& scenario, CostsBook* book, const VerifySettings& settings)
    : scenario_(scenario), book_(*book), settings_(settings) {}

void Verifier::Add(const std::string& name) {
  const ScheduleInfo* info = name == kSearched ? nullptr : &FindSchedule(name);
  PlannedSchedule plan;
  plan.verdict.schedule = name;
  try {
    plan.schedule = std::make_unique<const Schedule>(Make(name, plan));
    plan.verdict.placement = PlacementName(*plan.schedule, info);
    plan.verdict.stages = plan.schedule->num_stages();
    Predict(plan);
  } catch (const InputError& error) {
    if (stopped()) throw;
    plan.schedule.reset();
    plan.verdict.reason = InOneLine(error);
    plan.refusal = error;
  }
  planned_.push_back(std::move(plan));
}

Schedule Verifier::Make(const std::string& name, PlannedSchedule& plan) {
  if (name == kSearched) return Search(plan);
  const ScheduleInfo& info = FindSchedule(name);
  const Shape shape = ShapeOf(scenario_);
  // Of an order that hangs on costs, the placement does not.
  Schedule schedule = info.Make(shape);
  plan.cut = &book_.For(schedule.num_stages(), GroupsOf(schedule),
                        /*twins=*/schedule.parameter_copies() > 1);
  return info.hangs_on_costs() ? info.Make(shape, plan.cut->costs) : std::move(schedule);
}

Schedule Verifier::Search(PlannedSchedule& plan) {
  std::vector<Placement> placements = {{PlacementForm::kLinear, scenario_.ranks, 1}};
  if (scenario_.ranks > 1) placements.push_back({PlacementForm::kV, scenario_.ranks, 2});
  const auto ranks = static_cast<size_t>(scenario_.ranks);
  std::optional<SearchAnswer> best;
  std::optional<InputError> refusal;
  for (const Placement& placement : placements) {
    try {
      StageGroups groups;
      for (int rank = 0; rank < placement.ranks && placement.stages_per_rank > 1; ++rank) {
        std::vector<int>& stages = groups.emplace_back();
        for (int chunk = 0; chunk < placement.stages_per_rank; ++chunk) {
          stages.push_back(placement.stage_of(rank, chunk));
        }
      }
      const CutCosts& cut = book_.For(placement.num_stages(), groups);
      const TimeNs begin = Now();
      const Costs costs = WithoutSums(cut.costs);
      const SearchProblem problem{
          .placement = placement,
          .costs = &costs,
          .limits = std::vector<Bytes>(ranks, scenario_.memory_limit.value_or(kNoLimit)),
          .objective = Objective::kStep,
          .tail = SearchedTail(settings_.tail)};
      SearchAnswer answer = spiritlevel::Search(
          problem, {.seconds = settings_.search_seconds / static_cast<double>(placements.size()),
                    .seeds = SeedsFor(scenario_, problem),
                    .stop = settings_.stop});
      searching_seconds_ += SecondsSince(begin);
      if (best && best->value <= answer.value) continue;
      best = std::move(answer);
      plan.cut = &cut;
    } catch (const InputError& error) {
      if (!refusal) refusal = error;
    }
  }
  if (!best) throw *refusal;
  return Schedule(best->orders);
}

void Verifier::Predict(PlannedSchedule& plan) {
  LoweringOptions lowering = LoweringFor(settings_, IterationsOf(settings_));
  const Costs& costs = plan.cut->costs;
  auto program = std::make_shared<const Program>(Lower(*plan.schedule, costs, lowering));
  if (std::optional<std::string> deadlock = FindDeadlock(*program)) {
    throw InputError(std::move(*deadlock), settings_.posting == Posting::kBatched
                                               ? "use --posting ideal or nccl-fifo"
                                               : "use --receives early or deferred");
  }
  lowering.iterations = 1;
  plan.one = std::make_shared<const Program>(Lower(*plan.schedule, costs, lowering));
  plan.predicted = SimulateInOrder(*program);
  const std::vector<Finding> findings = CheckRun(*program, plan.predicted, scenario_.memory_limit);
  for (const Finding& finding : findings) {
    if (finding.rule == "memory_limit") throw InputError(finding.what, "");
  }
  AddFindings(findings, "predicted", &plan.verdict.findings);
  const std::vector<IterationFigures> all = FiguresByIteration(*program, plan.predicted);
  plan.verdict.predicted = MedianOf(std::span(all).subspan(1));
  const MostWaiting waiting = MostWaitingOf(*plan.one);
  plan.verdict.waiting_b_predicted = waiting.for_b;
  plan.verdict.waiting_w_predicted = waiting.for_w;
  plan.verdict.reserves_for_pairs = HasPairs(*plan.one);
  plan.program = std::move(program);
  if (!IsPostValidation(settings_.tail)) return;
  plan.validation = std::make_unique<ValidationRuns>(
      *plan.schedule, *plan.cut, settings_, scenario_.memory_limit, plan.verdict.predicted.step);
}

void Verifier::Run() {
  book_.Freeze();
  const TimeNs begin = Now();
  for (int round = 0; round < settings_.rounds && !stopped(); ++round) {
    RunRound(round);
    rounds_ = round + 1;
  }
  running_seconds_ = SecondsSince(begin);
  for (PlannedSchedule& plan : planned_) Sum(plan);
  if (!settings_.emulated) CheckGradients();
}

// A schedule of which a run failed is not run again: it is wrong by then.
void Verifier::RunRound(int round) {
  const int count = static_cast<int>(planned_.size());
  for (int i = 0; i < count && !stopped(); ++i) {
    PlannedSchedule& plan = planned_[static_cast<size_t>(i)];
    VerifiedSchedule& verdict = plan.verdict;
    if (!plan.schedule || !verdict.failures.empty()) continue;
    if (settings_.observer) {
      settings_.observer(round * count + i, settings_.rounds * count, verdict.schedule);
    }
    RunOnce(plan);
    if (plan.validation == nullptr) continue;
    if (!stopped() && verdict.failures.empty()) {
      plan.validation->RunBarrier(plan.round_step, &verdict);
    }
    if (!stopped() && verdict.failures.empty()) plan.validation->RunRejected(&verdict);
  }
}

void Verifier::RunOnce(PlannedSchedule& plan) {
  const bool in_this_process = settings_.transport == Transport::kThreads && !settings_.emulated;
  std::optional<ResidentMeter> resident;
  if (in_this_process) resident.emplace();
  const RunReport report = RunFor(settings_, plan.verdict.schedule, *plan.program,
                                  plan.cut->task ? &*plan.cut->task : nullptr);
  if (report.failure) {
    plan.verdict.failures.push_back(report.failure->message);
    return;
  }
  if (resident) {
    if (const std::optional<Bytes> most = resident->Most()) {
      plan.verdict.resident_bytes = std::max(plan.verdict.resident_bytes.value_or(0), *most);
    }
  }
  Keep(plan, report);
}

void Verifier::Keep(PlannedSchedule& plan, const RunReport& report) {
  VerifiedSchedule& verdict = plan.verdict;
  const Program& program = *plan.program;
  plan.measured = report.timelines[0];
  AddFindings(CheckRun(program, plan.measured, scenario_.memory_limit), "measured",
              &verdict.findings);
  const std::vector<IterationFigures> figures = FiguresByIteration(program, plan.measured);
  const int cold = ColdIterations(figures);
  for (int i = 0; i < static_cast<int>(figures.size()); ++i) {
    (i < cold ? verdict.cold_steps : verdict.steps).push_back(figures[static_cast<size_t>(i)].step);
  }
  plan.counted.insert(plan.counted.end(), figures.begin() + cold, figures.end());
  plan.round_step = MedianOf(std::span(figures).subspan(static_cast<size_t>(cold))).step;
  const std::vector<PassSample> samples =
      PassSamples(program, plan.measured, cold, static_cast<int>(figures.size()));
  plan.samples.insert(plan.samples.end(), samples.begin(), samples.end());
  verdict.round_steps.push_back(plan.round_step);
  KeepMemory(plan, report);
  ++verdict.runs;
}

void Verifier::KeepMemory(PlannedSchedule& plan, const RunReport& report) {
  VerifiedSchedule& verdict = plan.verdict;
  const std::vector<PeakMemory> peaks = PeaksByRank(*plan.program, plan.measured);
  verdict.memory.resize(peaks.size());
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    VerifiedRank now{.peak = peaks[rank]};
    if (const std::optional<MemoryRecord> memory = MemoryOf(report, rank)) {
      const auto most = [](std::optional<int>& of, int count) {
        of = std::max(of.value_or(0), count);
      };
      most(verdict.waiting_b_measured, memory->most_waiting_for_b);
      most(verdict.waiting_w_measured, memory->most_waiting_for_w);
      now.measured = CategoriesOf(*memory);
      now.handed_over = memory->most_handed_over;
    }
    // What differs in one run stays, whatever the next one has.
    if (verdict.runs == 0 || verdict.memory[rank].matches()) verdict.memory[rank] = now;
  }
}

// What one rank comes to that adds gradients up in a schedule's order. Schedules may share it.
// Where it `rolls_back`, the first norm is just above the threshold: whoever steps before he knows
// all of it is wrong.
const TrainingRecord& Verifier::ReferenceOf(const PlannedSchedule& plan, bool rolls_back) {
  const GradientOrder order = GradientOrder::Of(*plan.schedule);
  for (const Reference& known : references_) {
    if (known.cut == plan.cut && known.order == order && known.rolls_back == rolls_back) {
      return known.record;
    }
  }
  TrainingTask task = *plan.cut->task;
  if (rolls_back) task.clip_norm = ThresholdBelow(ReferenceOf(plan, false));
  const ReferenceOptions options{.steps = kCheckedSteps,
                                 .has_norm = settings_.tail != Tail::kNoTail};
  references_.push_back({plan.cut, order, rolls_back, ReferenceSteps(task, order, options)});
  return references_.back().record;
}

// Recorded runs, which are not timed.
void Verifier::CheckGradients() {
  for (PlannedSchedule& plan : planned_) {
    if (!plan.verdict.ran() || !plan.verdict.failures.empty() || stopped()) continue;
    CheckBits(plan);
    const bool goes_on = plan.verdict.failures.empty() && !stopped();
    if (plan.verdict.validation && goes_on) CheckBitsOfARollback(plan);
  }
  references_.clear();
}

void Verifier::CheckBits(PlannedSchedule& plan) {
  const TrainingTask& task = *plan.cut->task;
  const Program program =
      Lower(*plan.schedule, plan.cut->costs, LoweringFor(settings_, kCheckedSteps));
  const RunReport report = RunRecorded(settings_, plan.verdict.schedule, program, task);
  if (report.failure) {
    plan.verdict.failures.push_back("the recorded run: " + report.failure->message);
    return;
  }
  const std::string difference = DifferenceFrom(ReferenceOf(plan, false), task, report);
  plan.verdict.gradients_equal = difference.empty();
  plan.verdict.gradients_note = difference.substr(0, difference.find('\n'));
}

void Verifier::CheckBitsOfARollback(PlannedSchedule& plan) {
  const bool is_replayed = settings_.tail == Tail::kSpeculativeValidation;
  if (is_replayed && settings_.posting != Posting::kIdeal) return;  // cannot be lowered
  ValidationCost& cost = *plan.verdict.validation;
  if (!(ReferenceOf(plan, false).at(0).norm > 0)) {
    cost.rollback_note = "no version is rejected: all gradients are 0";
    return;
  }
  TrainingTask task = *plan.cut->task;
  task.clip_norm = ThresholdBelow(ReferenceOf(plan, false));
  LoweringOptions lowering = LoweringFor(settings_, kCheckedSteps);
  if (is_replayed) lowering.rejected = {0};
  const Program program = Lower(*plan.schedule, plan.cut->costs, lowering);
  const RunReport report = RunRecorded(settings_, plan.verdict.schedule, program, task);
  if (report.failure) {
    plan.verdict.failures.push_back("the recorded run with a rejected version: " +
                                    report.failure->message);
    return;
  }
  const std::string difference = DifferenceFrom(ReferenceOf(plan, true), task, report);
  cost.rollback_equal = difference.empty();
  if (!difference.empty()) cost.rollback_note = difference.substr(0, difference.find('\n'));
}

void Verifier::Sum(PlannedSchedule& plan) const {
  VerifiedSchedule& verdict = plan.verdict;
  if (!verdict.ran()) {
    if (plan.schedule && verdict.failures.empty()) {
      verdict.reason = "not run before the interrupt";
    }
    return;
  }
  verdict.measured = MedianOf(plan.counted);
  verdict.spread = SpreadOf(verdict.steps);
  if (plan.validation != nullptr) {
    verdict.validation = plan.validation->Sum(
        {.predicted = verdict.predicted.step, .measured = verdict.measured.step});
  }
  const std::vector<IterationFigures> last = FiguresByIteration(*plan.program, plan.measured);
  for (int i = 1; i < static_cast<int>(last.size()); ++i) {
    const auto distance = [&](int k) {
      return std::abs(last[static_cast<size_t>(k)].step - verdict.measured.step);
    };
    if (distance(i) < distance(plan.drawn)) plan.drawn = i;
  }
  // Emulated passes take the very times that were frozen, however these were found.
  verdict.calibration_spread = settings_.emulated ? 0 : CalibrationSpread(plan);
  std::map<std::pair<int, Pass>, std::vector<TimeNs>> by_pass;
  for (const PassSample& sample : plan.samples) {
    by_pass[{sample.stage, sample.pass}].push_back(sample.duration);
  }
  for (const auto& [key, durations] : by_pass) {
    const auto [stage, pass] = key;
    VerifiedPass& row = verdict.passes.emplace_back();
    row = {.stage = stage,
           .pass = pass,
           .calibrated = plan.cut->costs.of(stage, 0).duration(pass),
           .p50 = QuantileOf(durations, 0.5),
           .p95 = QuantileOf(durations, 0.95),
           .samples = std::ssize(durations)};
    if (settings_.emulated || !book_.best_gemm_flops() || row.p50 == 0) continue;
    const double flops =
        GemmFlops(scenario_, plan.cut->task->stages[static_cast<size_t>(stage)], pass);
    if (flops == 0) continue;
    row.gemm_efficiency = flops * 1e9 / static_cast<double>(row.p50) / *book_.best_gemm_flops();
  }
}

Verification Verifier::Take() {
  Verification all{
      .scenario = scenario_.name,
      .ranks = scenario_.ranks,
      .micro_batches = scenario_.micro_batches,
      .memory_limit = scenario_.memory_limit,
      .posting = std::string(Name(settings_.posting)),
      .tail = std::string(Name(settings_.tail)),
      .emulated = settings_.emulated,
      .transport = settings_.transport == Transport::kThreads ? "threads" : "processes",
      .cores = settings_.cores,
      .cpu = DescribeMachine().cpu,
      .date = Today(),
      .iterations = settings_.iterations,
      .rounds = rounds_,
      .costs_from = book_.Source(),
      .calibrating_seconds = book_.seconds(),
      .searching_seconds = searching_seconds_,
      .running_seconds = running_seconds_,
      .best_gemm_flops = book_.best_gemm_flops(),
      .hop_latency = book_.hop_latency().value_or(0),
      .interrupted = stopped(),
      .warnings = scenario_.warnings};
  if (scenario_.model) {
    const ModelRun& run = scenario_.model->run;
    all.micro_batch_size = run.micro_batch_size;
    all.sequence_length = run.sequence_length;
    all.tokens_per_step = scenario_.micro_batches * run.micro_batch_size * run.sequence_length;
  }
  for (const PlannedSchedule& plan : planned_) all.schedules.push_back(plan.verdict);
  return all;
}

std::vector<VerificationDrawing> Verifier::Drawings() const {
  std::vector<VerificationDrawing> drawings;
  for (const PlannedSchedule& plan : planned_) {
    VerificationDrawing& drawing = drawings.emplace_back();
    const std::string measured = settings_.emulated ? "emulated" : "measured";
    drawing.predicted = {.schedule = plan.verdict.schedule + ", predicted"};
    drawing.measured = {.schedule = plan.verdict.schedule + ", " + measured};
    if (!plan.schedule || !plan.verdict.ran()) continue;
    const auto draw = [&](const Timeline& timeline, int iteration, TimeNs step, Result& result,
                          HtmlRun& run) {
      const Timeline cut = OneIteration(*plan.program, timeline, iteration, *plan.one);
      result.summary = Summarize(*plan.one, plan.cut->costs, cut, step);
      result.valid = plan.verdict.findings.empty();
      result.fits = result.valid;
      result.placement = plan.verdict.placement;
      run = PackRun(*plan.one, cut, 1);
    };
    draw(plan.predicted, 1, plan.verdict.predicted.step, drawing.predicted, drawing.predicted_run);
    draw(plan.measured, plan.drawn, plan.verdict.measured.step, drawing.measured,
         drawing.measured_run);
    drawing.predicted_run.waterfall =
        FindWaterfall(*plan.schedule, plan.cut->costs, LoweringFor(settings_, kPeriodIterations),
                      drawing.predicted.summary->step);
  }
  return drawings;
}

}  // namespace spiritlevel
