// The HTML report of what compare and simulate have played.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/play.h"

namespace spiritlevel {

// Writes it to `path`, with the scenario's text and where the numbers come from.
void WritePage(const std::string& path, const Comparison& comparison, std::vector<HtmlRun> runs,
               const ScenarioOptions& scenario, const ScheduleFlags& schedules,
               const PlayFlags& flags);

}  // namespace spiritlevel
