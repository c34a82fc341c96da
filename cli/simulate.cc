#include <future>
#include <memory>
#include <optional>
#include <string>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "report/chart.h"
#include "report/json.h"
#include "report/schedules_list.h"

namespace spiritlevel {
namespace {

struct SimulateCommand {
  ScenarioOptions scenario;
  ScheduleFlags schedules;
  PlayFlags play;
  std::optional<std::string> json;
  bool chart = false;

  void Run() const {
    const PlayOptions options = play.Parse();
    const Scenario loaded = scenario.Load();
    for (const std::string& warning : loaded.warnings) Warn("warning: " + warning + "\n");
    const ScheduleChoice choice = schedules.LoadOne();
    const bool is_reference = choice.info != nullptr && choice.info->name == "1f1b";
    // What speed-up is against, on another core meanwhile.
    auto reference = std::async(std::launch::async, [&] {
      PlayOptions without_judging = options;
      without_judging.judge = false;
      return is_reference ? Result{} : Play(loaded, NamedSchedule("1f1b"), without_judging).result;
    });
    const Played played = Play(loaded, choice, options);
    if (played.error) throw *played.error;
    Comparison comparison = DescribeScenario(loaded, options);
    comparison.results.push_back(played.result);
    const Result one_f_one_b = is_reference ? played.result : reference.get();
    if (one_f_one_b.summary) comparison.one_f_one_b = one_f_one_b;
    if (json.value_or("") != "-") PrintResult(played, comparison);
    if (json) WriteOutput(*json, ToJson(comparison), InputFiles(scenario, schedules));
  }

  void PrintResult(const Played& played, const Comparison& comparison) const {
    Print(DescribeResult(comparison.results[0], comparison));
    if (chart) {
      Print("\n" +
            TerminalChart(*played.program, *played.timeline, OutputWidth(), OutputTakesColour()));
    }
  }
};

}  // namespace

void AddSimulate(CLI::App& app) {
  const auto command = std::make_shared<SimulateCommand>();
  CLI::App* sub = app.add_subcommand("simulate", "Play one schedule on a scenario, rank by rank");
  command->scenario.AddTo(*sub);
  command->schedules.AddTo(*sub, /*many=*/false);
  command->play.AddTo(*sub);
  sub->add_option("--json", command->json, "Write the result as JSON to FILE (- for stdout)");
  sub->add_flag("--chart", command->chart, "Draw the first iteration as text");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
