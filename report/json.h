// The comparison for another program. Field names are a promise; docs/ lists them.
#pragma once

#include <string>

#include "report/result.h"

namespace spiritlevel {

// One object, indented, with a line break at its end. A schedule that could not run has every key
// too, its numbers null.
std::string ToJson(const Comparison& comparison);

}  // namespace spiritlevel
