#include <memory>

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
  std::string json;

  void Run() const {
    const PlayOptions options = play.Parse();
    const Scenario loaded = scenario.Load();
    for (const std::string& warning : loaded.warnings) Warn("warning: " + warning + "\n");
    const std::vector<ScheduleChoice> choices = schedules.Load();
    const Comparison comparison = Compare(loaded, choices, options);
    // Asked for by itself, a schedule that cannot run is an error and not a row.
    if (choices.size() == 1 && !comparison.results[0].summary) {
      throw InputError(choices[0].name + ": " + comparison.results[0].reason);
    }
    if (!json.empty()) WriteOutput(json, ToJson(comparison));
    if (json != "-") Print(CompareTable(comparison));
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
