#include "cli/page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/output.h"
#include "report/html.h"
#include "report/table.h"

namespace spiritlevel {
namespace {

std::vector<ProvenanceLine> Lines(const Comparison& comparison, const std::string& command_line) {
  std::vector<ProvenanceLine> lines;
  if (comparison.provenance) lines = LinesOf(*comparison.provenance);
  lines.push_back({"played with", Choices(comparison)});
  lines.push_back({"command", Printable(command_line)});
  lines.push_back({"made", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))});
  lines.push_back({"program", "spiritlevel " SPIRITLEVEL_VERSION});
  return lines;
}

}  // namespace

void WritePage(const std::string& path, const Comparison& comparison, std::vector<HtmlRun> runs,
               const std::string& scenario_file, const std::vector<std::string>& inputs,
               const std::string& command_line) {
  const HtmlReportInput input{.comparison = comparison,
                              .runs = std::move(runs),
                              .scenario_file = Shown(Printable(scenario_file)),
                              .scenario_text = Printable(ReadFile(scenario_file)),
                              .provenance = Lines(comparison, command_line)};
  WriteOutput(path, HtmlReport(input), inputs);
}

}  // namespace spiritlevel
