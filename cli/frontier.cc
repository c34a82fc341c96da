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
#include "cli/search_flags.h"
#include "cli/search_words.h"
#include "report/frontier.h"

namespace spiritlevel {
namespace {

constexpr int kMostPoints = 1000;

struct FrontierCommand {
  ScenarioOptions scenario;
  SearchFlags flags;
  int64_t points = 16;
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
    frontier.placement = flags.placement;
    if (json.value_or("") != "-" && html.value_or("") != "-") {
      Print(FrontierText(frontier, OutputWidth()));
    }
    if (json) WriteOutput(*json, FrontierJson(frontier), from.files);
    if (html) WriteOutput(*html, FrontierPage(frontier), from.files);
  }

 private:
  void CheckNumbers() const {
    flags.CheckBudget();
    if (points < 2 || points > kMostPoints) {
      throw InputError(fmt::format("--points: {} is not between 2 and {}", points, kMostPoints),
                       "16 show most curves well");
    }
    if (more && (*more < 1 || *more > kMaxBytes)) {
      throw InputError(fmt::format("--more: {} is not between 1 and 2^50 bytes", *more),
                       "leave it out for 8 GiB, or a quarter of what is looked at");
    }
  }

  Frontier Find(const Scenario& loaded) const {
    WalkOptions options{.placements = ParsePlacementWord(flags.placement, loaded),
                        .objective = ParseObjectiveWord(flags.objective),
                        .tail = ParseSearchTail(flags.tail),
                        .points = static_cast<int>(points),
                        .seconds = flags.seconds,
                        .evaluations = flags.evaluations,
                        .seed = flags.seed,
                        .threads = flags.threads,
                        .stop = &interrupted};
    options.home = loaded.memory_limit;
    options.more = more;
    if (!flags.limits.empty()) {
      const std::vector<Bytes> given = ParseMemoryLimits(flags.limits, loaded.ranks);
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

}  // namespace

void AddFrontier(CLI::App& app) {
  const auto command = std::make_shared<FrontierCommand>();
  CLI::App* sub = app.add_subcommand(
      "frontier", "What more memory buys: the least time for each limit, with a bound");
  command->scenario.AddTo(*sub);
  command->scenario.AddProfileTo(*sub);
  command->flags.AddTo(
      *sub,
      "Bytes of a rank that there are now (default: the scenario's); or one number for each rank "
      "with commas between, whose ratio beside static memory is then kept",
      "How long to search, all limits together");
  sub->add_option("--points", command->points, "How many limits to look at")->capture_default_str();
  sub->add_option("--more", command->more,
                  "Bytes: how much more the answer asks about (default: 8 GiB)");
  sub->add_option("--json", command->json, "Write the curve as JSON to FILE (- for stdout)");
  sub->add_option("--html", command->html, "Write a page with a chart, one file, to FILE");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
