#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page.h"
#include "cli/profile.h"
#include "report/five_lines.h"
#include "report/json.h"
#include "report/table.h"

namespace spiritlevel {
namespace {

struct CompareCommand {
  std::string command_line;
  ScenarioOptions scenario;
  ScheduleFlags schedules;
  PlayFlags play;
  MemoryLimitFlag limit;
  std::optional<std::string> json;
  std::optional<std::string> html;
  bool summary = false;

  void Run() const {
    PlayOptions options = play.Parse();
    options.pack_html = html.has_value();
    LoadedScenario from = scenario.Load();
    Scenario& loaded = from.scenario;
    limit.Apply(html.has_value(), &loaded, &options);
    play.RefuseIdleOn(loaded);
    for (const std::string& warning : loaded.warnings) Warn("warning: " + warning + "\n");
    const std::vector<ScheduleChoice> choices = schedules.Load();
    const std::vector<std::string> inputs = InputFiles(from, schedules);
    const std::vector<NamedOutput> outputs = {{"--json", json}, {"--html", html}};
    CheckOutputs(outputs, inputs);
    // Asked for by itself, a schedule that cannot run is an error and not a row.
    if (choices.size() == 1) ThrowIfItCannotRun(loaded, choices[0], options);
    Compared compared = Compare(loaded, choices, options);
    Comparison& comparison = compared.comparison;
    comparison.provenance = WithSplits(std::move(from), comparison.results);
    // Printed first: where that fails, no file is left either.
    if (!TakesStandardOutput(outputs)) {
      Print(summary ? FiveLines(comparison) : CompareTable(comparison));
    }
    if (json) WriteOutput(*json, ToJson(comparison), inputs);
    if (html) {
      WritePage(*html, comparison, std::move(compared.runs), scenario.file, inputs, command_line);
    }
  }
};

}  // namespace

void AddCompare(CLI::App& app, const std::string& command_line) {
  const auto command = std::make_shared<CompareCommand>();
  command->command_line = command_line;
  CLI::App* sub = app.add_subcommand(
      "compare", "Play schedules on a scenario: what each costs in time and memory, and why");
  command->scenario.AddTo(*sub);
  command->schedules.AddTo(*sub, /*many=*/true);
  command->scenario.AddProfileTo(*sub);
  command->play.AddTo(*sub);
  command->limit.AddTo(*sub);
  sub->add_option("--json", command->json, "Write the results as JSON to FILE (- for stdout)");
  sub->add_option("--html", command->html, "Write a report to look at, one file, to FILE");
  sub->add_flag("--summary", command->summary, "Print five lines in place of the table");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
