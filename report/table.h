// The comparison as a table for the terminal: above it the most that any schedule could gain, a
// row for each schedule, a legend, footnotes, and one paragraph of advice.
#pragma once

#include <string>

#include "report/result.h"

namespace spiritlevel {

// 100 columns where the names of the schedules allow it. The row that is advised is marked.
std::string CompareTable(const Comparison& comparison);

// Two lines: what 1F1B takes, and the most that any schedule could gain on it. The work named there
// is the waterfall's `ideal` (of 1F1B) and the optimizer step.
std::string Headline(const Comparison& comparison);

// "posting ideal, tail barrier", with what else was chosen and is not the default.
std::string Choices(const Comparison& comparison);

// "imb" for imbalance: short names for columns.
std::string_view ShortName(StallCategory category);

}  // namespace spiritlevel
