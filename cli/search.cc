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
#include "cli/search_words.h"
#include "cli/searching.h"
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
  std::string objective = "span";
  std::string placement = "linear";
  std::string tail = "barrier";
  std::string limits;
  double seconds = 20;
  int64_t evaluations = 0;
  uint64_t seed = 1;
  int threads = 0;
  std::optional<std::string> csv;
  std::optional<std::string> comms_csv;
  std::optional<std::string> json;

  void Run() const {
    LoadedScenario from = scenario.Load();
    Scenario& loaded = from.scenario;
    for (const std::string& warning : loaded.warnings) Warn("warning: " + warning + "\n");
    const std::vector<std::string> inputs = from.files;
    CheckOutputs({{"--export", csv}, {"--export-comms", comms_csv}, {"--json", json}}, inputs);
    const std::vector<Bytes> room = LimitsOf(limits, loaded);
    const Bytes most = *std::max_element(room.begin(), room.end());
    if (most != kNoLimit) loaded.memory_limit = most;
    const Objective wanted = ParseObjectiveWord(objective);
    const PlayOptions play{.tail = ParseSearchTail(tail)};
    const FoundInAll found = Find(loaded, room, wanted, play.tail);
    const Orders& orders = found.best.answer.orders;
    Compared compared = Compare(loaded, Choices(loaded, orders), play);
    Comparison& comparison = compared.comparison;
    comparison.whole_catalog = false;
    comparison.provenance = WithSplits(std::move(from), comparison.results);
    if (json.value_or("") != "-") {
      Print(CompareTable(comparison) + Verdict(found, wanted));
    }
    if (csv) WriteOutput(*csv, ToTorchCsv(Schedule(orders)), inputs);
    if (comms_csv) WriteOutput(*comms_csv, ToTorchCommsCsv(Schedule(orders)), inputs);
    if (json) WriteOutput(*json, AsJson(comparison, found), inputs);
  }

 private:
  void CheckBudget() const {
    if (!(seconds > 0) || seconds > 86'400) {
      throw InputError(fmt::format("--seconds: {} is not above 0 and at most 86400", seconds),
                       "20 are enough for most");
    }
    if (evaluations < 0 || evaluations > int64_t{1} << 40) {
      throw InputError(fmt::format("--evaluations: {} is not between 1 and 2^40", evaluations),
                       "100000 are enough for most; leave it out for a budget of time");
    }
    if (threads < 0 || threads > 1024) {
      throw InputError(fmt::format("--threads: {} is not between 1 and 1024", threads),
                       "leave it out for one for each core");
    }
  }

  FoundInAll Find(const Scenario& loaded, const std::vector<Bytes>& room, Objective wanted,
                  Tail with_tail) const {
    CheckBudget();
    const OnInterrupt on_interrupt;
    const bool shows = ::isatty(STDERR_FILENO) != 0;
    SearchOptions options{.seconds = seconds,
                          .evaluations = evaluations,
                          .seed = seed,
                          .threads = threads,
                          .stop = &interrupted};
    double told = -1;
    options.observer = [&](double done, TimeNs best) {
      if (!shows || done < told + 0.01) return;
      told = done;
      Warn(fmt::format("\r\033[K{:.0f} %, best so far {}", 100 * done, FormatTime(best)));
    };
    FoundInAll found = SearchPlacements(loaded, ParsePlacementWord(placement, loaded), room, wanted,
                                        with_tail, options);
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
    all["objective"] = objective;
    all["value_ns"] = c.value;
    all["lower_bound_ns"] = c.lower_bound;
    all["lower_bound_reason"] = c.bound.reason;
    all["gap"] = c.gap;
    all["proved_optimal"] = c.proved_optimal;
    all["placement"] = Name(found.best.placement.form);
    all["stages_per_rank"] = found.best.placement.stages_per_rank;
    all["seconds"] = TotalSeconds(found);
    all["evaluations"] = TotalEvaluations(found);
    all["seed"] = seed;
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
  sub->add_option("--objective", command->objective,
                  "What is to be least: span (the largest rank span), makespan (with the tail), or "
                  "step (the period under the tail)")
      ->capture_default_str();
  sub->add_option("--placement", command->placement, "linear, looped, v, or the best of them")
      ->capture_default_str();
  sub->add_option("--tail", command->tail, "barrier or none")->capture_default_str();
  sub->add_option("--memory-limit", command->limits,
                  "Bytes of a rank, or one number for each rank with commas between (default: the "
                  "scenario's)");
  sub->add_option("--seconds", command->seconds, "How long to search")->capture_default_str();
  sub->add_option("--evaluations", command->evaluations,
                  "How many orders to try, in place of a time: the answer then depends on this and "
                  "the seed alone");
  sub->add_option("--seed", command->seed, "Of the random choices")->capture_default_str();
  sub->add_option("--threads", command->threads, "Default: one for each core");
  sub->add_option("--export", command->csv, "Write the order found as a PyTorch CSV to FILE");
  sub->add_option("--export-comms", command->comms_csv,
                  "The same with sends and receives, placed so that nothing can deadlock");
  sub->add_option("--json", command->json, "Write the results as JSON to FILE (- for stdout)");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
