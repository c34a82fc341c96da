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

std::vector<ProvenanceLine> Provenance(const ScenarioOptions& scenario, const PlayFlags& flags) {
  return {
      {"costs", "typed into " + Shown(Printable(scenario.file)) + "; not measured on this machine"},
      {"posting", flags.posting},
      {"tail", flags.tail},
      {"made", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
      {"program", "spiritlevel " SPIRITLEVEL_VERSION}};
}

}  // namespace

void WritePage(const std::string& path, const Comparison& comparison, std::vector<HtmlRun> runs,
               const ScenarioOptions& scenario, const ScheduleFlags& schedules,
               const PlayFlags& flags) {
  const HtmlReportInput input{.comparison = comparison,
                              .runs = std::move(runs),
                              .scenario_file = Shown(Printable(scenario.file)),
                              .scenario_text = Printable(ReadFile(scenario.file)),
                              .provenance = Provenance(scenario, flags)};
  WriteOutput(path, HtmlReport(input), InputFiles(scenario, schedules));
}

}  // namespace spiritlevel
