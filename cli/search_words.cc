#include "cli/search_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/parse_bytes.h"

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

namespace {

void RefuseOtherStages(const Placement& placement, std::optional<int> asked) {
  if (!asked || *asked == placement.stages_per_rank) return;
  throw InputError(fmt::format("--stages-per-rank: {} placement has {} on each rank, not {}",
                               Name(placement.form), placement.stages_per_rank, *asked),
                   "leave it out, or use --placement looped");
}

}  // namespace

std::vector<Placement> ParsePlacementWord(const std::string& word, const Scenario& scenario,
                                          std::optional<int> asked) {
  const int ranks = scenario.ranks;
  const Placement linear{PlacementForm::kLinear, ranks, 1};
  const Placement v{PlacementForm::kV, ranks, 2};
  const Placement looped{PlacementForm::kLooped, ranks, std::max(1, scenario.stages_per_rank)};
  if (word == "best") {
    if (looped.stages_per_rank == 1) return {linear, v};
    return {linear, v, looped};
  }
  for (const Placement& placement : {linear, v, looped}) {
    if (Name(placement.form) != word) continue;
    RefuseOtherStages(placement, asked);
    return {placement};
  }
  throw InputError(fmt::format("--placement: there is no \"{}\"", word),
                   "there is linear, looped, v, best");
}

std::vector<Bytes> ParseMemoryLimits(const std::string& text, int ranks) {
  std::vector<Bytes> limits;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    try {
      limits.push_back(ParseBytes(std::string_view(text).substr(begin, end - begin)));
    } catch (const InputError& error) {
      throw InputError(error.problem(),
                       error.way_out() + "; for all ranks, or for each with commas between")
          .At("--memory-limit");
    }
    begin = end + 1;
  }
  if (limits.size() == 1 || limits.size() == static_cast<size_t>(ranks)) return limits;
  throw InputError(fmt::format("--memory-limit: {} sizes for {} ranks", limits.size(), ranks),
                   "give one for all, or one for each");
}

uint64_t ParseSeed(const std::string& text) {
  uint64_t seed = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, seed);
  if (error == std::errc() && end == last) return seed;
  throw InputError(fmt::format("--seed: \"{}\" is no integer from 0 to 2^64 - 1", text),
                   "any of them will do: 1, 2, ...");
}

}  // namespace spiritlevel
