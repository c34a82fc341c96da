#include "tests/house/readme_commands.h"

#include <set>
#include <sstream>

namespace spiritlevel {
namespace {

struct Found {
  std::set<std::string> programs;
  std::set<std::string> subcommands;
  std::set<std::string> flags;
  std::set<std::string> scenarios;
};

std::vector<std::string> WordsOf(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word && !word.starts_with("#");) words.push_back(word);
  return words;
}

bool IsSpiritlevel(const std::string& program) {
  return program == "spiritlevel" || program.ends_with("/spiritlevel");
}

void AddSpiritlevel(const std::vector<std::string>& words, size_t program, Found* found) {
  for (size_t i = program + 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.starts_with("--")) {
      found->flags.insert(word.substr(0, word.find('=')));
    } else if (i == program + 1 && !word.starts_with("-")) {
      found->subcommands.insert(word);
    }
  }
}

void AddLine(const std::string& line, Found* found) {
  const std::vector<std::string> words = WordsOf(line);
  const size_t program = !words.empty() && words[0] == "$" ? 1 : 0;
  if (program >= words.size()) return;
  const std::string& name = words[program];
  if (IsSpiritlevel(name)) {
    AddSpiritlevel(words, program, found);
  } else if (name.starts_with("./")) {
    found->programs.insert(name.substr(2));
  } else {
    return;
  }
  for (const std::string& word : words) {
    if (word.starts_with("scenarios/")) found->scenarios.insert(word);
  }
}

// Commands that go on after a backslash are one line.
std::vector<std::string> FencedLines(std::string_view markdown) {
  std::istringstream text{std::string(markdown)};
  std::vector<std::string> lines;
  bool fenced = false;
  bool goes_on = false;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
      goes_on = false;
      continue;
    }
    if (!fenced) continue;
    const bool more = line.ends_with('\\');
    if (more) line.pop_back();
    if (goes_on) {
      lines.back() += " " + line;
    } else {
      lines.push_back(line);
    }
    goes_on = more;
  }
  return lines;
}

}  // namespace

Commands CommandsIn(std::string_view markdown) {
  Found found;
  for (const std::string& line : FencedLines(markdown)) AddLine(line, &found);
  return {.programs = {found.programs.begin(), found.programs.end()},
          .subcommands = {found.subcommands.begin(), found.subcommands.end()},
          .flags = {found.flags.begin(), found.flags.end()},
          .scenarios = {found.scenarios.begin(), found.scenarios.end()}};
}

}  // namespace spiritlevel
