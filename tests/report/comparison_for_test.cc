#include "tests/report/comparison_for_test.h"

#include <algorithm>

#include "base/check.h"
#include "sim/engine.h"

namespace spiritlevel {
namespace {

Shape ShapeOf(const ScenarioForTest& s) {
  return {.ranks = s.ranks, .micro_batches = s.micro_batches, .stages_per_rank = s.stages_per_rank};
}

TimeNs WorkOf(const Costs& costs, int stage) {
  TimeNs work = 0;
  for (int i = 0; i < costs.num_micro_batches(); ++i) {
    const StageCost& c = costs.of(stage, i);
    work += c.forward + std::min(c.fused_backward, c.input_grad + c.weight_grad);
  }
  return work;
}

void AddFacts(const ScenarioForTest& scenario, Comparison& comparison) {
  const Costs costs = CostsForStages(SlicesOf(scenario), scenario.ranks);
  TimeNs weight_grads = 0, backwards = 0, work = 0;
  for (int stage = 0; stage < scenario.ranks; ++stage) {
    const TimeNs own = WorkOf(costs, stage);
    work += own;
    comparison.slowest_stage_work = std::max(comparison.slowest_stage_work, own);
    for (int i = 0; i < scenario.micro_batches; ++i) {
      weight_grads += costs.of(stage, i).weight_grad;
      backwards += costs.of(stage, i).weight_grad + costs.of(stage, i).input_grad;
    }
  }
  comparison.work_per_rank = DivideHalfUp(work, scenario.ranks) + scenario.common.optimizer;
  comparison.optimizer_per_rank = scenario.common.optimizer;
  comparison.weight_grad_share = static_cast<double>(weight_grads) / static_cast<double>(backwards);
  comparison.transfer = scenario.common.hop.latency + scenario.common.hop.busy;
}

}  // namespace

ModelSlices SlicesOf(const ScenarioForTest& s) {
  ModelSlices slices;
  slices.ranks = s.ranks;
  slices.micro_batches = s.micro_batches;
  slices.common = s.common;
  slices.uniform = s.rows.empty();
  slices.table = s.rows.empty() ? std::vector<StageCost>{s.cost} : s.rows;
  slices.rows = s.rows.empty() ? s.ranks : static_cast<int>(s.rows.size());
  for (StageCost& cost : slices.table) cost.fused_backward = cost.overlapped = kDerived;
  return slices;
}

PlayedForTest Play(const ScenarioForTest& scenario, std::string_view name) {
  const Schedule schedule = FindSchedule(name).Make(ShapeOf(scenario));
  const Costs costs = CostsForStages(SlicesOf(scenario), schedule.num_stages());
  Program program =
      Lower(schedule, costs, {.tail = scenario.tail, .iterations = kPeriodIterations});
  Timeline timeline = SimulateInOrder(program);
  return {std::move(program), std::move(timeline)};
}

Result ResultOf(const ScenarioForTest& scenario, std::string_view name) {
  const ScheduleInfo& info = FindSchedule(name);
  const Shape shape = ShapeOf(scenario);
  Result result{.schedule = std::string(name)};
  result.placement = info.placement;
  result.stages_per_rank = info.stages_per_rank(shape);
  try {
    const PlayedForTest played = Play(scenario, name);
    const Costs costs = CostsForStages(SlicesOf(scenario), played.program.num_stages());
    result.summary = Summarize(played.program, costs, played.timeline);
    result.valid = true;
    result.fits = result.summary->fits(scenario.memory_limit);
    result.reason = info.Note(shape);
    if (costs.stages_are_equal()) {
      result.closed_form = info.Formula(shape, costs.of(0, 0), scenario.common.hop.latency);
    }
  } catch (const InputError& error) {
    result.reason = error.what();
  }
  return result;
}

Comparison Compare(const ScenarioForTest& scenario, std::vector<std::string> schedules) {
  if (schedules.empty()) {
    for (const ScheduleInfo& info : AllSchedules()) schedules.emplace_back(info.name);
  }
  Comparison comparison{.scenario = "made in a test",
                        .ranks = scenario.ranks,
                        .micro_batches = scenario.micro_batches,
                        .memory_limit = scenario.memory_limit,
                        .posting = std::string(Name(Posting::kIdeal)),
                        .tail = std::string(Name(scenario.tail))};
  for (const std::string& name : schedules) {
    comparison.results.push_back(ResultOf(scenario, name));
  }
  comparison.one_f_one_b = ResultOf(scenario, "1f1b");
  AddFacts(scenario, comparison);
  return comparison;
}

const Result& Find(const Comparison& comparison, std::string_view schedule) {
  const auto found = std::find_if(comparison.results.begin(), comparison.results.end(),
                                  [&](const Result& r) { return r.schedule == schedule; });
  SPIRITLEVEL_CHECK(found != comparison.results.end(), "the test compares what it looks for");
  return *found;
}

size_t LongestLine(std::string_view text) {
  size_t longest = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    longest = std::max(longest, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

}  // namespace spiritlevel
