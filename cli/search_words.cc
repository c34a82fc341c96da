#include "cli/search_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace spiritlevel {

Objective ParseObjectiveWord(const std::string& word) {
  for (const Objective o : {Objective::kSpan, Objective::kMakespan, Objective::kStep}) {
    if (Name(o) == word) return o;
  }
  throw InputError(fmt::format("--objective: there is no \"{}\"", word),
                   "there is span, makespan, step");
}

Tail ParseSearchTail(const std::string& word) {
  if (word == Name(Tail::kBarrier)) return Tail::kBarrier;
  if (word == Name(Tail::kNoTail)) return Tail::kNoTail;
  throw InputError(fmt::format("--tail: a search knows none and barrier, not \"{}\"", word),
                   "post-validation is played by simulate and compare");
}

std::vector<Placement> ParsePlacementWord(const std::string& word, const Scenario& scenario) {
  const int ranks = scenario.ranks;
  const Placement linear{PlacementForm::kLinear, ranks, 1};
  const Placement v{PlacementForm::kV, ranks, 2};
  const Placement looped{PlacementForm::kLooped, ranks, std::max(1, scenario.stages_per_rank)};
  if (word == Name(PlacementForm::kLinear)) return {linear};
  if (word == Name(PlacementForm::kV)) return {v};
  if (word == Name(PlacementForm::kLooped)) return {looped};
  if (word == "best") return {linear, v, looped};
  throw InputError(fmt::format("--placement: there is no \"{}\"", word),
                   "there is linear, looped, v, best");
}

std::vector<Bytes> ParseMemoryLimits(const std::string& text, int ranks) {
  std::vector<Bytes> limits;
  const char* const last = text.data() + text.size();
  for (const char* at = text.data(); at <= last;) {
    Bytes bytes = 0;
    const auto [end, error] = std::from_chars(at, last, bytes);
    const bool stops_well = end == last || *end == ',';
    if (error != std::errc() || !stops_well || bytes <= 0 || bytes > kMaxBytes) {
      throw InputError(fmt::format("--memory-limit: \"{}\" is no number of bytes from 1 to 2^50",
                                   std::string(at, last)),
                       "give bytes for all ranks, or one number for each with commas between");
    }
    limits.push_back(bytes);
    at = end + 1;
  }
  if (limits.size() == 1 || limits.size() == static_cast<size_t>(ranks)) return limits;
  throw InputError(fmt::format("--memory-limit: {} numbers for {} ranks", limits.size(), ranks),
                   "give one for all, or one for each");
}

}  // namespace spiritlevel
