// What a document tells its reader to type, in its fenced blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spiritlevel {

struct Commands {
  std::vector<std::string> programs;     // "./run_tests" -> "run_tests"; none below build/
  std::vector<std::string> subcommands;  // "spiritlevel compare ..." -> "compare"
  std::vector<std::string> flags;        // of spiritlevel: "--schedule"
  std::vector<std::string> scenarios;    // "scenarios/x.textproto"
};

// Each once, sorted. A line of a fenced block is a command when its first word (after a "$") ends
// in the name of one of our programs; everything else is what the command prints.
Commands CommandsIn(std::string_view markdown);

}  // namespace spiritlevel
