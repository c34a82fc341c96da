#include "cli/verify_run.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "calibrate/machine.h"
#include "cli/searching.h"
#include "cli/verify_model.h"
#include "report/waterfall.h"
#include "sim/analysis/check_timeline.h"
#include "sim/analysis/deadlock.h"
#include "sim/analysis/summary.h"
#include "sim/engine.h"
#include "sim/event.h"
#include "sim/schedules/catalog.h"
#include "sim/search/search.h"
#include "verify/clock.h"
#include "verify/emulated_work.h"
#include "verify/model_work.h"

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

// Each rule once, with the first that breaks it.
void AddFindings(const std::vector<Finding>& findings, std::string_view of,
                 std::vector<std::string>* all) {
  std::map<std::string, int> times;
  for (const Finding& finding : findings) ++times[finding.rule];
  for (const Finding& finding : findings) {
    const auto at = times.find(finding.rule);
    if (at == times.end()) continue;
    std::string text = fmt::format("{}: {}: {}", of, finding.rule, finding.what);
    if (at->second > 1) text += fmt::format(" (and {} more)", at->second - 1);
    times.erase(at);
    if (std::find(all->begin(), all->end(), text) == all->end()) all->push_back(std::move(text));
  }
}

std::vector<Finding> Check(const Program& program, const Timeline& timeline,
                           std::optional<Bytes> limit) {
  TimelineChecker checker(limit);
  ForEachEvent(program, timeline, program.num_iterations(),
               [&](const Event& event) { checker.Add(event); });
  return checker.Finish();
}

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

MemoryByCategory CategoriesOf(const cpu::BytesByUse& uses) {
  MemoryByCategory memory{};
  std::copy(uses.begin(), uses.end(), memory.begin());
  return memory;
}

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
    plan.schedule = Make(name, plan);
    plan.verdict.placement = PlacementName(*plan.schedule, info);
    plan.verdict.stages = plan.schedule->num_stages();
    Predict(plan);
  } catch (const InputError& error) {
    if (stopped()) throw;
    plan.schedule.reset();
    plan.verdict.reason = error.way_out().empty()
                              ? error.problem()
                              : fmt::format("{}; {}", error.problem(), error.way_out());
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
      const SearchProblem problem{
          .placement = placement,
          .costs = &cut.costs,
          .limits = std::vector<Bytes>(ranks, scenario_.memory_limit.value_or(kNoLimit)),
          .objective = Objective::kStep,
          .tail = settings_.tail};
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
  LoweringOptions lowering{.posting = settings_.posting, .tail = settings_.tail};
  lowering.iterations = settings_.iterations + 2;
  const Costs& costs = plan.cut->costs;
  auto program = std::make_shared<const Program>(Lower(*plan.schedule, costs, lowering));
  if (std::optional<std::string> deadlock = FindDeadlock(*program)) {
    throw InputError(std::move(*deadlock), "use --posting ideal");
  }
  lowering.iterations = 1;
  plan.one = std::make_shared<const Program>(Lower(*plan.schedule, costs, lowering));
  plan.predicted = SimulateInOrder(*program);
  const std::vector<Finding> findings = Check(*program, plan.predicted, scenario_.memory_limit);
  for (const Finding& finding : findings) {
    if (finding.rule == "memory_limit") throw InputError(finding.what, "");
  }
  AddFindings(findings, "predicted", &plan.verdict.findings);
  const std::vector<IterationFigures> all = FiguresByIteration(*program, plan.predicted);
  plan.verdict.predicted = MedianOf(std::span(all).subspan(1));
  const MostWaiting waiting = MostWaitingOf(*plan.one);
  plan.verdict.waiting_b_predicted = waiting.for_b;
  plan.verdict.waiting_w_predicted = waiting.for_w;
  plan.program = std::move(program);
}

void Verifier::Run() {
  book_.Freeze();
  const TimeNs begin = Now();
  const int all = settings_.rounds * static_cast<int>(planned_.size());
  for (int round = 0; round < settings_.rounds && !stopped(); ++round) {
    for (size_t i = 0; i < planned_.size() && !stopped(); ++i) {
      PlannedSchedule& plan = planned_[i];
      if (!plan.schedule || !plan.verdict.reason.empty()) continue;
      if (settings_.observer) {
        settings_.observer(round * static_cast<int>(planned_.size()) + static_cast<int>(i), all,
                           plan.verdict.schedule);
      }
      RunOnce(plan);
    }
    rounds_ = round + 1;
  }
  running_seconds_ = SecondsSince(begin);
  if (!settings_.emulated) CheckGradients();
  for (PlannedSchedule& plan : planned_) Sum(plan);
}

void Verifier::RunOnce(PlannedSchedule& plan) {
  WorkFactory works = settings_.emulated ? WorkFactory([](const RankContext& context) {
    return std::make_shared<EmulatedWork>(context);
  })
                                         : ModelWorks(*plan.cut->task);
  if (settings_.wrap) works = settings_.wrap(std::move(works));
  const bool in_this_process = settings_.transport == Transport::kThreads && !settings_.emulated;
  std::optional<ResidentMeter> resident;
  if (in_this_process) resident.emplace();
  const RunReport report = RunProgram(*plan.program, works,
                                      {.transport = settings_.transport,
                                       .cores = settings_.cores,
                                       .emulate_delays = settings_.emulated});
  if (report.failure) {
    plan.verdict.reason = fmt::format("the run ended: {}", report.failure->message);
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
  AddFindings(Check(program, plan.measured, scenario_.memory_limit), "measured", &verdict.findings);
  const std::vector<IterationFigures> figures = FiguresByIteration(program, plan.measured);
  const int cold = ColdIterations(figures);
  for (int i = 0; i < static_cast<int>(figures.size()); ++i) {
    (i < cold ? verdict.cold_steps : verdict.steps).push_back(figures[static_cast<size_t>(i)].step);
  }
  plan.counted.insert(plan.counted.end(), figures.begin() + cold, figures.end());
  const std::vector<PassSample> samples =
      PassSamples(program, plan.measured, cold, static_cast<int>(figures.size()));
  plan.samples.insert(plan.samples.end(), samples.begin(), samples.end());
  verdict.memory.resize(static_cast<size_t>(program.num_ranks()));
  const std::vector<PeakMemory> peaks = PeaksByRank(program, plan.measured);
  for (size_t rank = 0; rank < verdict.memory.size(); ++rank) {
    VerifiedRank& of_rank = verdict.memory[rank];
    of_rank.peak = {.ledger = peaks[rank].ledger,
                    .live = std::max(of_rank.peak.live, peaks[rank].live),
                    .most = peaks[rank].most};
    if (settings_.emulated || report.results[rank].size() == 0) continue;
    const MemoryRecord memory = ParseRankRecord(report.results[rank].bytes()).memory;
    of_rank.measured = CategoriesOf(memory.peak_by_use);
    verdict.waiting_b_measured = std::max(verdict.waiting_b_measured, memory.most_waiting_for_b);
    verdict.waiting_w_measured = std::max(verdict.waiting_w_measured, memory.most_waiting_for_w);
  }
  if (settings_.emulated) {
    verdict.waiting_b_measured = verdict.waiting_b_predicted;
    verdict.waiting_w_measured = verdict.waiting_w_predicted;
  }
  ++verdict.runs;
}

// What one rank comes to that adds gradients up in a schedule's order. Schedules may share it.
const TrainingRecord& Verifier::ReferenceOf(const PlannedSchedule& plan) {
  const GradientOrder order = GradientOrder::Of(*plan.schedule);
  for (const Reference& known : references_) {
    if (known.cut == plan.cut && known.order == order) return known.record;
  }
  const ReferenceOptions options{.steps = kCheckedSteps,
                                 .has_norm = settings_.tail != Tail::kNoTail};
  references_.push_back({plan.cut, order, ReferenceSteps(*plan.cut->task, order, options)});
  return references_.back().record;
}

// Recorded runs, which are not timed.
void Verifier::CheckGradients() {
  for (PlannedSchedule& plan : planned_) {
    if (!plan.verdict.ran() || stopped()) continue;
    const TrainingTask& task = *plan.cut->task;
    const Program program =
        Lower(*plan.schedule, plan.cut->costs,
              {.posting = settings_.posting, .tail = settings_.tail, .iterations = kCheckedSteps});
    const RunReport report =
        RunProgram(program, ModelWorks(task, {.record = true}),
                   {.transport = settings_.transport, .cores = settings_.cores});
    if (report.failure) {
      plan.verdict.gradients_note = "the recorded run ended: " + report.failure->message;
      continue;
    }
    const std::string difference =
        Difference(task, ReferenceOf(plan), RecordOf(task, report.results));
    plan.verdict.gradients_equal = difference.empty();
    plan.verdict.gradients_note = difference.substr(0, difference.find('\n'));
  }
  references_.clear();
}

void Verifier::Sum(PlannedSchedule& plan) const {
  VerifiedSchedule& verdict = plan.verdict;
  if (!verdict.ran()) {
    if (plan.schedule && verdict.reason.empty()) verdict.reason = "not run before the interrupt";
    return;
  }
  verdict.measured = MedianOf(plan.counted);
  verdict.spread = SpreadOf(verdict.steps);
  const std::vector<IterationFigures> last = FiguresByIteration(*plan.program, plan.measured);
  for (int i = 1; i < static_cast<int>(last.size()); ++i) {
    const auto distance = [&](int k) {
      return std::abs(last[static_cast<size_t>(k)].step - verdict.measured.step);
    };
    if (distance(i) < distance(plan.drawn)) plan.drawn = i;
  }
  verdict.calibration_spread = CalibrationSpread(plan);
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
    drawing.predicted_run.waterfall = FindWaterfall(
        *plan.schedule, plan.cut->costs,
        {.posting = settings_.posting, .tail = settings_.tail, .iterations = kPeriodIterations},
        drawing.predicted.summary->step);
  }
  return drawings;
}

}  // namespace spiritlevel
