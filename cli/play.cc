#include "cli/play.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "base/available_memory.h"
#include "base/check.h"
#include "base/utf8.h"
#include "cli/certify.h"
#include "cli/output.h"
#include "cli/size.h"
#include "models/slices.h"
#include "report/waterfall.h"
#include "scenarios/torch_csv.h"
#include "sim/analysis/check_schedule.h"
#include "sim/analysis/check_timeline.h"
#include "sim/analysis/deadlock.h"
#include "sim/engine.h"
#include "sim/evaluate.h"
#include "sim/event.h"

namespace spiritlevel {
namespace {

// A row has room for the first line of a problem; a deadlock's picture is for whoever asks for that
// schedule alone.
std::string InOneLine(const InputError& error) {
  std::string line = error.problem().substr(0, error.problem().find('\n'));
  if (line.ends_with(':')) line.pop_back();
  return error.way_out().empty() ? line : fmt::format("{}; {}", line, error.way_out());
}

// "linear" and so on, by what the schedule's stages show.
std::string PlacementOf(const ScheduleChoice& choice, const ScheduleVerdict& verdict) {
  if (choice.info != nullptr) return std::string(choice.info->placement);
  switch (verdict.placement) {
    case PlacementKind::kLinear:
      return "linear";
    case PlacementKind::kLooped:
      return "looped";
    case PlacementKind::kV:
      return "V";
    case PlacementKind::kBidirectional:
      return "bidirectional";
    case PlacementKind::kOther:
      break;
  }
  return "other";
}

// What the flat evaluator can play, which then finds the period; else it is read off the timeline.
bool HasFlatPeriod(const PlayOptions& options, bool sums_gradients) {
  return options.posting == Posting::kIdeal && !IsPostValidation(options.tail) && !sums_gradients;
}

int IterationsKept(const PlayOptions& options, bool sums_gradients) {
  return HasFlatPeriod(options, sums_gradients) ? options.iterations
                                                : std::max(options.iterations, kPeriodIterations);
}

// Before there is a schedule, of which it depends whether copies of a stage, or its ends, are
// apart.
bool MaySumGradients(const Scenario& scenario) {
  return scenario.model ||
         scenario.slices.sums != SharedSums{.buckets = scenario.slices.sums.buckets};
}

TimeNs PeriodUnder(const Schedule& schedule, const Costs& costs, const PlayOptions& options,
                   const Program& program, const Timeline& timeline) {
  if (!HasFlatPeriod(options, HasGradientSums(schedule, costs))) {
    return PeriodOf(program, timeline);
  }
  const int iterations = std::max(options.iterations, kPeriodIterations);
  return Evaluator(costs).Evaluate(schedule, options.tail, iterations).period;
}

LoweringOptions LoweringOf(const Schedule& schedule, const Costs& costs,
                           const PlayOptions& options) {
  return {.posting = options.posting,
          .tail = options.tail,
          .iterations = IterationsKept(options, HasGradientSums(schedule, costs)),
          .receives = options.receives,
          .channels = options.channels,
          .weight_grads = options.weight_grads};
}

std::shared_ptr<const Program> MakeProgram(const Schedule& schedule, const Costs& costs,
                                           const PlayOptions& options) {
  auto program =
      std::make_shared<Program>(Lower(schedule, costs, LoweringOf(schedule, costs, options)));
  if (options.posting == Posting::kIdeal) return program;  // whose Programs always run
  if (std::optional<std::string> deadlock = FindDeadlock(*program)) {
    throw InputError(std::move(*deadlock), options.posting == Posting::kBatched
                                               ? "use --posting ideal or nccl-fifo"
                                               : "use --receives early or deferred");
  }
  return program;
}

// "dualpipe needs ..." names its schedule already.
InputError NamedError(const ScheduleChoice& choice, const InputError& error) {
  return error.problem().starts_with(choice.name) ? error : error.At(choice.name);
}

void Explain(std::string_view what, std::string& reason) {
  if (what.empty()) return;
  if (!reason.empty()) reason += "; ";
  reason += what;
}

// The same run with one iteration of the steady state rejected and replayed.
struct Replay {
  int rejected = 0;
  std::shared_ptr<const Program> program;
  std::shared_ptr<const Timeline> timeline;
};

Replay PlayRejected(const Schedule& schedule, const Costs& costs, const PlayOptions& options) {
  LoweringOptions lowering = LoweringOf(schedule, costs, options);
  Replay replay{.rejected = lowering.iterations - 3, .program = {}, .timeline = {}};
  lowering.rejected = {replay.rejected};
  replay.program = std::make_shared<const Program>(Lower(schedule, costs, lowering));
  replay.timeline = std::make_shared<const Timeline>(SimulateInOrder(*replay.program));
  return replay;
}

// By rank; empty where there are none.
std::vector<Bytes> LimitsOf(const Scenario& scenario, const PlayOptions& options) {
  if (!options.limits.empty() || !scenario.memory_limit) return options.limits;
  return std::vector<Bytes>(static_cast<size_t>(scenario.ranks), *scenario.memory_limit);
}

bool Fits(const Summary& summary, const std::vector<Bytes>& limits) {
  return limits.empty() || std::equal(limits.begin(), limits.end(), summary.peak_bytes.begin(),
                                      std::greater_equal<>());
}

// What the checkers say about the run: validity, and whether it fits.
class Judge {
 public:
  Judge(const Program& program, const Timeline& timeline, const std::vector<Bytes>& limits)
      : program_(program), timeline_(timeline), limits_(limits) {}

  void RunFirst(const ScheduleVerdict& verdict, Result& result) {
    result.valid = verdict.legal();
    for (const Finding& finding : verdict.findings) Explain(finding.what, result.reason);
    result.fits = true;
    Run(result);
  }

  // Adds what this run shows to what is known.
  void Run(Result& result) {
    TimelineChecker timeline_checker(limits_);
    AccountsChecker accounts_checker;
    ForEachEvent(program_, timeline_, program_.num_iterations(), [&](const Event& event) {
      timeline_checker.Add(event);
      if (event.iteration == 0) accounts_checker.Add(event);
    });
    for (const Finding& finding : timeline_checker.Finish()) Take(finding, result);
    for (const Finding& finding : accounts_checker.Finish(result.summary->stalls)) {
      Take(finding, result);
    }
    result.fits = result.fits && result.valid;
  }

 private:
  static void Take(const Finding& finding, Result& result) {
    const bool memory = finding.rule == "memory_limit";
    // One rank that does not fit is reason enough; the fullest stands in the table.
    if (!memory || result.fits) Explain(finding.what, result.reason);
    (memory ? result.fits : result.valid) = false;
  }

  const Program& program_;
  const Timeline& timeline_;
  const std::vector<Bytes>& limits_;
};

ClosedForm FormulaFor(const ScheduleChoice& choice, const Shape& shape, const Costs& costs) {
  const Costs::Common& common = costs.common();
  const bool holds = choice.info != nullptr && costs.stages_are_equal() &&
                     !costs.varies_by_micro_batch() && common.launch == 0 && common.hop.busy == 0;
  return holds ? choice.info->Formula(shape, costs.of(0, 0), common.hop.latency) : ClosedForm{};
}

Shape ShapeOf(const Scenario& scenario) {
  return {.ranks = scenario.ranks,
          .micro_batches = scenario.micro_batches,
          .stages_per_rank = scenario.stages_per_rank,
          .group = scenario.group};
}

// The least time a stage's ops take for a micro-batch, however they are run.
TimeNs LeastWork(const StageCost& cost) {
  return std::min({cost.forward + cost.input_grad + cost.weight_grad,
                   cost.forward + cost.fused_backward, cost.overlapped});
}

// Of all micro-batches, with what the optimizer step takes for each stage's own parameters.
struct Work {
  Int128 all = 0;  // with the steps
  Int128 steps = 0;
  Int128 slowest = 0;
  Int128 weight_grad = 0;
  Int128 backward = 0;
};

Work WorkOf(const Costs& costs) {
  Work work;
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    const std::vector<TimeNs>& steps = costs.common().optimizer_by_stage;
    Int128 of_stage = steps.empty() ? 0 : steps[static_cast<size_t>(stage)];
    work.steps += of_stage;
    for (int i = 0; i < costs.num_micro_batches(); ++i) {
      const StageCost& cost = costs.of(stage, i);
      of_stage += LeastWork(cost);
      work.weight_grad += cost.weight_grad;
      work.backward += cost.input_grad + cost.weight_grad;
    }
    work.all += of_stage;
    work.slowest = std::max(work.slowest, of_stage);
  }
  // Where both ends are on one rank, an embedding that they share is stepped once.
  if (costs.num_stages() > 1) {
    work.all -= costs.common().tied_optimizer;
    work.steps -= costs.common().tied_optimizer;
  }
  return work;
}

// One stage a rank, or as many as the scenario has lists for.
Costs CostsOfAnyCut(const Scenario& scenario) {
  if (!scenario.model) return CostsFor(scenario, scenario.slices.rows);
  const ModelForm& model = *scenario.model;
  if (model.split == Split::kGiven) {
    return CostsFor(scenario, static_cast<int>(model.run.layers_per_stage.size()));
  }
  if (model.recompute_by_stage) {
    return CostsFor(scenario, static_cast<int>(model.run.recompute.size()));
  }
  return CostsFor(scenario, scenario.ranks);
}

// As many as there are cores, or fewer if memory does not hold that many of the largest.
size_t RunsAtOnce(const Scenario& scenario, const std::vector<ScheduleChoice>& choices,
                  const PlayOptions& options) {
  const int iterations = IterationsKept(options, MaySumGradients(scenario));
  Bytes largest = 1;
  for (const ScheduleChoice& choice : choices) {
    largest = std::max(largest, MemoryOfRun(scenario, choice, iterations));
  }
  constexpr int kMostCopies = 2;
  largest += MemoryOfParts(CostsOfAnyCut(scenario), kMostCopies, options.weight_grads, iterations);
  const auto held = static_cast<size_t>(std::max<Bytes>(1, AvailableMemory() / largest));
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  return std::min({held, cores, choices.size()});
}

}  // namespace

void LimitMemory(const std::vector<Bytes>& limits, Scenario* scenario, PlayOptions* options) {
  const bool one_for_all =
      std::all_of(limits.begin(), limits.end(), [&](Bytes limit) { return limit == limits[0]; });
  scenario->memory_limit.reset();
  options->limits.clear();
  if (one_for_all) {
    scenario->memory_limit = limits[0];
  } else {
    options->limits = limits;
  }
}

ScheduleChoice NamedSchedule(std::string_view name) {
  return {.name = std::string(name), .info = &FindSchedule(name)};
}

ScheduleChoice ScheduleFromFile(const std::string& file) {
  CsvSchedule csv = LoadTorchCsv(file);
  return {.name = Shown(Printable(std::filesystem::path(file).filename().string())),
          .info = nullptr,
          .orders = std::move(csv.orders),
          .notes = std::move(csv.notes)};
}

namespace {

Schedule FromFile(const Orders& orders) {
  try {
    return Schedule(orders);
  } catch (const InputError& error) {
    throw InputError(error.problem(),
                     "`spiritlevel check FILE` names everything that is wrong with it");
  }
}

// Before there is a schedule: by its placement.
StageGroups GroupsOf(const ScheduleInfo& info, const Shape& shape) {
  if (info.stages_per_rank(shape) == 1) return {};
  const int stages = shape.ranks * info.stages_per_rank(shape);
  StageGroups groups(static_cast<size_t>(shape.ranks));
  for (int stage = 0; stage < stages; ++stage) {
    const int turn = stage / shape.ranks;
    const int along = stage % shape.ranks;
    const bool back = info.placement == "V" && turn % 2 == 1;
    groups[static_cast<size_t>(back ? shape.ranks - 1 - along : along)].push_back(stage);
  }
  return groups;
}

Costs CostsOf(const Scenario& scenario, const ScheduleInfo& info) {
  const Shape shape = ShapeOf(scenario);
  return CostsFor(scenario, shape.ranks * info.stages_per_rank(shape), GroupsOf(info, shape));
}

}  // namespace

Schedule MakeSchedule(const Scenario& scenario, const ScheduleChoice& choice) {
  if (choice.info != nullptr) {
    const Shape shape = ShapeOf(scenario);
    if (!choice.info->hangs_on_costs()) return choice.info->Make(shape);
    return choice.info->Make(shape, CostsOf(scenario, *choice.info));
  }
  Schedule schedule = FromFile(*choice.orders);
  if (schedule.num_ranks() != scenario.ranks ||
      schedule.num_micro_batches() != scenario.micro_batches) {
    throw InputError(fmt::format("is for {} ranks and {} micro-batches, the scenario for {} and {}",
                                 schedule.num_ranks(), schedule.num_micro_batches(), scenario.ranks,
                                 scenario.micro_batches),
                     "change `ranks` and `micro_batches` in the scenario, or take another file");
  }
  return schedule;
}

namespace {

Schedule ScheduleThatFits(const Scenario& scenario, const ScheduleChoice& choice,
                          const PlayOptions& options) {
  RefuseWhatDoesNotFit(scenario, choice, IterationsKept(options, MaySumGradients(scenario)));
  return MakeSchedule(scenario, choice);
}

// A schedule with its costs, both fit to be played.
struct Playable {
  Schedule schedule;
  Costs costs;
};

Playable MakePlayable(const Scenario& scenario, const ScheduleChoice& choice,
                      const PlayOptions& options) {
  Schedule schedule = ScheduleThatFits(scenario, choice, options);
  Costs costs = CostsFor(scenario, schedule);
  RefuseOverflow(schedule, costs, std::max(options.iterations, kPeriodIterations));
  RefuseTooManyParts(schedule, costs, options.weight_grads,
                     IterationsKept(options, HasGradientSums(schedule, costs)));
  return {std::move(schedule), std::move(costs)};
}

// Our own schedules and engines must pass our own checker.
void CheckOurOwn(const Result& result) {
  if (!result.named || result.valid) return;
  throw InvariantError(fmt::format("the checker refuses {}: {}", result.schedule, result.reason));
}

bool SplitsBackwards(const Schedule& schedule) {
  const std::span<const Op> ops = schedule.all_ops();
  return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.pass == Pass::kB; });
}

bool RecomputesOnce(const Scenario& scenario) {
  if (!scenario.model) return false;
  const std::vector<Recompute>& kinds = scenario.model->run.recompute;
  return std::find(kinds.begin(), kinds.end(), Recompute::kFull) != kinds.end();
}

// What is known of a run before it is judged.
void DescribePlacement(const Scenario& scenario, const Schedule& schedule, Result& result) {
  result.stages = schedule.num_stages();
  const int last = schedule.num_stages() - 1;
  result.ends_apart = schedule.rank_of(0, 0) != schedule.rank_of(last, 0);
  for (const int stage : schedule.stages_of(schedule.rank_of(0, 0))) {
    if (stage == last) result.ends_apart = false;
  }
  if (scenario.model) {
    result.layers_per_stage = LayersFor(scenario, schedule.num_stages(), GroupsOf(schedule));
  }
  result.recomputes_in_split = RecomputesOnce(scenario) && SplitsBackwards(schedule);
}

void AddNotes(const Scenario& scenario, const ScheduleChoice& choice, Result& result) {
  for (const std::string& note : choice.notes) Explain(note, result.reason);
  if (choice.info != nullptr) Explain(choice.info->Note(ShapeOf(scenario)), result.reason);
  if (!result.recomputes_in_split) return;
  Explain(
      "recomputation beside a split backward: a runtime that walks the graph for B and again for W "
      "recomputes twice and is slower than 1f1b; recompute: \"full-again-in-w\" shows what that "
      "takes",
      result.reason);
}

// What a run comes to in which versions are rejected, and what it looks like.
Replay Reject(const Schedule& schedule, const Costs& costs, const PlayOptions& options,
              Result& result) {
  Replay replay = PlayRejected(schedule, costs, options);
  Summary& summary = *result.summary;
  const TimeNs period = PeriodOf(*replay.program, *replay.timeline);
  summary.step = ExpectedPeriod(summary.period, period, options.rejection);
  result.rejection =
      Rejection{.probability = options.rejection, .period = period, .expected = summary.step};
  return replay;
}

void PlayOut(const Scenario& scenario, const ScheduleChoice& choice, const PlayOptions& options,
             SpanCertifier* certifier, Played& played) {
  const auto [schedule, costs] = MakePlayable(scenario, choice, options);
  const std::shared_ptr<const Program> program = MakeProgram(schedule, costs, options);
  const auto timeline = std::make_shared<const Timeline>(SimulateInOrder(*program));
  Result& result = played.result;
  result.summary = Summarize(*program, costs, *timeline,
                             PeriodUnder(schedule, costs, options, *program, *timeline));
  DescribePlacement(scenario, schedule, result);
  AddNotes(scenario, choice, result);
  if (!options.judge) {
    SPIRITLEVEL_CHECK(result.named, "an order of somebody else's is judged");
    result.valid = true;
    result.fits = Fits(*result.summary, LimitsOf(scenario, options));
    if (options.rejection > 0) Reject(schedule, costs, options, result);
    return;
  }
  const ScheduleVerdict verdict = CheckSchedule(schedule.ToOrders());
  result.placement = PlacementOf(choice, verdict);
  result.stages_per_rank = verdict.chunks_per_rank;
  if (options.posting == Posting::kIdeal) {
    result.closed_form = FormulaFor(choice, ShapeOf(scenario), costs);
  }
  const std::vector<Bytes> limits = LimitsOf(scenario, options);
  Judge(*program, *timeline, limits).RunFirst(verdict, result);
  played.program = program;
  played.timeline = timeline;
  int shown = options.iterations;
  if (options.rejection > 0) {
    const Replay replay = Reject(schedule, costs, options, result);
    Judge(*replay.program, *replay.timeline, limits).Run(result);
    played.program = replay.program;
    played.timeline = replay.timeline;
    played.rejected = replay.rejected;
    shown = std::max(shown, replay.rejected + 2);  // it is replayed in the next
  }
  CheckOurOwn(result);
  if (certifier != nullptr) certifier->Certify(schedule, options, result);
  if (!options.pack_html) return;
  played.html = PackRun(*played.program, *played.timeline, shown);
  played.html.waterfall =
      FindWaterfall(schedule, costs, LoweringOf(schedule, costs, options), result.summary->step);
}

}  // namespace

Played Play(const Scenario& scenario, const ScheduleChoice& choice, const PlayOptions& options,
            SpanCertifier* certifier) {
  Played played{.result = {.schedule = choice.name, .named = choice.info != nullptr},
                .error = {},
                .program = {},
                .timeline = {}};
  if (choice.info != nullptr) {
    played.result.placement = choice.info->placement;
    played.result.stages_per_rank = choice.info->stages_per_rank(ShapeOf(scenario));
  }
  try {
    PlayOut(scenario, choice, options, certifier, played);
  } catch (const InputError& error) {
    played.error = NamedError(choice, error);
    played.result.reason = InOneLine(error);
    played.result.certificate_note = "it cannot run";
  }
  return played;
}

void ThrowIfItCannotRun(const Scenario& scenario, const ScheduleChoice& choice,
                        const PlayOptions& options) {
  try {
    const bool hangs_on_costs = choice.info != nullptr && choice.info->hangs_on_costs();
    if (scenario.model && !scenario.model->profile && !hangs_on_costs) {
      RefuseStages(scenario, ScheduleThatFits(scenario, choice, options).num_stages());
      return;
    }
    const auto [schedule, costs] = MakePlayable(scenario, choice, options);
    if (options.posting != Posting::kIdeal) MakeProgram(schedule, costs, options);
  } catch (const InputError& error) {
    throw NamedError(choice, error);
  }
}

Comparison DescribeScenario(const Scenario& scenario, const PlayOptions& options) {
  Comparison comparison{.scenario = scenario.name,
                        .ranks = scenario.ranks,
                        .micro_batches = scenario.micro_batches,
                        .memory_limit = scenario.memory_limit,
                        .rank_limits = options.limits,
                        .posting = std::string(Name(options.posting)),
                        .tail = std::string(Name(options.tail)),
                        .receives = std::string(Name(options.receives)),
                        .channels = std::string(Name(options.channels)),
                        .weight_grads = std::string(Name(options.weight_grads)),
                        .rejection = options.rejection,
                        .warnings = scenario.warnings};
  const Costs costs = CostsOfAnyCut(scenario);
  const Costs::Common& common = costs.common();
  const Work work = WorkOf(costs);
  comparison.work_per_rank = static_cast<TimeNs>(work.all / scenario.ranks) + common.optimizer;
  comparison.optimizer_per_rank =
      static_cast<TimeNs>(work.steps / scenario.ranks) + common.optimizer;
  // Of a rank-sized piece that is as slow as the slowest stage.
  comparison.slowest_stage_work =
      static_cast<TimeNs>(work.slowest * costs.num_stages() / scenario.ranks) + common.optimizer;
  comparison.weight_grad_share = work.backward == 0 ? 0
                                                    : static_cast<double>(work.weight_grad) /
                                                          static_cast<double>(work.backward);
  comparison.transfer = common.hop.latency + common.hop.busy;
  return comparison;
}

Compared Compare(const Scenario& scenario, const std::vector<ScheduleChoice>& choices,
                 const PlayOptions& options, const std::function<bool()>& skips_rest) {
  Comparison comparison = DescribeScenario(scenario, options);
  // 1F1B is played even when nobody asked: speed-up and advice are against it.
  std::vector<ScheduleChoice> all = choices;
  const auto is_reference = [](const ScheduleChoice& c) {
    return c.info != nullptr && c.info->name == "1f1b";
  };
  comparison.whole_catalog =
      std::all_of(AllSchedules().begin(), AllSchedules().end(), [&](const ScheduleInfo& info) {
        return std::any_of(choices.begin(), choices.end(),
                           [&](const ScheduleChoice& c) { return c.info == &info; });
      });
  if (std::none_of(all.begin(), all.end(), is_reference)) all.push_back(NamedSchedule("1f1b"));

  std::vector<Result> results(all.size());
  std::vector<HtmlRun> runs(all.size());
  std::vector<std::exception_ptr> errors(all.size());
  Progress progress(static_cast<int>(all.size()));
  SpanCertifier certifier(scenario, options.limits);
  std::vector<char> skipped(all.size(), false);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      try {
        skipped[i] = i > 0 && !is_reference(all[i]) && skips_rest && skips_rest();
        if (skipped[i]) continue;
        Played played = Play(scenario, all[i], options, &certifier);
        results[i] = std::move(played.result);
        runs[i] = std::move(played.html);
      } catch (...) {
        errors[i] = std::current_exception();
      }
      progress.Done();
    }
  };
  std::vector<std::jthread> helpers;
  const size_t at_once = RunsAtOnce(scenario, all, options);
  for (size_t i = 1; i < at_once; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  const auto reference = std::find_if(all.begin(), all.end(), is_reference) - all.begin();
  if (results[static_cast<size_t>(reference)].summary) {
    comparison.one_f_one_b = results[static_cast<size_t>(reference)];
  }
  Compared compared;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (skipped[i]) {
      compared.left_out.push_back(choices[i].name);
      continue;
    }
    comparison.results.push_back(std::move(results[i]));
    compared.runs.push_back(std::move(runs[i]));
  }
  compared.comparison = std::move(comparison);
  return compared;
}

}  // namespace spiritlevel
