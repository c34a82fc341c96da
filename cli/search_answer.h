// What a search tells: in words for people, as JSON for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/searching.h"
#include "report/result.h"
#include "report/torch_csv.h"

namespace spiritlevel {

// All that is known when the search is over. The first result of `comparison` is the order found.
struct SearchReport {
  const Comparison& comparison;
  const FoundInAll& found;
  // As it is exported; nothing of a search whose order no file can hold.
  const std::optional<NumberedSchedule>& exported;
  std::vector<std::string> left_out{};  // named schedules that were not played
  Objective objective = Objective::kSpan;
  uint64_t seed = 0;
};

// The lines under the table: what was found, how good it is, what was not looked at.
std::string SearchVerdict(const SearchReport& report);

// What the micro-batches of a CSV are; empty where they are called as in the scenario.
std::string MicroBatchesOf(const NumberedSchedule& exported);

std::string SearchJson(const SearchReport& report);

}  // namespace spiritlevel
