// The HTML report of what compare and simulate have played.
#pragma once

#include <string>
#include <vector>

#include "cli/play.h"

namespace spiritlevel {

// Writes it to `path`, with the scenario's text, where the numbers come from and the command;
// `inputs` as of WriteOutput().
void WritePage(const std::string& path, const Comparison& comparison, std::vector<HtmlRun> runs,
               const std::string& scenario_file, const std::vector<std::string>& inputs,
               const std::string& command_line);

}  // namespace spiritlevel
