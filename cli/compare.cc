#include <memory>
#include <optional>
#include <string>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "report/json.h"
#include "report/table.h"

namespace spiritlevel {
namespace {

struct CompareCommand {
  ScenarioOptions scenario;
  ScheduleFlags schedules;
  PlayFlags play;
  std::optional<std::string> json;

  void Run() const {
    const PlayOptions options = play.Parse();
    const Scenario loaded = scenario.Load();
    for (const std::string& warning : loaded.warnings) Warn("warning: " + warning + "\n");
    const std::vector<ScheduleChoice> choices = schedules.Load();
    // Asked for by itself, a schedule that cannot run is an error and not a row.
    if (choices.size() == 1) ThrowIfItCannotRun(loaded, choices[0], options);
    const Comparison comparison = Compare(loaded, choices, options);
    // Printed first: where that fails, no file is left either.
    if (json.value_or("") != "-") Print(CompareTable(comparison));
    if (json) WriteOutput(*json, ToJson(comparison), InputFiles(scenario, schedules));
  }
};

}  // namespace

void AddCompare(CLI::App& app) {
  const auto command = std::make_shared<CompareCommand>();
  CLI::App* sub = app.add_subcommand(
      "compare", "Play schedules on a scenario: what each costs in time and memory, and why");
  command->scenario.AddTo(*sub);
  command->schedules.AddTo(*sub, /*many=*/true);
  command->play.AddTo(*sub);
  sub->add_option("--json", command->json, "Write the results as JSON to FILE (- for stdout)");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
