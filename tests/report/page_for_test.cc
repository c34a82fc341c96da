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

PageForTest MakePage(const ScenarioForTest& scenario, const std::vector<std::string>& schedules,
                     int iterations) {
  PageForTest page{.comparison = Compare(scenario, schedules), .runs = {}};
  for (const Result& result : page.comparison.results) {
    HtmlRun& run = page.runs.emplace_back();
    if (!result.summary) continue;
    const Played played = Play(scenario, result.schedule);
    run = PackRun(played.program, played.timeline, iterations);
    run.waterfall = WaterfallOf(scenario, result.schedule);
  }
  return page;
}

}  // namespace spiritlevel
