#include "cli/search_flags.h"

#include <fmt/format.h>

#include "base/check.h"
#include "cli/search_words.h"

namespace spiritlevel {

void SearchFlags::AddTo(CLI::App& command, const std::string& limits_help,
                        const std::string& seconds_help) {
  command
      .add_option("--objective", objective,
                  "What is to be least: span (the largest rank span), makespan (with the tail), or "
                  "step (the period under the tail)")
      ->capture_default_str();
  command.add_option("--placement", placement, "linear, looped, v, or the best of them")
      ->capture_default_str();
  command.add_option("--tail", tail, "barrier or none")->capture_default_str();
  command.add_option("--memory-limit", limits, limits_help);
  command.add_option("--seconds", seconds, seconds_help)->capture_default_str();
  command
      .add_option("--evaluations", evaluations,
                  "How many orders to try, in place of a time: the answer then depends on this and "
                  "the seed alone. Named schedules are tried in any case")
      ->each([this](const std::string&) { by_count_ = true; });
  command
      .add_option_function<std::string>(
          "--seed", [this](const std::string& text) { seed = ParseSeed(text); },
          "Of the random choices")
      ->default_str(fmt::format("{}", seed));
  command.add_option("--threads", threads, "Default, and at most: one for each core");
}

void SearchFlags::CheckBudget() const {
  if (!(seconds > 0) || seconds > 86'400) {
    throw InputError(fmt::format("--seconds: {} is not above 0 and at most 86400", seconds),
                     "20 are enough for most");
  }
  if (by_count_ && (evaluations < 1 || evaluations > int64_t{1} << 40)) {
    throw InputError(fmt::format("--evaluations: {} is not between 1 and 2^40", evaluations),
                     "100000 are enough for most; leave it out for a budget of time");
  }
  if (threads < 0 || threads > 1024) {
    throw InputError(fmt::format("--threads: {} is not between 1 and 1024", threads),
                     "leave it out for one for each core");
  }
}

}  // namespace spiritlevel
