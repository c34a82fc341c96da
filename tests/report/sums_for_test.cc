#include "tests/report/sums_for_test.h"

#include <algorithm>
#include <utility>

#include "sim/engine.h"
#include "sim/schedules/catalog.h"

namespace spiritlevel {
namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

StageCost CostOf(TimeNs unit) {
  StageCost cost{.forward = 9 * unit,
                 .input_grad = 8 * unit,
                 .weight_grad = 7 * unit,
                 .fused_backward = 15 * unit,
                 .overlapped = 22 * unit,
                 .activation = 900 * kMiB,
                 .weight_state = 360 * kMiB};
  cost.transient[static_cast<size_t>(Pass::kF)] = 200 * kMiB;
  cost.transient[static_cast<size_t>(Pass::kBW)] = 300 * kMiB;
  cost.transient[static_cast<size_t>(Pass::kB)] = 300 * kMiB;
  return cost;
}

GradientSums SumsOf(const SumsForTest& s, size_t stages) {
  GradientSums sums;
  if (s.buckets) {
    const std::vector<GradientBucket> of_stage = {
        {.share = 3, .sum = {.bytes = 300 * kMiB, .duration = 2 * s.unit}},
        {.share = 2, .sum = {.bytes = 200 * kMiB, .duration = s.unit + s.unit / 2}},
        {.share = 1, .sum = {.bytes = 100 * kMiB, .duration = s.unit}}};
    sums.buckets.assign(stages, of_stage);
  }
  if (s.twins) sums.twins.assign(stages, {.bytes = 600 * kMiB, .duration = 3 * s.unit});
  if (s.tied) sums.tied = {{.bytes = 250 * kMiB, .duration = 2 * s.unit}};
  return sums;
}

Costs CostsOf(const SumsForTest& s, const Schedule& schedule) {
  const auto stages = static_cast<size_t>(schedule.num_stages());
  MemoryByCategory of_stage{};
  const auto set = [&](MemoryCategory category, Bytes bytes) {
    of_stage[static_cast<size_t>(category)] = bytes;
  };
  set(MemoryCategory::kParameters, 512 * kMiB);
  set(MemoryCategory::kGradients, 1024 * kMiB);
  set(MemoryCategory::kOptimizer, 1536 * kMiB);
  set(MemoryCategory::kFramework, 256 * kMiB);
  const Costs::Common common{.hop = {.latency = s.unit / 2, .busy = s.unit / 4, .bytes = 32 * kMiB},
                             .launch = s.unit / 100,
                             .optimizer = 4 * s.unit,
                             .optimizer_by_stage = std::vector<TimeNs>(stages, s.unit),
                             .barrier = s.unit,
                             .static_by_stage = std::vector<MemoryByCategory>(stages, of_stage),
                             .gradients = SumsOf(s, stages)};
  return Costs::Uniform(schedule.num_stages(), schedule.num_micro_batches(), CostOf(s.unit),
                        common);
}

std::string NameOf(const SumsForTest& s) {
  std::string name = std::string(s.schedule) + ", " + std::string(Name(s.options.tail));
  if (s.options.weight_grads == WeightGrads::kByBucket) name += ", by bucket";
  if (!s.options.rejected.empty()) name += ", rejected";
  return name;
}

}  // namespace

PlayedWithSums Play(const SumsForTest& s) {
  Schedule schedule =
      FindSchedule(s.schedule)
          .Make({.ranks = s.ranks, .micro_batches = s.micro_batches, .stages_per_rank = 2});
  Costs costs = CostsOf(s, schedule);
  LoweringOptions options = s.options;
  options.iterations = std::max(options.iterations, kPeriodIterations);
  Program program = Lower(schedule, costs, options);
  Timeline timeline = SimulateInOrder(program);
  Summary summary = Summarize(program, costs, timeline);
  return {std::move(schedule), std::move(costs),    std::move(options),
          std::move(program),  std::move(timeline), std::move(summary)};
}

PageForTest MakePage(const std::vector<SumsForTest>& scenarios, int iterations) {
  PageForTest page{.comparison = {.scenario = "with everything",
                                  .ranks = scenarios.front().ranks,
                                  .micro_batches = scenarios.front().micro_batches},
                   .runs = {}};
  for (const SumsForTest& scenario : scenarios) {
    const PlayedWithSums played = Play(scenario);
    HtmlRun& run = page.runs.emplace_back(PackRun(played.program, played.timeline, iterations));
    run.waterfall =
        FindWaterfall(played.schedule, played.costs, played.options, played.summary.step);
    Result& result = page.comparison.results.emplace_back();
    result.schedule = NameOf(scenario);
    result.summary = played.summary;
    result.valid = result.fits = true;
    result.placement = FindSchedule(scenario.schedule).placement;
  }
  page.comparison.one_f_one_b = page.comparison.results.front();
  page.comparison.one_f_one_b->schedule = "1f1b";
  return page;
}

std::vector<SumsForTest> EverythingOnAPage() {
  return {
      {.schedule = "1f1b", .options = {.tail = Tail::kBarrier}},
      {.schedule = "zb-h1",
       .options = {.tail = Tail::kNoTail, .weight_grads = WeightGrads::kByBucket}},
      {.schedule = "interleaved", .options = {.tail = Tail::kBarrier}},
      {.schedule = "dualpipe", .options = {.tail = Tail::kNoTail}},
      {.schedule = "zb-h2", .options = {.tail = Tail::kStrictValidation}},
      {.schedule = "zb-h2", .options = {.tail = Tail::kSpeculativeValidation, .rejected = {0}}}};
}

}  // namespace spiritlevel
