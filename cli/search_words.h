// The words and numbers that say what a search is about, as flags have them. Each throws InputError
// for what is none.
#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.h"
#include "sim/search/problem.h"

namespace spiritlevel {

Objective ParseObjectiveWord(const std::string& word);
Tail ParseSearchTail(const std::string& word);

// "best": linear, V, and looped with the scenario's stages per rank.
std::vector<Placement> ParsePlacementWord(const std::string& word, const Scenario& scenario);

// "bytes", or one number for each rank with commas between: as many as are given.
std::vector<Bytes> ParseMemoryLimits(const std::string& text, int ranks);

}  // namespace spiritlevel
