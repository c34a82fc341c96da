#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/gate_profile.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/output_list.h"
#include "cli/profile.h"
#include "report/figures.h"
#include "report/gate.h"
#include "report/gate_text.h"

namespace spiritlevel {
namespace {

GateEntry EntryOf(const Result& result) {
  GateEntry entry{.schedule = result.schedule,
                  .valid = result.summary.has_value() && result.valid,
                  .fits = result.summary.has_value() && result.fits,
                  .reason = result.reason};
  if (!entry.valid) return entry;
  const Summary& s = *result.summary;
  entry.figure(GateMetric::kMakespan) = s.makespan;
  entry.figure(GateMetric::kStep) = s.step;
  entry.figure(GateMetric::kBubbleRate) = GateRate(s.bubble_rate);
  entry.figure(GateMetric::kPeakBytes) =
      *std::max_element(s.peak_bytes.begin(), s.peak_bytes.end());
  entry.figure(GateMetric::kExposedCommunication) = SumOfStalls(s, StallCategory::kTransfer);
  if (result.certificate) {
    entry.figure(GateMetric::kCertificateGap) = GateRate(result.certificate->gap);
  }
  return entry;
}

struct GateCommand {
  std::vector<std::string> scenarios;
  ScenarioOptions shared;  // the flags that all of them take
  ScheduleFlags schedules;
  PlayFlags play;
  std::string baseline;
  std::vector<std::string> tolerances;
  std::vector<std::string> metrics;
  bool update = false;
  std::optional<std::string> markdown;
  std::optional<std::string> junit;
  std::optional<std::string> json;

  void Run() const {
    const GateRules rules = Rules();
    const std::vector<ScheduleChoice> choices = Choices();
    // Before anything is played, which may take a while.
    std::vector<std::string> inputs = InputFilesOfAll();
    if (update) CheckOutputs({{"--baseline", baseline}}, inputs);
    inputs.push_back(baseline);
    CheckOutputs({{"--markdown", markdown}, {"--junit", junit}, {"--json", json}}, inputs);
    const std::optional<GateRecord> before = ReadBaseline();
    const GateRecord now = PlayAll(choices);
    const bool comparable = before && IsComparable(*before, now, choices);
    const GateVerdict verdict = JudgeGate(comparable ? *before : now, now, rules);
    Tell(verdict, comparable);
    // The baseline last: where a report cannot be written, it stays as it was.
    std::vector<OutputText> outputs = {{markdown, GateMarkdown(verdict)},
                                       {junit, GateJUnit(verdict)},
                                       {json, GateJson(verdict, rules)}};
    if (update) outputs.push_back({baseline, ToJson(now)});
    WriteOutputs(outputs, InputFilesOfAll());
    if (update) Warn("wrote " + baseline + "\n");
    if (!update && !verdict.passes()) throw CLI::RuntimeError(1);
  }

 private:
  GateRules Rules() const {
    GateRules rules;
    for (const std::string& metric : metrics) rules.Watch(metric);
    for (const std::string& text : tolerances) rules.Tolerate(text);
    rules.RefuseIdle();
    return rules;
  }

  std::vector<ScheduleChoice> Choices() const {
    std::vector<ScheduleChoice> choices = schedules.Load();
    std::set<std::string> names;
    for (const ScheduleChoice& choice : choices) {
      if (names.insert(choice.name).second) continue;
      throw InputError(fmt::format("{}: two of the schedules are called so", choice.name),
                       "a baseline knows them by name: give each once, and files of other names");
    }
    return choices;
  }

  // Nothing where one is written for the first time.
  std::optional<GateRecord> ReadBaseline() const {
    std::error_code ignored;
    if (!std::filesystem::exists(baseline, ignored)) {
      if (update) return {};
      throw InputError(fmt::format("{}: there is no such baseline", baseline),
                       "the same command with --update writes it; then commit it");
    }
    return ReadGateRecord(ReadFile(baseline), baseline);
  }

  bool IsComparable(const GateRecord& before, const GateRecord& now,
                    const std::vector<ScheduleChoice>& choices) const {
    std::vector<std::string> asked_for;
    if (!schedules.empty()) {
      for (const ScheduleChoice& choice : choices) asked_for.push_back(choice.name);
    }
    if (update) {
      try {
        RequireComparable(before, now, {}, baseline);
      } catch (const InputError&) {
        return false;  // it is written anew for just such a reason
      }
      return true;
    }
    RequireComparable(before, now, asked_for, baseline);
    return true;
  }

  LoadedScenario Load(const std::string& file) const {
    ScenarioOptions one = shared;
    one.file = file;
    // A profile is for those that have a model; if none has, it is an error as it is elsewhere.
    if (scenarios.size() > 1 && !one.LoadWithoutProfile().model) one.profile.clear();
    return one.Load();
  }

  GateRecord PlayAll(const std::vector<ScheduleChoice>& choices) const {
    const PlayOptions options = play.Parse();
    GateRecord record{.settings = Settings()};
    std::set<std::string> names;
    for (const std::string& file : scenarios) {
      const LoadedScenario loaded = Load(file);
      const Scenario& scenario = loaded.scenario;
      play.RefuseIdleOn(scenario);
      for (const std::string& warning : scenario.warnings) Warn("warning: " + warning + "\n");
      if (!names.insert(scenario.name).second) {
        throw InputError(
            fmt::format("{}: there is a scenario called \"{}\" before it", file, scenario.name),
            "a baseline knows them by name: give each once, each with a `name` of its own");
      }
      record.scenarios.push_back(PlayOne(scenario, choices, options));
    }
    return record;
  }

  static GateScenario PlayOne(const Scenario& scenario, const std::vector<ScheduleChoice>& choices,
                              const PlayOptions& options) {
    GateScenario out{
        .name = scenario.name, .ranks = scenario.ranks, .micro_batches = scenario.micro_batches};
    if (scenario.model) out.profile = ProfileDigest(*scenario.model->profile);
    const Compared compared = Compare(scenario, choices, options);
    for (const Result& result : compared.comparison.results) out.entries.push_back(EntryOf(result));
    return out;
  }

  // Whatever makes two runs of one scenario different things.
  std::map<std::string, std::string> Settings() const {
    const auto number = [](const std::optional<int>& n) { return n ? fmt::to_string(*n) : "file"; };
    return {{"--posting", play.posting},
            {"--receives", play.receives},
            {"--channels", play.channels},
            {"--tail", play.tail},
            {"--weight-grads", play.weight_grads},
            {"--rejection", fmt::to_string(play.rejection)},
            {"--iterations", fmt::to_string(play.iterations)},
            {"--group", number(shared.group)},
            {"--stages-per-rank", number(shared.stages_per_rank)}};
  }

  std::vector<std::string> InputFilesOfAll() const {
    std::vector<std::string> files = schedules.files;
    for (const std::string& file : scenarios) {
      ScenarioOptions one = shared;
      one.file = file;
      const std::vector<std::string> read = FilesOf(one.LoadWithoutProfile(), file);
      files.insert(files.end(), read.begin(), read.end());
    }
    if (!shared.profile.empty()) files.push_back(shared.profile);
    return files;
  }

  void Tell(const GateVerdict& verdict, bool comparable) const {
    const bool to_stdout =
        markdown.value_or("") == "-" || junit.value_or("") == "-" || json.value_or("") == "-";
    if (to_stdout) return;
    Print(comparable ? GateText(verdict)
                     : fmt::format("a new baseline: {} results, nothing to compare with\n",
                                   verdict.rows.size()));
  }
};

constexpr const char* kMetrics =
    "makespan_ns, step_ns, bubble_rate, peak_bytes, exposed_communication_ns, certificate_gap";

// Options that may be given several times take one value each: what follows is a scenario.
void AddRules(CLI::App& sub, GateCommand& command) {
  sub.add_option("--metric", command.metrics,
                 fmt::format("METRIC, several times: compare this one alone (default: all). "
                             "Metrics: {}",
                             kMetrics))
      ->allow_extra_args(false);
  sub.add_option("--tolerance", command.tolerances,
                 "METRIC=PERCENT, several times: how much worse may pass (default: 0); of "
                 "bubble_rate and certificate_gap in percentage points")
      ->allow_extra_args(false);
}

void AddReports(CLI::App& sub, GateCommand& command) {
  sub.add_option("--markdown", command.markdown,
                 "Write what changed as Markdown to FILE, for a pull request");
  sub.add_option("--junit", command.junit, "Write the results as JUnit XML to FILE");
  sub.add_option("--json", command.json, "Write what changed as JSON to FILE (- for stdout)");
}

}  // namespace

void AddGate(CLI::App& app) {
  const auto command = std::make_shared<GateCommand>();
  CLI::App* sub = app.add_subcommand(
      "gate", "For CI: exit 1 where schedules do worse than a committed baseline says");
  sub->add_option("SCENARIO", command->scenarios, "Scenario files")->required();
  sub->add_option("--baseline", command->baseline, "The JSON file to compare with")->required();
  sub->add_flag("--update", command->update, "Write the baseline anew from what is played now");
  AddRules(*sub, *command);
  command->schedules.AddTo(*sub, /*many=*/true);
  for (const char* flag : {"--schedule", "--schedule-file"}) {
    sub->get_option(flag)->allow_extra_args(false);
  }
  sub->add_option("--group", command->shared.group,
                  "Group size of the interleaved forms (default: PyTorch's)");
  sub->add_option("--stages-per-rank", command->shared.stages_per_rank,
                  "Stages a rank holds in the interleaved forms (default: the file's, or 2)");
  command->shared.AddProfileTo(*sub);
  command->play.AddTo(*sub);
  AddReports(*sub, *command);
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
