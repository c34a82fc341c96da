// What the gate found, for a terminal, a pull request, a CI system, and another program.
#pragma once

#include <string>

#include "report/gate.h"

namespace spiritlevel {

// A line for each thing that changed, the worst first, and one that sums up.
std::string GateText(const GateVerdict& verdict);

// A table of the same for a pull request; where nothing changed, one line. What is the user's
// cannot become markup.
std::string GateMarkdown(const GateVerdict& verdict);

// One testcase for each schedule on each scenario; what is worse is its failure.
std::string GateJUnit(const GateVerdict& verdict);

std::string GateJson(const GateVerdict& verdict, const GateRules& rules);

}  // namespace spiritlevel
