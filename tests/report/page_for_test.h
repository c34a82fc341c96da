// A page made from a scenario for tests, as `compare --html` makes one.
#pragma once

#include <string>
#include <vector>

#include "report/html.h"
#include "tests/report/comparison_for_test.h"

namespace spiritlevel {

struct PageForTest {
  Comparison comparison;
  std::vector<HtmlRun> runs;
};

// Unequal stages, messages, a launch delay, a tail and a memory limit.
ScenarioForTest UnevenScenario();

// All of the catalog where `schedules` is empty.
PageForTest MakePage(const ScenarioForTest& scenario,
                     const std::vector<std::string>& schedules = {}, int iterations = 1);

Waterfall WaterfallOf(const ScenarioForTest& scenario, std::string_view schedule);

}  // namespace spiritlevel
