// The workflow of docs/gate.md, as the program and the build have it: whoever copies it gets what
// the page says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/run_binary.h"

namespace spiritlevel {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> WordsOf(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::string Between(const std::string& text, const std::string& from, const std::string& to) {
  const size_t begin = text.find(from);
  if (begin == std::string::npos) return "";
  const size_t after = begin + from.size();
  return text.substr(after, text.find(to, after) - after);
}

std::string Workflow() { return Between(Read("docs/gate.md"), "```yaml\n", "```"); }

// The words of the one command that begins with `program`, over the lines that it goes on.
std::vector<std::string> CommandOf(const std::string& program) {
  std::istringstream lines(Workflow());
  std::string command;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(' ');
    if (command.empty()) {
      if (first == std::string::npos || line.compare(first, program.size(), program) != 0) continue;
    }
    const bool goes_on = line.ends_with('\\');
    command += line.substr(0, line.size() - (goes_on ? 1 : 0));
    command += " ";
    if (!goes_on) break;
  }
  return WordsOf(command);
}

// What the workflow runs, with its files in `folder`.
std::vector<std::string> GateArguments(const Folder& folder) {
  std::vector<std::string> words = CommandOf("build/cli/spiritlevel gate");
  EXPECT_GT(words.size(), 4u) << Workflow();
  if (words.empty()) return {};
  std::vector<std::string> arguments;
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    if (*word == "pipeline/*.textproto") {  // as a shell has it
      arguments.push_back(folder.Path("a.textproto"));
      arguments.push_back(folder.Path("b.textproto"));
    } else if (word->find('.') != std::string::npos && word->find('=') == std::string::npos) {
      arguments.push_back(folder.Path(word->substr(word->rfind('/') + 1)));
    } else {
      arguments.push_back(*word);
    }
  }
  return arguments;
}

TEST(GateExample, ItsCommandPassesFailsAndWritesAsThePageSays) {
  const Folder folder;
  folder.Write("a.textproto", Read("scenarios/example.textproto"));
  folder.Write("b.textproto", Read("scenarios/uneven-stages.textproto"));
  const std::vector<std::string> arguments = GateArguments(folder);
  EXPECT_EQ(RunSpiritlevel(arguments).status, 2);  // no baseline yet
  EXPECT_THAT(folder.Names(), Not(Contains("gate.md")));

  std::vector<std::string> update = arguments;
  update.push_back("--update");
  const Outcome made = RunSpiritlevel(update);
  ASSERT_EQ(made.status, 0) << made.err;
  const Outcome again = RunSpiritlevel(arguments);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(Read(folder.Path("gate.md")),
              HasSubstr("nothing changed on 14 schedules on 2 scenarios"));

  auto baseline = nlohmann::ordered_json::parse(Read(folder.Path("gate.json")));
  auto& makespan = baseline["scenarios"][0]["results"][0]["makespan_ns"];
  makespan = makespan.get<int64_t>() - 1;
  folder.Write("gate.json", baseline.dump(2));
  const Outcome worse = RunSpiritlevel(arguments);
  EXPECT_EQ(worse.status, 1) << worse.out << worse.err;
  EXPECT_THAT(Read(folder.Path("gate.md")), HasSubstr("makespan"));
  EXPECT_THAT(Read(folder.Path("gate.xml")), HasSubstr("<failure "));
}

// Else the build step of a clean machine stops somewhere.
TEST(GateExample, InstallsWhatTheProgramIsBuiltWith) {
  const std::vector<std::string> installed = CommandOf("sudo apt-get install");
  const std::vector<std::string> needed =
      WordsOf(Between(Read("scripts/lib.sh"), "BUILD_PACKAGES=(", ")"));
  ASSERT_GT(needed.size(), 5u);
  for (const std::string& package : needed) EXPECT_THAT(installed, Contains(package));
}

TEST(GateExample, SetsNoOptionThatTheBuildDoesNotHave) {
  const std::string build = Read("CMakeLists.txt");
  int options = 0;
  for (const std::string& word : CommandOf("cmake -S")) {
    if (!word.starts_with("-DSPIRITLEVEL_")) continue;
    ++options;
    EXPECT_THAT(build, HasSubstr("option(" + word.substr(2, word.find('=') - 2) + " "));
  }
  EXPECT_GT(options, 0);
}

}  // namespace
}  // namespace spiritlevel
