#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/frontier_walk.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/search_words.h"
#include "report/frontier.h"

namespace spiritlevel {
namespace {

constexpr int kMostPoints = 1000;

struct FrontierCommand {
  ScenarioOptions scenario;
  std::string objective = "span";
  std::string placement = "linear";
  std::string tail = "barrier";
  std::string limits;
  int64_t points = 16;
  double seconds = 20;
  int64_t evaluations = 0;
  uint64_t seed = 1;
  int threads = 0;
  std::optional<int64_t> more;
  std::optional<std::string> json;
  std::optional<std::string> html;

  void Run() const {
    CheckNumbers();
    const LoadedScenario from = scenario.Load();
    const Scenario& loaded = from.scenario;
    for (const std::string& warning : loaded.warnings) Warn("warning: " + warning + "\n");
    CheckOutputs({{"--json", json}, {"--html", html}}, from.files);
    Frontier frontier = Find(loaded);
    frontier.placement = placement;
    if (json.value_or("") != "-" && html.value_or("") != "-") {
      Print(FrontierText(frontier, OutputWidth()));
    }
    if (json) WriteOutput(*json, FrontierJson(frontier), from.files);
    if (html) WriteOutput(*html, FrontierPage(frontier), from.files);
  }

 private:
  void CheckNumbers() const {
    if (points < 2 || points > kMostPoints) {
      throw InputError(fmt::format("--points: {} is not between 2 and {}", points, kMostPoints),
                       "16 show most curves well");
    }
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
    if (more && (*more < 1 || *more > kMaxBytes)) {
      throw InputError(fmt::format("--more: {} is not between 1 and 2^50 bytes", *more),
                       "leave it out for 8 GiB, or a quarter of what is looked at");
    }
  }

  Frontier Find(const Scenario& loaded) const {
    WalkOptions options{.placements = ParsePlacementWord(placement, loaded),
                        .objective = ParseObjectiveWord(objective),
                        .tail = ParseSearchTail(tail),
                        .points = static_cast<int>(points),
                        .seconds = seconds,
                        .evaluations = evaluations,
                        .seed = seed,
                        .threads = threads,
                        .stop = &interrupted};
    options.home = loaded.memory_limit;
    options.more = more;
    if (!limits.empty()) {
      const std::vector<Bytes> given = ParseMemoryLimits(limits, loaded.ranks);
      options.home = *std::max_element(given.begin(), given.end());
      if (given.size() > 1) options.ratio = given;
    }
    const OnInterrupt on_interrupt;
    const bool shows = ::isatty(STDERR_FILENO) != 0;
    options.observer = [&](int done, double share) {
      if (shows) Warn(fmt::format("\r\033[K{:.0f} %, {} limits", 100 * share, done));
    };
    Frontier frontier = WalkFrontier(loaded, options);
    if (shows) Warn("\r\033[K");
    for (const std::string& why : frontier.passed_over) Warn("passed over " + why + "\n");
    return frontier;
  }
};

void AddBudget(CLI::App& sub, FrontierCommand& command) {
  sub.add_option("--points", command.points, "How many limits to look at")->capture_default_str();
  sub.add_option("--seconds", command.seconds, "How long to search, all limits together")
      ->capture_default_str();
  sub.add_option("--evaluations", command.evaluations,
                 "How many orders to try, in place of a time: the answer then depends on this and "
                 "the seed alone");
  sub.add_option("--seed", command.seed, "Of the random choices")->capture_default_str();
  sub.add_option("--threads", command.threads, "Default: one for each core");
}

}  // namespace

void AddFrontier(CLI::App& app) {
  const auto command = std::make_shared<FrontierCommand>();
  CLI::App* sub = app.add_subcommand(
      "frontier", "What more memory buys: the least time for each limit, with a bound");
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
                  "Bytes of a rank that there are now (default: the scenario's); or one number for "
                  "each rank with commas between, whose ratio beside static memory is then kept");
  sub->add_option("--more", command->more,
                  "Bytes: how much more the answer asks about (default: 8 GiB)");
  AddBudget(*sub, *command);
  sub->add_option("--json", command->json, "Write the curve as JSON to FILE (- for stdout)");
  sub->add_option("--html", command->html, "Write a page with a chart, one file, to FILE");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
