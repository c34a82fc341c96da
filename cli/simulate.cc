#include <fmt/format.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cli/certify.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page.h"
#include "cli/profile.h"
#include "report/chart.h"
#include "report/json.h"
#include "report/schedules_list.h"
#include "report/trace.h"

namespace spiritlevel {
namespace {

struct SimulateCommand {
  std::string command_line;
  ScenarioOptions scenario;
  ScheduleFlags schedules;
  PlayFlags play;
  MemoryLimitFlag limit;
  std::optional<std::string> json;
  std::optional<std::string> html;
  std::optional<std::string> trace;
  bool chart = false;

  void Run() const {
    PlayOptions options = play.Parse();
    options.pack_html = html.has_value();
    LoadedScenario from = scenario.Load();
    Scenario& loaded = from.scenario;
    limit.Apply(html.has_value(), &loaded, &options);
    play.RefuseIdleOn(loaded);
    for (const std::string& warning : loaded.warnings) Warn("warning: " + warning + "\n");
    const ScheduleChoice choice = schedules.LoadOne();
    const std::vector<std::string> inputs = InputFiles(from, schedules);
    const std::vector<NamedOutput> outputs = {
        {"--json", json}, {"--trace", trace}, {"--html", html}};
    CheckOutputs(outputs, inputs);
    const bool is_reference = choice.info != nullptr && choice.info->name == "1f1b";
    // What speed-up is against, on another core meanwhile.
    auto reference = std::async(std::launch::async, [&] {
      PlayOptions without_judging = options;
      without_judging.judge = false;
      without_judging.pack_html = false;
      return is_reference ? Result{} : Play(loaded, NamedSchedule("1f1b"), without_judging).result;
    });
    SpanCertifier certifier(loaded, options.limits);
    Played played = Play(loaded, choice, options, &certifier);
    if (played.error) throw *played.error;
    Comparison comparison = DescribeScenario(loaded, options);
    comparison.results.push_back(played.result);
    const Result one_f_one_b = is_reference ? played.result : reference.get();
    if (one_f_one_b.summary) comparison.one_f_one_b = one_f_one_b;
    comparison.provenance = WithSplits(std::move(from), comparison.results);
    if (!TakesStandardOutput(outputs)) PrintResult(played, comparison);
    if (json) WriteOutput(*json, ToJson(comparison), inputs);
    if (trace) WriteOutput(*trace, TraceOf(played, comparison), inputs);
    if (html) {
      WritePage(*html, comparison, {std::move(played.html)}, scenario.file, inputs, command_line);
    }
  }

  static std::string TraceOf(const Played& played, const Comparison& comparison) {
    return PerfettoTrace(*played.program, *played.timeline,
                         {.title = played.result.schedule + " on " + comparison.scenario,
                          .iterations = played.program->num_iterations()});
  }

  static std::string RejectionNote(int rejected) {
    return fmt::format(
        "Not drawn, since it comes later: what iteration {} leaves is rejected in iteration {}, "
        "which\ndrops its first forwards, rolls back and runs them again; --html and --trace show "
        "it.\n",
        rejected + 1, rejected + 2);
  }

  void PrintResult(const Played& played, const Comparison& comparison) const {
    Print(DescribeResult(comparison.results[0], comparison));
    if (chart) {
      Print("\n" +
            TerminalChart(*played.program, *played.timeline, OutputWidth(), OutputTakesColour()));
      if (played.rejected) Print(RejectionNote(*played.rejected));
    }
  }
};

}  // namespace

void AddSimulate(CLI::App& app, const std::string& command_line) {
  const auto command = std::make_shared<SimulateCommand>();
  command->command_line = command_line;
  CLI::App* sub = app.add_subcommand("simulate", "Play one schedule on a scenario, rank by rank");
  command->scenario.AddTo(*sub);
  command->schedules.AddTo(*sub, /*many=*/false);
  command->scenario.AddProfileTo(*sub);
  command->play.AddTo(*sub);
  command->limit.AddTo(*sub);
  sub->add_option("--json", command->json, "Write the result as JSON to FILE (- for stdout)");
  sub->add_option("--html", command->html, "Write a report to look at, one file, to FILE");
  sub->add_option("--trace", command->trace, "Write a trace for Perfetto (protobuf) to FILE");
  sub->add_flag("--chart", command->chart, "Draw the first iteration as text");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
