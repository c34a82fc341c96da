#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/parse_bytes.h"
#include "cli/commands.h"
#include "cli/frontier_walk.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/output_list.h"
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
  std::optional<std::string> more;
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
    WriteOutputs({{json, FrontierJson(frontier)}, {html, FrontierPage(frontier)}}, from.files);
  }

 private:
  void CheckNumbers() const {
    flags.CheckBudget();
    if (points < 2 || points > kMostPoints) {
      throw InputError(fmt::format("--points: {} is not between 2 and {}", points, kMostPoints),
                       "16 show most curves well");
    }
  }

  static Bytes More(const std::string& text) {
    try {
      return ParseBytes(text);
    } catch (const InputError& error) {
      throw error.At("--more");
    }
  }

  Frontier Find(const Scenario& loaded) const {
    WalkOptions options{
        .placements = ParsePlacementWord(flags.placement, loaded, scenario.stages_per_rank),
        .objective = ParseObjectiveWord(flags.objective),
        .tail = ParseSearchTail(flags.tail),
        .points = static_cast<int>(points),
        .seconds = flags.seconds,
        .evaluations = flags.evaluations,
        .seed = flags.seed,
        .threads = flags.threads,
        .stop = &interrupted};
    options.home = loaded.memory_limit;
    options.home_from = "memory_limit_bytes";
    if (more) options.more = More(*more);
    if (!flags.limits.empty()) {
      const std::vector<Bytes> given = ParseMemoryLimits(flags.limits, loaded.ranks);
      options.home = given.front();
      options.home_from = "--memory-limit";
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
  command->flags.AddTo(*sub,
                       "Memory of a rank that there is now, as 16000 or 60GiB (default: the "
                       "scenario's); or one for each rank "
                       "with commas between, whose ratio beside static memory is then kept",
                       "How long to search, all limits together");
  sub->add_option("--points", command->points,
                  "How many limits to search under; a row is where the time falls, at a named "
                  "schedule between two of them, too")
      ->capture_default_str();
  sub->add_option("--more", command->more,
                  "How much more memory the answer asks about (default: 8 GiB, or the power of two "
                  "above a quarter of the curve's range where that is less than 16 GiB)");
  sub->add_option("--json", command->json, "Write the curve as JSON to FILE (- for stdout)");
  sub->add_option("--html", command->html, "Write a page with a chart, one file, to FILE");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
