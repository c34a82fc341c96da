#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/export_flags.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/output_list.h"
#include "cli/profile.h"
#include "cli/search_answer.h"
#include "cli/search_flags.h"
#include "cli/search_words.h"
#include "cli/searching.h"
#include "report/table.h"
#include "report/torch_comms_csv.h"
#include "report/torch_csv.h"

namespace spiritlevel {
namespace {

// F, B and W of each rank and micro-batch, above which named schedules are not played beside what
// was found: playing and judging all of them would take longer than most searches.
constexpr int64_t kMostOpsBesideNamedOnes = 200'000;

// Of each rank: the scenario's where the flag gives none.
std::vector<Bytes> LimitsOf(const std::string& text, const Scenario& scenario) {
  const auto ranks = static_cast<size_t>(scenario.ranks);
  if (text.empty()) return std::vector<Bytes>(ranks, scenario.memory_limit.value_or(kNoLimit));
  std::vector<Bytes> limits = ParseMemoryLimits(text, scenario.ranks);
  if (limits.size() == 1) limits.assign(ranks, limits[0]);
  return limits;
}

// After ctrl-C what takes no time is still done, and the rest is not.
std::function<bool()> SkipsAfterInterrupt() {
  static constexpr std::chrono::milliseconds kNoTime(300);
  return [since = std::optional<std::chrono::steady_clock::time_point>(),
          mutex = std::make_shared<std::mutex>()]() mutable {
    const std::lock_guard lock(*mutex);
    if (!interrupted.load()) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!since) since = now;
    return now - *since > kNoTime;
  };
}

struct SearchCommand {
  ScenarioOptions scenario;
  SearchFlags flags;
  CommsFlags comms;
  std::optional<std::string> csv;
  std::optional<std::string> comms_csv;
  std::optional<std::string> json;

  void Run() const {
    flags.CheckBudget();
    comms.RefuseIdle(comms_csv.has_value(), "add --export-comms FILE, or leave it out");
    LoadedScenario from = scenario.Load();
    Scenario& loaded = from.scenario;
    for (const std::string& warning : loaded.warnings) Warn("warning: " + warning + "\n");
    const std::vector<std::string> inputs = from.files;
    const std::vector<NamedOutput> outputs = {
        {"--export", csv}, {"--export-comms", comms_csv}, {"--json", json}};
    CheckOutputs(outputs, inputs);
    const SearchRequest request = RequestOn(loaded);
    PlayOptions play{.tail = request.tail};
    if (request.limits[0] != kNoLimit) LimitMemory(request.limits, &loaded, &play);
    const OnInterrupt on_interrupt;
    const FoundInAll found = Find(loaded, request);
    // Written before anything else is done: what was found is not to be lost if that is stopped.
    std::optional<InputError> failure;
    const std::optional<NumberedSchedule> exported = Export(found, inputs, &failure);
    Compared compared = PlayBeside(loaded, found, play);
    Comparison& comparison = compared.comparison;
    // Which may know more: an integer program's bound.
    if (request.objective == Objective::kSpan) {
      comparison.results[0].certificate = found.best.certificate;
    }
    comparison.provenance = WithSplits(std::move(from), comparison.results);
    const SearchReport report{.comparison = comparison,
                              .found = found,
                              .exported = exported,
                              .left_out = std::move(compared.left_out),
                              .objective = request.objective,
                              .seed = flags.seed};
    if (json) WriteOutput(*json, SearchJson(report), inputs);
    if (!TakesStandardOutput(outputs)) {
      Print(CompareTable(comparison) + SearchVerdict(report) + AboutFiles(exported));
    }
    if (failure) throw *failure;
  }

 private:
  SearchRequest RequestOn(const Scenario& loaded) const {
    return {.placements = ParsePlacementWord(flags.placement, loaded, scenario.stages_per_rank),
            .limits = LimitsOf(flags.limits, loaded),
            .limits_from = flags.limits.empty()
                               ? fmt::format("{}: memory_limit_bytes", scenario.file)
                               : "--memory-limit",
            .objective = ParseObjectiveWord(flags.objective),
            .tail = ParseSearchTail(flags.tail)};
  }

  FoundInAll Find(const Scenario& loaded, const SearchRequest& request) const {
    const bool shows = ::isatty(STDERR_FILENO) != 0;
    SearchOptions options{.seconds = flags.seconds,
                          .evaluations = flags.evaluations,
                          .seed = flags.seed,
                          .threads = flags.threads,
                          .stop = &interrupted};
    double told = -1;
    options.observer = [&](double done, TimeNs best) {
      if (!shows || done < told + 0.01) return;
      told = done;
      Warn(fmt::format("\r\033[K{:.0f} %, best so far {}", 100 * done, FormatTime(best)));
    };
    FoundInAll found = SearchPlacements(loaded, request, options);
    if (shows) Warn("\r\033[K");
    for (const std::string& why : found.passed_over) Warn("passed over " + why + "\n");
    return found;
  }

  // What the files hold. `failure` is why one could not be written; the results are then still
  // told.
  std::optional<NumberedSchedule> Export(const FoundInAll& found,
                                         const std::vector<std::string>& inputs,
                                         std::optional<InputError>* failure) const {
    std::optional<NumberedSchedule> exported;
    try {
      exported = NumberedByLosses(Schedule(found.best.answer.orders));
      std::vector<OutputText> texts;
      if (csv) texts.push_back({csv, ToTorchCsv(exported->schedule)});
      if (comms_csv) {
        texts.push_back({comms_csv, ToTorchCommsCsv(exported->schedule, comms.Options())});
      }
      WriteOutputs(texts, inputs);
    } catch (const InputError& error) {
      *failure = error;
    }
    return exported;
  }

  // What was found, then all named schedules, if that is quick.
  static Compared PlayBeside(const Scenario& loaded, const FoundInAll& found,
                             const PlayOptions& play) {
    std::vector<ScheduleChoice> choices = {
        {.name = "search", .info = nullptr, .orders = found.best.answer.orders, .notes = {}}};
    const Shape shape{.ranks = loaded.ranks,
                      .micro_batches = loaded.micro_batches,
                      .stages_per_rank = loaded.stages_per_rank,
                      .group = loaded.group};
    for (const ScheduleInfo& info : AllSchedules()) {
      if (!info.Refusal(shape)) choices.push_back(NamedSchedule(info.name));
    }
    const bool many = int64_t{3} * loaded.ranks * loaded.micro_batches > kMostOpsBesideNamedOnes;
    Compared compared =
        Compare(loaded, choices, play, many ? [] { return true; } : SkipsAfterInterrupt());
    compared.comparison.whole_catalog = false;
    return compared;
  }

  // How the files are to be run.
  std::string AboutFiles(const std::optional<NumberedSchedule>& exported) const {
    if (!exported || (!csv && !comms_csv)) return "";
    const auto form = csv ? TorchForm::kComputeOnly : TorchForm::kComputeComms;
    return "\n" + DescribeTorchPlacement(exported->schedule, form) + MicroBatchesOf(*exported);
  }
};

}  // namespace

void AddSearch(CLI::App& app) {
  const auto command = std::make_shared<SearchCommand>();
  CLI::App* sub = app.add_subcommand(
      "search", "Find the best order under a memory limit, with a bound that says how good it is");
  command->scenario.AddTo(*sub);
  command->scenario.AddProfileTo(*sub);
  command->flags.AddTo(*sub,
                       "What a rank may hold (60GiB, 8e9), or one size for each rank with commas "
                       "between (default: the scenario's)",
                       "How long to search");
  sub->add_option("--export", command->csv,
                  "Write the order found as a PyTorch CSV to FILE (- for stdout)");
  sub->add_option("--export-comms", command->comms_csv,
                  "The same with sends and receives, placed so that nothing can deadlock");
  command->comms.AddTo(*sub);
  sub->add_option("--json", command->json, "Write the results as JSON to FILE (- for stdout)");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
