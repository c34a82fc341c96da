#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/profile.h"
#include "cli/search_flags.h"
#include "cli/search_words.h"
#include "cli/searching.h"
#include "report/certificate_json.h"
#include "report/json.h"
#include "report/table.h"
#include "report/torch_comms_csv.h"
#include "report/torch_csv.h"

namespace spiritlevel {
namespace {

// Of each rank: the scenario's where the flag gives none.
std::vector<Bytes> LimitsOf(const std::string& text, const Scenario& scenario) {
  const auto ranks = static_cast<size_t>(scenario.ranks);
  if (text.empty()) return std::vector<Bytes>(ranks, scenario.memory_limit.value_or(kNoLimit));
  std::vector<Bytes> limits = ParseMemoryLimits(text, scenario.ranks);
  if (limits.size() == 1) limits.assign(ranks, limits[0]);
  return limits;
}

struct SearchCommand {
  ScenarioOptions scenario;
  SearchFlags flags;
  std::optional<std::string> csv;
  std::optional<std::string> comms_csv;
  std::optional<std::string> json;

  void Run() const {
    flags.CheckBudget();
    LoadedScenario from = scenario.Load();
    Scenario& loaded = from.scenario;
    for (const std::string& warning : loaded.warnings) Warn("warning: " + warning + "\n");
    const std::vector<std::string> inputs = from.files;
    CheckOutputs({{"--export", csv}, {"--export-comms", comms_csv}, {"--json", json}}, inputs);
    const std::vector<Bytes> room = LimitsOf(flags.limits, loaded);
    const Bytes most = *std::max_element(room.begin(), room.end());
    if (most != kNoLimit) loaded.memory_limit = most;
    const Objective wanted = ParseObjectiveWord(flags.objective);
    const PlayOptions play{.tail = ParseSearchTail(flags.tail)};
    const FoundInAll found = Find(loaded, room, wanted, play.tail);
    const Orders& orders = found.best.answer.orders;
    Compared compared = Compare(loaded, Choices(loaded, orders), play);
    Comparison& comparison = compared.comparison;
    comparison.whole_catalog = false;
    // Which may know more: a limit for each rank, an integer program's bound.
    if (wanted == Objective::kSpan) comparison.results[0].certificate = found.best.certificate;
    comparison.provenance = WithSplits(std::move(from), comparison.results);
    if (json.value_or("") != "-") {
      Print(CompareTable(comparison) + Verdict(found, wanted));
    }
    if (csv) WriteOutput(*csv, ToTorchCsv(Schedule(orders)), inputs);
    if (comms_csv) WriteOutput(*comms_csv, ToTorchCommsCsv(Schedule(orders)), inputs);
    if (json) WriteOutput(*json, AsJson(comparison, found), inputs);
  }

 private:
  FoundInAll Find(const Scenario& loaded, const std::vector<Bytes>& room, Objective wanted,
                  Tail with_tail) const {
    const OnInterrupt on_interrupt;
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
    FoundInAll found = SearchPlacements(loaded, ParsePlacementWord(flags.placement, loaded), room,
                                        wanted, with_tail, options);
    if (shows) Warn("\r\033[K");
    for (const std::string& why : found.passed_over) Warn("passed over " + why + "\n");
    return found;
  }

  // What was found, then all named schedules.
  static std::vector<ScheduleChoice> Choices(const Scenario& loaded, const Orders& orders) {
    std::vector<ScheduleChoice> choices = {
        {.name = "search", .info = nullptr, .orders = orders, .notes = {}}};
    const Shape shape{.ranks = loaded.ranks,
                      .micro_batches = loaded.micro_batches,
                      .stages_per_rank = loaded.stages_per_rank,
                      .group = loaded.group};
    for (const ScheduleInfo& info : AllSchedules()) {
      if (!info.Refusal(shape)) choices.push_back(NamedSchedule(info.name));
    }
    return choices;
  }

  static std::string Verdict(const FoundInAll& found, Objective wanted) {
    const Certificate& c = found.best.certificate;
    std::string text =
        fmt::format("\nsearch: {} {}, {} placement; no order there can be below {} ({}): {}\n",
                    Name(wanted), FormatTime(c.value), Name(found.best.placement.form),
                    FormatTime(c.lower_bound), c.bound.reason,
                    c.proved_optimal ? "proved optimal"
                                     : fmt::format("at most {:.2f} % above the best", 100 * c.gap));
    for (const Found& other : found.all) {
      if (other.placement == found.best.placement) continue;
      text += fmt::format("        {}: {}, gap {:.2f} %\n", Name(other.placement.form),
                          FormatTime(other.answer.value), 100 * other.certificate.gap);
    }
    return text + fmt::format("        {} evaluations in {:.1f} s\n", TotalEvaluations(found),
                              TotalSeconds(found));
  }

  static int64_t TotalEvaluations(const FoundInAll& found) {
    int64_t sum = 0;
    for (const Found& f : found.all) sum += f.answer.evaluations;
    return sum;
  }
  static double TotalSeconds(const FoundInAll& found) {
    double sum = 0;
    for (const Found& f : found.all) sum += f.answer.seconds;
    return sum;
  }

  std::string AsJson(const Comparison& comparison, const FoundInAll& found) const {
    auto all = nlohmann::ordered_json::parse(ToJson(comparison));
    const Certificate& c = found.best.certificate;
    all["objective"] = flags.objective;
    all["value_ns"] = c.value;
    AddCertificate(c, &all);
    all["placement"] = Name(found.best.placement.form);
    all["stages_per_rank"] = found.best.placement.stages_per_rank;
    all["seconds"] = TotalSeconds(found);
    all["evaluations"] = TotalEvaluations(found);
    all["seed"] = flags.seed;
    return all.dump(2) + "\n";
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
                       "Bytes of a rank, or one number for each rank with commas between (default: "
                       "the scenario's)",
                       "How long to search");
  sub->add_option("--export", command->csv, "Write the order found as a PyTorch CSV to FILE");
  sub->add_option("--export-comms", command->comms_csv,
                  "The same with sends and receives, placed so that nothing can deadlock");
  sub->add_option("--json", command->json, "Write the results as JSON to FILE (- for stdout)");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
