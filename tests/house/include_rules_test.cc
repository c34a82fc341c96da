// The rules themselves, on trees made up here: each kind of bad include is refused, by name.
#include "tests/house/include_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// A small tree with one header in each place, and `path` which includes `include`.
std::vector<std::string> BadIncludesWith(const std::string& path, const std::string& include) {
  std::vector<SourceFile> files;
  for (const char* const header : {"base/check.h",
                                   "sim/op.h",
                                   "sim/event.h",
                                   "sim/program.h",
                                   "sim/engine.h",
                                   "sim/schedule.h",
                                   "sim/timeline.h",
                                   "sim/event_queue.h",
                                   "sim/schedules/generators.h",
                                   "sim/search/search.h",
                                   "sim/analysis/stalls.h",
                                   "sim/analysis/check_timeline.h",
                                   "models/slices.h",
                                   "kernels/gemm.h",
                                   "calibrate/fit.h",
                                   "verify/run.h",
                                   "report/table.h",
                                   "scenarios/scenario.h",
                                   "cli/commands.h",
                                   "tests/base/folder.h",
                                   "bench/shapes.h"}) {
    files.push_back({header, "#pragma once\n#include <vector>\n"});
  }
  files.push_back({path, "// a comment\n#include " + include + "  // why\n"});
  return BadIncludes(files);
}

// Every arrow between two different folders that DESIGN.md allows.
TEST(IncludeRules, AllowTheArrowsOfTheTableAndNoOthers) {
  const std::vector<std::string> headers = {
      "sim/op.h",           "models/slices.h", "kernels/gemm.h",       "calibrate/fit.h",
      "verify/run.h",       "report/table.h",  "scenarios/scenario.h", "cli/commands.h",
      "proto/scenario.pb.h"};
  struct Row {
    std::string from;
    std::string allowed;  // one letter for each of `headers`: y or n
  };
  const std::vector<Row> table = {
      // sim models kernels calibrate verify report scenarios cli proto
      {"base", "nnnnnnnnn"},    {"sim", "ynnnnnnnn"},       {"models", "yynnnnnnn"},
      {"kernels", "nnynnnnnn"}, {"calibrate", "nyyynnnny"}, {"verify", "yyynynnnn"},
      {"report", "yynnnynny"},  {"scenarios", "yynnnnyny"}, {"cli", "yyyyyyyyy"},
      {"tests", "yyyyyyyyy"},   {"bench", "yyyyyyyyy"},
  };
  for (const Row& row : table) {
    for (size_t i = 0; i < headers.size(); ++i) {
      const auto bad = BadIncludesWith(row.from + "/new.cc", "\"" + headers[i] + "\"");
      EXPECT_EQ(bad.empty(), row.allowed[i] == 'y') << row.from << " includes " << headers[i];
    }
    EXPECT_THAT(BadIncludesWith(row.from + "/new.cc", "\"base/check.h\""), IsEmpty());
  }
}

TEST(IncludeRules, NameTheFileTheLineAndTheArrow) {
  EXPECT_THAT(BadIncludesWith("sim/new.cc", "\"report/table.h\""),
              ElementsAre("sim/new.cc:2: \"report/table.h\": sim/ may not include report/"));
}

TEST(IncludeRules, ProductNeverIncludesTests) {
  EXPECT_THAT(BadIncludesWith("cli/new.cc", "\"tests/base/folder.h\""),
              ElementsAre(HasSubstr("cli/ may not include tests/")));
  EXPECT_THAT(BadIncludesWith("sim/new.cc", "\"bench/shapes.h\""),
              ElementsAre(HasSubstr("sim/ may not include bench/")));
}

TEST(IncludeRules, EnginesKnowNoGeneratorAndNoAnalysis) {
  for (const char* const header :
       {"\"sim/schedules/generators.h\"", "\"sim/search/search.h\"", "\"sim/analysis/stalls.h\""}) {
    EXPECT_THAT(BadIncludesWith("sim/engine_in_order.cc", header),
                ElementsAre(AllOf(StartsWith("sim/engine_in_order.cc:2"), HasSubstr("engines"))));
  }
  EXPECT_THAT(BadIncludesWith("sim/engine_in_order.cc", "\"sim/program.h\""), IsEmpty());
}

TEST(IncludeRules, GeneratorsNeverLookAtWhatBecomesOfTheirOrders) {
  for (const char* const header : {"\"sim/program.h\"", "\"sim/engine.h\"", "\"sim/timeline.h\"",
                                   "\"sim/event.h\"", "\"sim/analysis/stalls.h\""}) {
    EXPECT_THAT(BadIncludesWith("sim/schedules/new.cc", header),
                ElementsAre(HasSubstr("generator")));
  }
  EXPECT_THAT(BadIncludesWith("sim/schedules/new.cc", "\"sim/op.h\""), IsEmpty());
}

TEST(IncludeRules, TheCheckerSharesNoCodeWithWhatItJudges) {
  for (const char* const header :
       {"\"sim/schedule.h\"", "\"sim/program.h\"", "\"sim/engine.h\"", "\"sim/timeline.h\"",
        "\"sim/event_queue.h\"", "\"sim/schedules/generators.h\"", "\"sim/search/search.h\""}) {
    EXPECT_THAT(BadIncludesWith("sim/analysis/check_new.cc", header),
                ElementsAre(HasSubstr("checker")));
    EXPECT_THAT(BadIncludesWith("sim/analysis/check_new.h", header),
                ElementsAre(HasSubstr("checker")));
  }
  EXPECT_THAT(BadIncludesWith("sim/analysis/check_new.cc", "\"sim/event.h\""), IsEmpty());
  EXPECT_THAT(BadIncludesWith("sim/analysis/stalls.cc", "\"sim/program.h\""), IsEmpty());
}

TEST(IncludeRules, BoostIsForTheCheckerAndTests) {
  const std::string graph = "<boost/graph/topological_sort.hpp>";
  EXPECT_THAT(BadIncludesWith("sim/analysis/check_new.cc", graph), IsEmpty());
  EXPECT_THAT(BadIncludesWith("tests/sim/new.cc", graph), IsEmpty());
  EXPECT_THAT(BadIncludesWith("sim/engine_in_order.cc", graph), ElementsAre(HasSubstr("boost/")));
  EXPECT_THAT(BadIncludesWith("models/new.cc", graph), ElementsAre(HasSubstr("boost/")));
}

TEST(IncludeRules, ProtobufGoesNoFurtherThanWhereItIsRead) {
  const std::string message = "<google/protobuf/message.h>";
  EXPECT_THAT(BadIncludesWith("scenarios/new.cc", message), IsEmpty());
  EXPECT_THAT(BadIncludesWith("sim/new.cc", message), ElementsAre(HasSubstr("google/protobuf/")));
  EXPECT_THAT(BadIncludesWith("models/new.cc", message),
              ElementsAre(HasSubstr("google/protobuf/")));
}

TEST(IncludeRules, SimKnowsOfOtherLibrariesOnlyFmtAndBoost) {
  EXPECT_THAT(BadIncludesWith("sim/new.cc", "<fmt/format.h>"), IsEmpty());
  for (const char* const header :
       {"<nlohmann/json.hpp>", "<CLI/CLI.hpp>", "<Eigen/Dense>", "<gtest/gtest.h>"}) {
    EXPECT_EQ(BadIncludesWith("sim/new.cc", header).size(), 1u) << header;
  }
}

TEST(IncludeRules, TestLibrariesStayInTests) {
  EXPECT_THAT(BadIncludesWith("report/new.cc", "<gtest/gtest.h>"),
              ElementsAre(HasSubstr("gtest/")));
  EXPECT_THAT(BadIncludesWith("report/new.cc", "<benchmark/benchmark.h>"),
              ElementsAre(HasSubstr("benchmark/")));
}

TEST(IncludeRules, SystemHeadersAreNotTheirBusiness) {
  EXPECT_THAT(BadIncludesWith("sim/new.cc", "<vector>"), IsEmpty());
  EXPECT_THAT(BadIncludesWith("base/new.cc", "<sys/stat.h>"), IsEmpty());
}

TEST(IncludeRules, RefuseAnIncludeThatIsNotWrittenFromTheRoot) {
  EXPECT_THAT(BadIncludesWith("sim/new.cc", "\"op.h\""), ElementsAre(HasSubstr("from the root")));
  EXPECT_THAT(BadIncludesWith("sim/new.cc", "\"../report/table.h\""),
              ElementsAre(HasSubstr("from the root")));
}

TEST(IncludeRules, RefuseAFileThatIsNotThere) {
  EXPECT_THAT(BadIncludesWith("sim/new.cc", "\"sim/oh.h\""), ElementsAre(HasSubstr("no such")));
}

TEST(IncludeRules, AnArrowIsNotHiddenByAngleBracketsOrSpaces) {
  EXPECT_THAT(BadIncludesWith("sim/new.cc", "<report/table.h>"),
              ElementsAre(HasSubstr("with quotes")));
  EXPECT_EQ(
      BadIncludes({{"report/table.h", ""}, {"sim/new.cc", "  #  include\t\"report/table.h\""}})
          .size(),
      1u);
}

TEST(IncludeRules, RefuseAFolderThatIsNotInTheTable) {
  EXPECT_THAT(BadIncludesWith("utils/new.cc", "<vector>"),
              ElementsAre("utils/new.cc: its folder is not in DESIGN.md's table"));
  EXPECT_THAT(BadIncludesWith("new.cc", "<vector>"), ElementsAre(HasSubstr("DESIGN.md")));
}

TEST(IncludeRules, EveryBadIncludeIsNamed) {
  EXPECT_THAT(
      BadIncludes({{"cli/a.h", ""},
                   {"sim/b.cc", "#include \"cli/a.h\"\n#include <gtest/gtest.h>\n"},
                   {"sim/c.cc", "\n\n#include \"cli/a.h\""}}),
      ElementsAre(StartsWith("sim/b.cc:1"), StartsWith("sim/b.cc:2"), StartsWith("sim/c.cc:3")));
}

}  // namespace
}  // namespace spiritlevel
