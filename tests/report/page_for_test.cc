#include "tests/report/page_for_test.h"

namespace spiritlevel {

Waterfall WaterfallOf(const ScenarioForTest& scenario, std::string_view name) {
  const Shape shape{.ranks = scenario.ranks,
                    .micro_batches = scenario.micro_batches,
                    .stages_per_rank = scenario.stages_per_rank};
  const Schedule schedule = FindSchedule(name).Make(shape);
  const Costs costs = CostsForStages(SlicesOf(scenario), schedule.num_stages());
  const Result result = ResultOf(scenario, name);
  return FindWaterfall(schedule, costs, {.tail = scenario.tail}, result.summary->step);
}

ScenarioForTest UnevenScenario() {
  ScenarioForTest scenario{.ranks = 4,
                           .micro_batches = 8,
                           .common = {.hop = {.latency = 700, .busy = 300, .bytes = 1 << 20},
                                      .launch = 11,
                                      .optimizer = 5000,
                                      .barrier = 900,
                                      .static_bytes = Bytes{3} << 30},
                           .memory_limit = Bytes{9} << 30};
  for (TimeNs row = 0; row < 4; ++row) {
    scenario.rows.push_back({.forward = 9000 + 500 * row,
                             .input_grad = 8000 + 700 * row,
                             .weight_grad = 7000 - 600 * row,
                             .activation = Bytes{1} << 30,
                             .weight_state = Bytes{600} << 20});
  }
  return scenario;
}

PageForTest MakePage(const ScenarioForTest& scenario, const std::vector<std::string>& schedules,
                     int iterations) {
  PageForTest page{.comparison = Compare(scenario, schedules), .runs = {}};
  for (const Result& result : page.comparison.results) {
    HtmlRun& run = page.runs.emplace_back();
    if (!result.summary) continue;
    const PlayedForTest played = Play(scenario, result.schedule);
    run = PackRun(played.program, played.timeline, iterations);
    run.waterfall = WaterfallOf(scenario, result.schedule);
  }
  return page;
}

}  // namespace spiritlevel
