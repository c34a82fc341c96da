// The comparison in five lines, for whoever reads no table.
#pragma once

#include <string>

#include "report/result.h"

namespace spiritlevel {

// Which schedule and its step; against 1F1B; where its time goes; memory; how sure this is. Always
// five lines.
std::string FiveLines(const Comparison& comparison);

}  // namespace spiritlevel
