#include "cli/page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/output.h"
#include "report/html.h"

namespace spiritlevel {
namespace {

std::vector<ProvenanceLine> Lines(const Comparison& comparison, const PlayFlags& flags) {
  std::vector<ProvenanceLine> lines;
  if (comparison.provenance) lines = LinesOf(*comparison.provenance);
  lines.push_back({"posting", flags.posting});
  lines.push_back({"tail", flags.tail});
  lines.push_back({"made", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))});
  lines.push_back({"program", "spiritlevel " SPIRITLEVEL_VERSION});
  return lines;
}

}  // namespace

void WritePage(const std::string& path, const Comparison& comparison, std::vector<HtmlRun> runs,
               const ScenarioOptions& scenario, const ScheduleFlags& schedules,
               const PlayFlags& flags) {
  const HtmlReportInput input{.comparison = comparison,
                              .runs = std::move(runs),
                              .scenario_file = Shown(Printable(scenario.file)),
                              .scenario_text = Printable(ReadFile(scenario.file)),
                              .provenance = Lines(comparison, flags)};
  WriteOutput(path, HtmlReport(input), InputFiles(scenario, schedules));
}

}  // namespace spiritlevel
