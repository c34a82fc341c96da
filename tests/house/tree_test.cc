// The house rules, on this tree. CTest runs tests in the root of the source tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/house/include_rules.h"
#include "tests/house/readme_commands.h"
#include "tests/house/source_tree.h"

namespace spiritlevel {
namespace {

using testing::Contains;
using testing::Field;
using testing::IsEmpty;

class Tree : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists("tests/house/tree_test.cc"))
        << "run this in the root of the source tree";
  }
};

std::vector<SourceFile> Code() { return ReadTree(".", {".h", ".cc", ".cu", ".cuh"}); }

// An empty list of files would keep every rule.
TEST_F(Tree, IsReadWhole) {
  const std::vector<SourceFile> code = Code();
  for (const char* const path : {"base/check.h", "sim/op.cc", "tests/house/tree_test.cc"}) {
    EXPECT_THAT(code, Contains(Field(&SourceFile::path, path)));
  }
  EXPECT_TRUE(std::all_of(code.begin(), code.end(),
                          [](const SourceFile& file) { return !file.text.empty(); }));
}

TEST_F(Tree, HasOnlyTheArrowsOfItsDesign) { EXPECT_THAT(BadIncludes(Code()), IsEmpty()); }

// A longer file is two files.
TEST_F(Tree, NoFileOfCodeIsLongerThan600Lines) {
  constexpr auto kMaxLines = 600;
  for (const SourceFile& file : Code()) {
    EXPECT_LE(std::count(file.text.begin(), file.text.end(), '\n'), kMaxLines) << file.path;
  }
}

TEST_F(Tree, EveryHeaderIsIncludedOnce) {
  for (const SourceFile& file : ReadTree(".", {".h", ".cuh"})) {
    EXPECT_NE(file.text.find("\n#pragma once\n"), std::string::npos) << file.path;
  }
}

// The first of two definitions of one name is linked for both, and nobody says so.
TEST_F(Tree, NoTypeIsDefinedInTwoHeaders) {
  const std::regex line(R"(^namespace ([\w:]+) \{|^(?:struct|class) (\w+)[^;]*\{)");
  std::map<std::string, std::string> where;  // by name with namespace
  int found = 0;
  for (const SourceFile& file : ReadTree(".", {".h", ".cuh"})) {
    std::istringstream text(file.text);
    std::string space;
    for (std::string row; std::getline(text, row);) {
      std::smatch match;
      if (!std::regex_search(row, match, line)) continue;
      if (match[1].matched) {
        space = match[1];
        continue;
      }
      ++found;
      const std::string name = space + "::" + match[2].str();
      const auto [at, is_new] = where.try_emplace(name, file.path);
      EXPECT_TRUE(is_new || at->second == file.path)
          << name << " is defined in " << at->second << " and in " << file.path;
    }
  }
  EXPECT_GT(found, 100);
}

std::string Readme() {
  for (const SourceFile& file : ReadTree(".", {".md"})) {
    if (file.path == "README.md") return file.text;
  }
  return "";
}

TEST_F(Tree, TheProgramsAndScenariosOfTheReadmeExist) {
  const Commands commands = CommandsIn(Readme());
  EXPECT_THAT(commands.programs, Contains("quickstart"));
  EXPECT_THAT(commands.programs, Contains("run_tests"));
  for (const auto& paths : {commands.programs, commands.scenarios}) {
    for (const std::string& path : paths) EXPECT_TRUE(std::filesystem::exists(path)) << path;
  }
}

// Named in the command line's code as "compare", "--chart" or "-o,--output".
TEST_F(Tree, TheSubcommandsAndFlagsOfTheReadmeExist) {
  std::string cli;
  for (const SourceFile& file : Code()) {
    if (file.path.starts_with("cli/")) cli += file.text;
  }
  const Commands commands = CommandsIn(Readme());
  EXPECT_THAT(commands.subcommands, Contains("compare"));
  for (const std::string& name : commands.subcommands) {
    EXPECT_NE(cli.find('"' + name + '"'), std::string::npos) << "spiritlevel " << name;
  }
  for (const std::string& flag : commands.flags) {
    if (flag == "--help") continue;  // the library's own
    EXPECT_NE(cli.find(flag), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace spiritlevel
