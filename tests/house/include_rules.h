// Who may include whom: DESIGN.md's table, and the finer rules inside sim/.
//
//   for (const std::string& bad : BadIncludes(ReadTree(".", {".h", ".cc", ".cu"}))) ...
//   // "sim/lower.cc:12: "report/table.h": sim/ may not include report/"
#pragma once

#include <string>
#include <vector>

#include "tests/house/source_tree.h"

namespace spiritlevel {

// One line for each #include that breaks a rule, in the order of `files`. An include counts where
// it is written; what it brings along counts in the file it brings it from.
std::vector<std::string> BadIncludes(const std::vector<SourceFile>& files);

}  // namespace spiritlevel
