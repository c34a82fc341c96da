// Every kind of bad file: the message has the place, the field, what is wrong and a way out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/scenarios/texts.h"

namespace spiritlevel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// One common mistake in full: this is how a message looks.
TEST(BadScenario, AMessageHasPlaceFieldWhatAndAWayOut) {
  EXPECT_EQ(TextError("ranks: 8\nmicro_batches: -3\ncosts { }\n"),
            "my.textproto:2: micro_batches: -3 is negative\n"
            "    give the micro-batches of one iteration, for example micro_batches: 24");
  EXPECT_EQ(TextError("ranks: 8\nmicro_batch: 3\n"),
            "my.textproto:2: micro_batch: there is no such field here\n"
            "    did you mean micro_batches? (micro_batch belongs in costs.table.row)");
  EXPECT_EQ(TextError(WithUniform("input_grad_us: 2 weight_grad_us: 1")),
            "my.textproto:3: costs.uniform.forward_us: is missing\n"
            "    add it, for example forward_us: 18522");
}

struct Bad {
  const char* what;
  std::string text;
  std::string place_and_problem;  // how the message starts, after the file's name
  std::string way_out;            // what it says further on
};

void ExpectRefused(const Bad& bad) {
  SCOPED_TRACE(bad.what);
  const std::string error = TextError(bad.text);
  EXPECT_THAT(error, StartsWith("my.textproto" + bad.place_and_problem));
  EXPECT_THAT(error, HasSubstr("\n    "));
  EXPECT_THAT(error, HasSubstr(bad.way_out));
}

TEST(BadScenario, SyntaxErrorsHaveLineAndColumn) {
  for (const Bad& bad : {
           Bad{"no colon", "ranks: 8\nmicro_batches 24\n", ":2:15: Expected \":\", found \"24\".",
               "the line reads: micro_batches 24"},
           Bad{"stray brace", "ranks: 8\n  }\n", ":2:3: Expected identifier, got: }",
               "the line reads: }"},
           Bad{"tabs count as one column", "ranks: 8\n\t\t}\n", ":2:3: Expected identifier", "}"},
           Bad{"left open", "ranks: 8\ncosts {\n  uniform {", ":3:12: the file ends inside a {",
               "close it with }"},
           Bad{"left-open text", "name: \"abc\nranks: 8\n",
               ":1:11: String literals cannot cross line boundaries.",
               "the line reads: name: \"abc"},
           Bad{"number of the wrong kind", "ranks: 8.5\n", ":1: ranks: Expected integer, got: 8.5",
               "the line reads: ranks: 8.5"},
           Bad{"text for a number", "\n\n ranks : \"x\"\n", ":3: ranks: Expected integer", "\"x\""},
           Bad{"integer out of range", "ranks: 99999999999\n", ":1: ranks: Integer out of range",
               "99999999999"},
           Bad{"list for a number", "ranks: [1, 2]\n", ":1: ranks: Expected integer", "[1, 2]"},
           Bad{"message without braces", "costs: 5\n", ":1: costs: Expected \"{\"", "costs: 5"},
           Bad{"comma for a decimal point", WithUniform("forward_us: 1,5"), ":3:", "1,5"},
       }) {
    ExpectRefused(bad);
  }
}

TEST(BadScenario, AMessageStaysShortHoweverLongTheInput) {
  const std::string x(100'000, 'x');
  for (const std::string& text : {"ranks: \"" + x + "\"", "ranks: " + x, x + ": 5",
                                  "ranks: 1" + std::string(100'000, '0'), "ranks: 8 " + x + "\n"}) {
    EXPECT_LT(TextError(text).size(), 500u);
  }
  for (const std::string& text : {"{\"ranks\": \"" + x + "\"}", "{\"" + x + "\": 5}", "{" + x,
                                  "{\"ranks\": \"" + x, "\"" + x + "\"x"}) {
    EXPECT_LT(JsonError(text).size(), 500u);
  }
}

TEST(BadScenario, NothingInTheInputReachesTheTerminalAsACommand) {
  EXPECT_THAT(TextError("ranks: \"\x1B[2J\""), HasSubstr("the line reads: ranks: \"?[2J\""));
  EXPECT_THAT(TextError("ranks: \"\xC2\x9B"
                        "2J\""),
              HasSubstr("the line reads: ranks: \"?2J\""));
  EXPECT_THAT(JsonError("{\"\\u001b[2J\\n\": 5}"), StartsWith("my.json:1: ?[2J?: there is no"));
  EXPECT_THAT(JsonError("{\"ranks\": \"\\u001b[2J\"}"), Not(HasSubstr("\x1B")));
}

TEST(BadScenario, UnknownFieldsGetTheClosestKnownOne) {
  for (const Bad& bad : {
           Bad{"slip", "rank: 8\n", ":1: rank: there is no such field here", "did you mean ranks?"},
           Bad{"other case", "microBatches: 8\n",
               ":1: microBatches: ", "did you mean micro_batches?"},
           Bad{"inside", WithUniform("forward_ms: 8"),
               ":3: forward_ms: ", "did you mean forward_us?"},
           Bad{"wrong place", "forward_us: 8\n",
               ":1: forward_us: ", "it belongs in costs.uniform or costs.table.row"},
           Bad{"wrong place, top level", WithUniform("micro_batches: 8"),
               ":3: micro_batches: ", "it belongs in the top level"},
           Bad{"no idea", "banana: 8\n", ":1: banana: ", "the fields here are name, ranks, "},
       }) {
    ExpectRefused(bad);
  }
}

TEST(BadScenario, WhatIsGivenTwiceIsRefused) {
  for (const Bad& bad : {
           Bad{"field", "ranks: 8\nranks: 8\n", ":2: ranks: is given twice", "keep one"},
           Bad{"both forms", "costs {\n uniform { }\n table { } }\n",
               ":3: table: stands beside uniform", "either uniform or table, not both"},
           Bad{"shared cost", "transfer_us: 4\n" + WithUniform(kPasses + " transfer_us: 4"),
               ":4: costs.uniform.transfer_us: is given a second time, after my.textproto:1: "
               "transfer_us",
               "keep one"},
           Bad{"micro-batch",
               WithRows("row { " + kPasses +
                        " micro_batch { index: 1 }\nmicro_batch { index: 1 } }"),
               ":5: costs.table.row[0].micro_batch[1].index: micro-batch 1 is given twice",
               "keep one"},
       }) {
    ExpectRefused(bad);
  }
}

TEST(BadScenario, MissingFieldsAreNamedWithAnExample) {
  for (const Bad& bad : {
           Bad{"ranks", "micro_batches: 3\n", ": ranks: is missing", "ranks: 8"},
           Bad{"micro_batches", "ranks: 3\n", ": micro_batches: is missing", "micro_batches: 24"},
           Bad{"costs", "ranks: 8\nmicro_batches: 3\n", ": costs: is missing", "costs { uniform"},
           Bad{"form", "ranks: 8\nmicro_batches: 3\ncosts { }\n",
               ":3: costs: says neither uniform nor table", "add uniform {"},
           Bad{"B", WithUniform("forward_us: 1"), ":3: costs.uniform.input_grad_us: is missing",
               "input_grad_us: 18086"},
           Bad{"W", WithUniform("forward_us: 1 input_grad_us: 1"),
               ":3: costs.uniform.weight_grad_us: is missing", "0 if input_grad_us holds"},
           Bad{"rows", WithRows(""), ":3: costs.table.row: is missing", "row { forward_us: 100"},
           Bad{"F of the second row", WithRows("row { " + kPasses + " }\nrow { }"),
               ":5: costs.table.row[1].forward_us: is missing", "forward_us: 18522"},
           Bad{"index", WithRows("row { " + kPasses + "\nmicro_batch { forward_us: 1 } }"),
               ":5: costs.table.row[0].micro_batch[0].index: is missing", "index: 0"},
           Bad{"fused_backward_us that a changed micro-batch would inherit",
               WithRows("row { " + kPasses +
                        " fused_backward_us: 3\nmicro_batch { index: 1 input_grad_us: 7 } }"),
               ":5: costs.table.row[0].micro_batch[0].fused_backward_us: is missing",
               "give fused_backward_us here too"},
           Bad{"overlapped_us that a changed micro-batch would inherit",
               WithRows("row { " + kPasses +
                        " overlapped_us: 3\nmicro_batch { index: 1 forward_us: 7 } }"),
               ":5: costs.table.row[0].micro_batch[0].overlapped_us: is missing",
               "give overlapped_us here too"},
       }) {
    ExpectRefused(bad);
  }
}

TEST(BadScenario, NumbersOutOfRangeAreRefused) {
  const auto shape = [](const std::string& shape_fields) {
    return shape_fields + "\ncosts { uniform { " + kPasses + " } }\n";
  };
  for (const Bad& bad : {
           Bad{"zero ranks", shape("ranks: 0 micro_batches: 1"), ":1: ranks: 0 is zero",
               "ranks: 8"},
           Bad{"negative ranks", shape("ranks: -1 micro_batches: 1"), ":1: ranks: -1 is negative",
               "ranks: 8"},
           Bad{"absurd ranks", shape("ranks: 70000 micro_batches: 1"),
               ":1: ranks: 70000 is more than 32767", "ranks: 8"},
           Bad{"zero micro-batches", shape("ranks: 1 micro_batches: 0"), ":1: micro_batches: 0 is",
               "micro_batches: 24"},
           Bad{"absurd micro-batches", shape("ranks: 1 micro_batches: 16777217"),
               ":1: micro_batches: 16777217 is more than 16777216", "micro_batches: 24"},
           Bad{"zero stages", shape("ranks: 1 micro_batches: 1 stages_per_rank: 0"),
               ":1: stages_per_rank: 0 is zero", "for example 2"},
           Bad{"zero group", shape("ranks: 1 micro_batches: 1 group: 0"), ":1: group: 0 is zero",
               "leave it out"},
           Bad{"zero limit", shape("ranks: 1 micro_batches: 1 memory_limit_bytes: 0"),
               ":1: memory_limit_bytes: 0 is zero", "leave it out for no limit"},
           Bad{"negative limit", shape("ranks: 1 micro_batches: 1 memory_limit_bytes: -5"),
               ":1: memory_limit_bytes: -5 is negative", "0 or more"},
           Bad{"absurd limit",
               shape("ranks: 1 micro_batches: 1 memory_limit_bytes: 9223372036854775807"),
               ":1: memory_limit_bytes: 9223372036854775807 is more than a pebibyte", "at most"},
           Bad{"micro-batch that is not there",
               WithRows("row { " + kPasses + "\nmicro_batch { index: 4 } }"),
               ":5: costs.table.row[0].micro_batch[0].index: there is no micro-batch 4",
               "from 0 to 3"},
           Bad{"negative micro-batch",
               WithRows("row { " + kPasses + "\nmicro_batch { index: -1 } }"),
               ":5: costs.table.row[0].micro_batch[0].index: there is no micro-batch -1",
               "from 0 to 3"},
           Bad{"nothing to do",
               WithUniform("forward_us: 0 input_grad_us: 0 weight_grad_us: 0.0001"),
               ":3: costs.uniform: all passes take no time", "in microseconds"},
       }) {
    ExpectRefused(bad);
  }
}

TEST(BadScenario, EveryTimeIsCheckedInEveryPlace) {
  struct Value {
    const char* written;
    const char* problem;
  };
  for (const Value& value :
       {Value{"-5", "-5 is negative"}, Value{"nan", "is not a finite number"},
        Value{"-nan", "is not a finite number"}, Value{"inf", "is not a finite number"},
        Value{"-inf", "is not a finite number"}, Value{"1e400", "is not a finite number"},
        Value{"86400000001", "86400000001 us is longer than a day"}}) {
    for (const char* field : {"fused_backward_us", "overlapped_us", "transfer_us", "link_busy_us",
                              "launch_us", "optimizer_us", "barrier_us"}) {
      const std::string given = std::string(field) + ": " + value.written;
      EXPECT_THAT(
          TextError(WithUniform(kPasses + "\n" + given)),
          StartsWith("my.textproto:4: costs.uniform." + std::string(field) + ": " + value.problem))
          << given;
    }
    for (const char* field : {"forward_us", "input_grad_us", "weight_grad_us"}) {
      const std::string given = std::string(field) + ": " + value.written;
      EXPECT_THAT(
          TextError(WithRows("row { " + kPasses + " micro_batch { index: 0 " + given + "}}")),
          StartsWith("my.textproto:4: costs.table.row[0].micro_batch[0]." + std::string(field) +
                     ": " + value.problem))
          << given;
    }
  }
}

TEST(BadScenario, EverySizeIsCheckedInEveryPlace) {
  for (const char* field :
       {"activation_bytes", "weight_state_bytes", "message_bytes", "static_bytes"}) {
    for (const char* value : {"-1", "1125899906842625"}) {
      EXPECT_THAT(TextError(WithUniform(kPasses + "\n" + field + ": " + value)),
                  StartsWith("my.textproto:4: costs.uniform." + std::string(field) + ": " + value +
                             " is "));
    }
  }
}

TEST(BadScenario, BucketsAreCountedAndHoldSomething) {
  const auto error = [](const std::string& fields) {
    return TextError(WithUniform(kPasses + " " + fields));
  };
  EXPECT_THAT(error("buckets: 4"), StartsWith("my.textproto:3: costs.uniform.buckets: is given, "
                                              "but no time"));
  for (const char* value : {"0", "-1", "1001"}) {
    EXPECT_THAT(
        error(std::string("reduction_us: 5 buckets: ") + value),
        StartsWith(std::string("my.textproto:3: costs.uniform.buckets: ") + value + " is "));
  }
  EXPECT_THAT(error("reduction_us: -5"), HasSubstr("costs.uniform.reduction_us: "));
}

TEST(BadScenario, ProductsThatDoNotFitAreRefusedWithTheNumber) {
  const std::string costs = "\ncosts { uniform { " + kPasses + " } }\n";
  for (const Bad& bad : {
           Bad{"stages", "stages_per_rank: 100\nranks: 1000 micro_batches: 1" + costs,
               ":1: stages_per_rank: 1000 ranks x 100 stages are 100000 stages", "use fewer"},
           Bad{"stages, would overflow int",
               "stages_per_rank: 65535\nranks: 32767 micro_batches: 1" + costs,
               ":1: stages_per_rank: 32767 ranks x 65535 stages are 2147385345 stages",
               "use fewer"},
           Bad{"passes", "ranks: 64\nmicro_batches: 1000000" + costs,
               ":2: micro_batches: 64 ranks x 2 stages x 1000000 micro-batches are 128000000 "
               "passes, more than 16777216",
               "use at most 131072 micro_batches with these ranks"},
           Bad{"entries of the file's table",
               "ranks: 1\nmicro_batches: 4194305\ncosts { table {\nrow { " + kPasses +
                   " micro_batch { index: 0 } } } }\n",
               ":4: costs.table.row: 1 rows x 4194305 micro-batches that differ",
               "use fewer micro_batches"},
           Bad{"entries of the cut table",
               "ranks: 8\nmicro_batches: 1000000\ncosts { table {\nrow { " + kPasses +
                   " micro_batch { index: 0 } } } }\n",
               ":2: micro_batches: 16 stages x 1000000 micro-batches that differ",
               "use fewer micro_batches"},
           Bad{"time",
               "ranks: 4000\nmicro_batches: 1000\ncosts { uniform { forward_us: 80000000000 "
               "input_grad_us: 1 weight_grad_us: 1 } }",
               ":3: costs: the work of one iteration adds up to ", "use shorter passes"},
           Bad{"time of the hops",
               "ranks: 4000\nmicro_batches: 1000\ncosts { uniform { forward_us: 1 "
               "input_grad_us: 1 weight_grad_us: 1 transfer_us: 80000000000 } }",
               ":3: costs: the work of one iteration adds up to ", "use shorter passes"},
           Bad{"bytes",
               "ranks: 64\nmicro_batches: 1000\ncosts { uniform { " + kPasses +
                   " activation_bytes: 1125899906842624 } }",
               ":3: costs: the bytes of one iteration add up to ", "use smaller sizes"},
       }) {
    ExpectRefused(bad);
  }
}

TEST(BadScenario, ManyRanksAndMicroBatchesWithLongPassesStillPass) {
  const Scenario s = ParseText(
      "ranks: 1024\nmicro_batches: 1024\ncosts { uniform { forward_us: 200000 "
      "input_grad_us: 200000 weight_grad_us: 200000 activation_bytes: 1000000000 } }");
  EXPECT_EQ(s.ranks, 1024);
}

TEST(BadScenario, WhatIsNotTextOrEmptyIsSaidToBe) {
  using namespace std::string_view_literals;
  for (const std::string_view text : {"\x7f"
                                      "ELF\0\1"sv,
                                      "ranks: 8\0"sv, "name: \"\xE9\""sv,
                                      "\xFF\xFE"
                                      "r"sv,
                                      "name: \"\xC0\xAF\""sv, "name: \"\xED\xA0\x80\""sv,
                                      "name: \"\xF4\x90\x80\x80\""sv, "name: \"\xE2\x82"sv}) {
    EXPECT_EQ(TextError(text),
              "my.textproto: is not text\n"
              "    a scenario is protobuf text format or JSON, saved as UTF-8");
    EXPECT_THAT(JsonError(text), StartsWith("my.json: is not text\n    "));
  }
  for (const std::string_view text : {""sv, " \n\t\r\n"sv, "\xEF\xBB\xBF"sv}) {
    EXPECT_EQ(TextError(text),
              "my.textproto: is empty\n    scenarios/example.textproto is one to start from");
  }
  EXPECT_THAT(TextError("# only a comment\n"), StartsWith("my.textproto: ranks: is missing"));
}

TEST(BadScenario, ANameThatWouldSpoilTheOutputIsRefused) {
  const auto error = [](const std::string& name) {
    return TextError("name: \"" + name + "\"\n" + WithUniform(kPasses));
  };
  EXPECT_THAT(error("a\\nb"), StartsWith("my.textproto:1: name: holds a control character"));
  EXPECT_THAT(error("\\033[31m"), StartsWith("my.textproto:1: name: holds a control character"));
  EXPECT_THAT(error("\\xff"), StartsWith("my.textproto:1: name: is not UTF-8"));
  EXPECT_THAT(error(std::string(201, 'x')), StartsWith("my.textproto:1: name: has 201 bytes"));
  EXPECT_EQ(error("Mönch, 8 列"), "no error");
}

class BadScenarioFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "scenarios.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static std::string ErrorFor(const std::string& path) {
    return ErrorOf([&path] { LoadScenario(path); });
  }

  std::filesystem::path folder_;
};

TEST_F(BadScenarioFile, TheEndingDecidesAndUnknownEndingsAreRefused) {
  const std::string good = WithUniform(kPasses);
  for (const char* name : {"a.textproto", "a.txtpb", "a.pbtxt", "a.TEXTPROTO"}) {
    EXPECT_EQ(ErrorFor(Write(name, good)), "no error") << name;
  }
  EXPECT_THAT(ErrorFor(Write("a.json", good)), HasSubstr("a.json:1:1: syntax error"));
  for (const char* name : {"a.yaml", "a", "a.textproto.bak"}) {
    EXPECT_EQ(ErrorFor(Write(name, good)),
              (folder_ / name).string() +
                  ": does not say by its ending which format it is in\n"
                  "    name it .textproto (or .txtpb, .pbtxt) for protobuf text format, or .json");
  }
}

TEST_F(BadScenarioFile, WhatCannotBeReadIsNamedWithAWayOut) {
  const auto expect = [this](const std::string& name, const std::string& problem) {
    const std::string path = (folder_ / name).string();
    EXPECT_EQ(ErrorFor(path),
              path + ": " + problem + "\n    scenarios/example.textproto is one to start from");
  };
  expect("missing.textproto", "cannot open: No such file or directory");
  expect("missing", "cannot open: No such file or directory");
  std::filesystem::create_directory(folder_ / "folder.json");
  expect("folder.json", "is a directory, not a file");
  expect("", "is a directory, not a file");
  ASSERT_EQ(::mkfifo((folder_ / "pipe.json").c_str(), 0600), 0);
  expect("pipe.json", "is not a regular file");
  std::filesystem::resize_file(Write("huge.textproto", ""), (16u << 20) + 1);
  expect("huge.textproto", "has 16777217 bytes; more than 12582912 is not a file of this kind");
}

TEST_F(BadScenarioFile, ALargeFileIsAnsweredWithinASecond) {
  std::string text = "ranks: 64\nmicro_batches: 1024\ncosts { table {\n";
  for (int row = 0; row < 64; ++row) {
    text += "row { " + kPasses + "\n";
    for (int i = 0; i < 1024; ++i) {
      text += "micro_batch { index: " + std::to_string(i) + " forward_us: 123.5 }\n";
    }
    text += "}\n";
  }
  text += "row { forward_us: -1 input_grad_us: 1 weight_grad_us: 1 }\n} }\n";
  const std::string path = Write("large.textproto", text);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(ErrorFor(path), HasSubstr("costs.table.row[64].forward_us: -1 is negative"));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  // A wide margin: the machine may be busy and the build may be a debug or sanitizer one.
  EXPECT_LT(took.count(), 10.0);
}

}  // namespace
}  // namespace spiritlevel
