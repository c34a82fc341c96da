// The words and numbers that say what a search is about, as flags have them. Each throws InputError
// for what is none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/scenario.h"
#include "sim/search/problem.h"

namespace spiritlevel {

Objective ParseObjectiveWord(const std::string& word);
Tail ParseSearchTail(const std::string& word);

// "best": linear, V, and looped with the scenario's stages per rank, if that is more than one.
// `asked` is --stages-per-rank where it is given: it must be what the placement has.
std::vector<Placement> ParsePlacementWord(const std::string& word, const Scenario& scenario,
                                          std::optional<int> asked = {});

// A size ("60GiB"), or one for each rank with commas between: as many as are given.
std::vector<Bytes> ParseMemoryLimits(const std::string& text, int ranks);

// 0 to 2^64 - 1, and nothing that would have to be wrapped to be one of them.
uint64_t ParseSeed(const std::string& text);

}  // namespace spiritlevel
