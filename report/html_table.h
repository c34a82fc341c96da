// The comparison as a table of the page. Every number also stands, unrounded and under its name in
// the JSON, in the cell's data-key and data-value.
#pragma once

#include <string>

#include "report/result.h"

namespace spiritlevel {

std::string HtmlTable(const Comparison& comparison, const std::string& advised);

}  // namespace spiritlevel
