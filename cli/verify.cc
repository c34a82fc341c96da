#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/output_list.h"
#include "cli/profile.h"
#include "cli/verify_costs.h"
#include "cli/verify_run.h"
#include "kernels/cpu/cores.h"
#include "report/trace.h"
#include "report/verification.h"
#include "sim/schedules/catalog.h"

namespace spiritlevel {
namespace {

constexpr int kNo = 1;             // exit status: it ran, and what it ran was wrong
constexpr int kInterrupted = 130;  // by ctrl-C: what was not run is not known
constexpr const char* kAll = "all";

struct VerifyCommand {
  std::string command_line;
  ScenarioOptions scenario;
  std::vector<std::string> names;
  std::string transport = "threads";
  std::string tail = "barrier";
  std::string posting = "ideal";
  std::string receives = "early";
  int64_t iterations = 4;
  int64_t rounds = 3;
  double seconds = 5;
  double search_seconds = 2;
  bool emulate = false;
  bool details = false;
  std::optional<std::string> json;
  std::optional<std::string> html;
  std::optional<std::string> trace;

  void Run() const {
    VerifySettings settings = Settings();
    const std::vector<std::string> schedules = Schedules();
    const LoadedScenario loaded = Load();
    CheckOutputs({{"--json", json}, {"--html", html}, {"--trace", trace}}, loaded.files);
    for (const std::string& warning : loaded.scenario.warnings) Warn("warning: " + warning + "\n");
    const std::vector<int> cores = CoresFor(loaded.scenario);
    if (!emulate) settings.cores = cores;
    const OnInterrupt on_interrupt;
    try {
      Verify(loaded, settings, schedules, cores);
    } catch (const RunFailed& failed) {
      Tell("");
      Warn(Printable(failed.what()) + "\n");
      throw CLI::RuntimeError(kNo);
    } catch (const InputError& error) {
      if (!interrupted) throw;
      Tell("");
      Warn(Printable(error.what()) + "\n");
      throw CLI::RuntimeError(kInterrupted);
    }
  }

 private:
  void Verify(const LoadedScenario& loaded, const VerifySettings& settings,
              const std::vector<std::string>& schedules, const std::vector<int>& cores) const {
    CostsBook book(loaded.scenario, {.emulated = emulate,
                                     .tail = settings.tail,
                                     .transport = settings.transport,
                                     .cores = cores,
                                     .seconds = seconds,
                                     .stop = &interrupted});
    Verifier verifier(loaded.scenario, &book, settings);
    for (const std::string& name : schedules) {
      Tell(fmt::format("timing kernels for {}", name));
      verifier.Add(name);
    }
    RequireOneThatRuns(verifier);
    verifier.Run();
    Tell("");
    Write(verifier, loaded);
  }

  VerifySettings Settings() const {
    VerifySettings settings{.emulated = emulate, .search_seconds = search_seconds};
    if (transport == "processes") {
      settings.transport = Transport::kProcesses;
    } else if (transport != "threads") {
      throw InputError(fmt::format("--transport: there is no \"{}\"", transport),
                       "there is threads, processes");
    }
    const PlayOptions play =
        PlayFlags{.posting = posting, .receives = receives, .tail = tail}.Parse();
    settings.tail = play.tail;
    settings.posting = play.posting;
    settings.receives = play.receives;
    settings.iterations = Counted("--iterations", iterations, 2, 1000);
    settings.rounds = Counted("--rounds", rounds, 1, 1000);
    for (const auto& [flag, value] :
         {std::pair{"--seconds", seconds}, std::pair{"--search-seconds", search_seconds}}) {
      if (value >= 0 && value <= 3600) continue;
      throw InputError(fmt::format("{}: {} is not between 0 and 3600", flag, value),
                       "leave it out");
    }
    settings.stop = &interrupted;
    settings.observer = [](int done, int all, const std::string& schedule) {
      Tell(fmt::format("run {} of {}: {}", done + 1, all, schedule));
    };
    return settings;
  }

  static int Counted(std::string_view flag, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return static_cast<int>(value);
    throw InputError(fmt::format("{}: {} is not between {} and {}", flag, value, least, most),
                     "leave it out");
  }

  // Named ones are looked up before any work is done.
  std::vector<std::string> Schedules() const {
    const bool all = names.empty() || std::find(names.begin(), names.end(), kAll) != names.end();
    std::vector<std::string> schedules;
    const auto add = [&](std::string_view name) {
      if (std::find(schedules.begin(), schedules.end(), name) == schedules.end()) {
        schedules.emplace_back(name);
      }
    };
    for (const ScheduleInfo& info : AllSchedules()) {
      if (all) add(info.name);
    }
    for (const std::string& name : names) {
      if (name == kAll) continue;
      if (name != kSearched) FindSchedule(name);
      add(name);
    }
    if (all) add(kSearched);
    if (trace && schedules.size() != 1) {
      throw InputError("--trace: a trace is of one schedule", "give one --schedule NAME");
    }
    return schedules;
  }

  LoadedScenario Load() const {
    Scenario loaded = scenario.LoadWithoutProfile();
    const bool has_profile =
        !scenario.profile.empty() || (loaded.model && !loaded.model->profile_file.empty());
    if (!loaded.model && !emulate) {
      throw InputError(
          fmt::format("{}: its costs are typed in, so there is nothing to run", scenario.file),
          "give it a model, as scenarios/verify-2ranks.textproto has, or use --emulate");
    }
    if (!loaded.model || has_profile) {
      return WithProfile(std::move(loaded), scenario.file, scenario.profile);
    }
    LoadedScenario from{.scenario = std::move(loaded), .provenance = {}, .files = {}};
    from.files = FilesOf(from.scenario, scenario.file);
    return from;
  }

  // By rank; under emulation several may have one.
  std::vector<int> CoresFor(const Scenario& loaded) const {
    const std::vector<int> usable = cpu::UsableCores();
    if (!emulate && loaded.ranks > std::ssize(usable)) {
      const auto count = usable.size();
      throw InputError(
          fmt::format("{}: {} ranks, and {} core{} to run them on", scenario.file, loaded.ranks,
                      count, count == 1 ? "" : "s"),
          fmt::format("use --emulate, or a scenario with {} rank{}", count, count == 1 ? "" : "s"));
    }
    std::vector<int> cores;
    for (int rank = 0; rank < loaded.ranks; ++rank) {
      cores.push_back(usable[static_cast<size_t>(rank) % usable.size()]);
    }
    return cores;
  }

  // The only schedules, and none of them can run: that is an error, and no table.
  static void RequireOneThatRuns(const Verifier& verifier) {
    for (const PlannedSchedule& plan : verifier.planned()) {
      if (plan.schedule) return;
    }
    const PlannedSchedule& first = verifier.planned().front();
    if (first.refusal) throw first.refusal->At(first.verdict.schedule);
    throw InputError(fmt::format("{}: {}", first.verdict.schedule, first.verdict.reason));
  }

  static void Tell(const std::string& what) {
    if (::isatty(STDERR_FILENO) != 0) Warn("\r\033[K" + what);
  }

  void Write(Verifier& verifier, const LoadedScenario& loaded) const {
    const Verification verification = verifier.Take();
    std::vector<OutputText> outputs;
    if (json) outputs.push_back({json, VerificationJson(verification)});
    if (html) outputs.push_back({html, PageOf(verifier, verification, loaded)});
    if (const auto text = TraceOf(verifier.planned().front())) outputs.push_back({trace, *text});
    // Before the table: files are kept where standard output cannot be written.
    WriteOutputs(outputs, loaded.files);
    if (!TakesStandardOutput({{"--json", json}, {"--html", html}, {"--trace", trace}})) {
      Print(VerificationTable(verification, details));
    }
    if (!IsRight(verification)) throw CLI::RuntimeError(kNo);
    if (verification.interrupted) throw CLI::RuntimeError(kInterrupted);
  }

  std::optional<std::string> TraceOf(const PlannedSchedule& plan) const {
    if (!trace) return std::nullopt;
    if (!plan.verdict.ran()) {
      Warn(fmt::format("{}: no run of {} has ended, so there is no trace\n", *trace,
                       plan.verdict.schedule));
      return std::nullopt;
    }
    return PerfettoTrace(
        *plan.program, plan.measured,
        {.title = fmt::format("{}, {}", plan.verdict.schedule, emulate ? "emulated" : "measured"),
         .iterations = plan.program->num_iterations()});
  }

  std::string PageOf(const Verifier& verifier, const Verification& verification,
                     const LoadedScenario& loaded) const {
    std::vector<ProvenanceLine> lines = LinesOf(loaded.provenance);
    if (!loaded.scenario.model || !loaded.scenario.model->profile) lines.clear();
    lines.push_back({"costs", verification.costs_from});
    lines.push_back({"cpu", verification.cpu});
    lines.push_back({"command", Printable(command_line)});
    lines.push_back(
        {"made", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))});
    lines.push_back({"program", "spiritlevel " SPIRITLEVEL_VERSION});
    return VerificationPage({.verification = verification,
                             .drawings = verifier.Drawings(),
                             .scenario_file = Shown(Printable(scenario.file)),
                             .scenario_text = Printable(ReadFile(scenario.file)),
                             .provenance = std::move(lines)});
  }
};

}  // namespace

void AddVerify(CLI::App& app, const std::string& command_line) {
  const auto command = std::make_shared<VerifyCommand>();
  command->command_line = command_line;
  CLI::App* sub = app.add_subcommand(
      "verify", "Run schedules on this machine's cores and hold the prediction against them");
  command->scenario.AddTo(*sub);
  command->scenario.AddProfileTo(*sub);
  sub->add_option("--schedule", command->names,
                  "Schedule, may be given several times; `search` looks for one; `all` are all of "
                  "them (default)");
  sub->add_option("--iterations", command->iterations, "Iterations of a run that count")
      ->capture_default_str();
  sub->add_option("--rounds", command->rounds,
                  "Runs of each schedule, interleaved with the others'")
      ->capture_default_str();
  sub->add_option("--tail", command->tail,
                  "What ends an iteration: barrier, none, post-validation-strict or "
                  "post-validation-speculative; these two are run with a barrier and with a "
                  "rejected version, too")
      ->capture_default_str();
  sub->add_option("--posting", command->posting,
                  "How messages are posted: ideal, nccl-fifo or batched")
      ->capture_default_str();
  sub->add_option("--receives", command->receives,
                  "Where receives stand: under nccl-fifo early, deferred or naive; under batched "
                  "early or naive")
      ->capture_default_str();
  sub->add_option("--transport", command->transport, "Ranks are threads, or processes")
      ->capture_default_str();
  sub->add_flag("--emulate", command->emulate,
                "Passes sleep for their time and compute nothing: for more ranks than cores");
  sub->add_option(
         "--seconds", command->seconds,
         "Where there is no profile, how long the passes of each cut of the model are timed")
      ->capture_default_str();
  sub->add_option("--search-seconds", command->search_seconds, "How long `search` searches")
      ->capture_default_str();
  sub->add_flag("--details", command->details, "Each stage's passes, too");
  sub->add_option("--json", command->json, "Write the result as JSON to FILE (- for stdout)");
  sub->add_option("--html", command->html, "Write a report to look at, one file, to FILE");
  sub->add_option("--trace", command->trace,
                  "Write the last run of the one schedule for Perfetto (protobuf) to FILE");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
