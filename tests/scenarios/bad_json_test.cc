// Bad JSON: as bad text format, with what is particular to JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scenarios/texts.h"

namespace spiritlevel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Bad {
  const char* what;
  std::string text;
  std::string place_and_problem;
  std::string way_out;
};

void ExpectRefused(const Bad& bad) {
  SCOPED_TRACE(bad.what);
  const std::string error = JsonError(bad.text);
  EXPECT_THAT(error, StartsWith("my.json" + bad.place_and_problem));
  EXPECT_THAT(error, HasSubstr("\n    "));
  EXPECT_THAT(error, HasSubstr(bad.way_out));
}

TEST(BadJson, SyntaxErrorsHaveLineAndColumn) {
  for (const Bad& bad : {
           Bad{"trailing comma", "{\n \"ranks\": 8,\n}\n", ":3:1: syntax error", "no comma after"},
           Bad{"comment", "{\n // hi\n}", ":2:2: syntax error", "JSON has no comments"},
           Bad{"name without quotes", "{ ranks: 8 }", ":1:3: syntax error", "quotes around names"},
           Bad{"left open", "{\"ranks\": 8", ":1:12: syntax error", "JSON has"},
           Bad{"something after the end", "{}\n{}", ":2:1: syntax error", "JSON has"},
           Bad{"NaN", "{\"ranks\": NaN}", ":1:11: syntax error", "JSON has"},
           Bad{"a number too large for any", "{\n \"ranks\": 1e400}",
               ":2:15: number overflow parsing '1e400'", "use a smaller number"},
           Bad{"half a surrogate", "{\"name\": \"\\ud800\"}", ":1:17: syntax error", "JSON has"},
       }) {
    ExpectRefused(bad);
  }
}

TEST(BadJson, ValuesOfTheWrongKindAreNamedWithTheirLine) {
  for (const Bad& bad : {
           Bad{"list at the top", "[1]", ":1: starts with [", "starts with {"},
           Bad{"number at the top", "5", ":1: holds only a number", "starts with {"},
           Bad{"text at the top", "\"x\"", ":1: holds only text", "starts with {"},
           Bad{"null at the top", "null", ":1: holds only null", "starts with {"},
           Bad{"text for a number", "{\n\"ranks\": \"x\"}",
               ":2: ranks: \"x\" is not a whole number of this size", "README"},
           Bad{"fraction", "{\n\"ranks\": 8.5}", ":2: ranks: 8.5 is not a whole number", "README"},
           Bad{"too large", "{\n\"ranks\": 99999999999}", ":2: ranks: 99999999999 is not",
               "README"},
           Bad{"boolean", "{\n\"ranks\": true}", ":2: ranks: true is not", "README"},
           Bad{"number for a name", "{\n\"name\": 5}", ":2: name: 5 is not text", "README"},
           Bad{"list for a number", "{\n\"ranks\": [8]}", ":2: ranks: is a list", "without [ ]"},
           Bad{"object for a number", "{\n\"ranks\": {}}", ":2: ranks: is a single value",
               "without { }"},
           Bad{"number for an object", "{\n\"costs\": 5}", ":2: costs: is a number, not an object",
               "{ \"field\": value"},
           Bad{"object for a list", "{\"costs\": {\"table\": {\n\"row\": {}}}}",
               ":2: costs.table.row: is a list", "[ ]"},
           Bad{"number in a list of objects", "{\"costs\": {\"table\": {\n\"row\": [7]}}}",
               ":2: costs.table.row[0]: is a number, not an object", "{ \"field\""},
           Bad{"null in a list", "{\"costs\": {\"table\": {\n\"row\": [null]}}}",
               ":2: costs.table.row[0]: is null, not an object", "{ \"field\""},
           Bad{"list in a list", "{\"costs\": {\"table\": {\n\"row\": [[]]}}}",
               ":2: costs.table.row: is a list where a single value is due", "without [ ]"},
           Bad{"unknown", "{\n\"rank\": 8}", ":2: rank: there is no such field here",
               "did you mean ranks?"},
           Bad{"unknown inside", "{\"costs\": {\n\"forward_us\": 8}}",
               ":2: forward_us: there is no such field here", "it belongs in costs.uniform"},
           Bad{"twice", "{\"micro_batches\": 3,\n\"microBatches\": 4}",
               ":2: micro_batches: is given twice", "keep one"},
           Bad{"both forms", "{\"costs\": {\"uniform\": {},\n\"table\": {}}}",
               ":2: costs.table: stands beside uniform", "not both"},
       }) {
    ExpectRefused(bad);
  }
}

TEST(BadJson, MeaningIsCheckedAsInTextFormatAndPlacedByLine) {
  const std::string head = "{\"ranks\": 8, \"micro_batches\": 4, \"costs\": {\n";
  for (const Bad& bad : {
           Bad{"missing", "{\"ranks\": null}", ":1: ranks: is missing", "ranks: 8"},
           Bad{"zero", "{\"micro_batches\": 4,\n\"ranks\": 0}", ":2: ranks: 0 is zero", "ranks: 8"},
           Bad{"not a number",
               head + "\"uniform\": {\n\"forward_us\": \"NaN\", \"input_grad_us\": 1, "
                      "\"weight_grad_us\": 1}}}",
               ":3: costs.uniform.forward_us: is not a finite number", "0 or more"},
           Bad{"infinite",
               head + "\"uniform\": {\n\"forward_us\": \"-Infinity\", \"input_grad_us\": 1, "
                      "\"weight_grad_us\": 1}}}",
               ":3: costs.uniform.forward_us: is not a finite number", "0 or more"},
           Bad{"second row",
               head + "\"table\": {\"row\": [\n{\"forward_us\": 1, \"input_grad_us\": 1, "
                      "\"weight_grad_us\": 1},\n{\"forward_us\": 1}]}}}",
               ":4: costs.table.row[1].input_grad_us: is missing", "input_grad_us: 18086"},
           Bad{"negative in the second row",
               head + "\"table\": {\"row\": [\n{\"forward_us\": 1, \"input_grad_us\": 1, "
                      "\"weight_grad_us\": 1},\n{\"forward_us\": 1,\n\"input_grad_us\": -2, "
                      "\"weight_grad_us\": 1}]}}}",
               ":5: costs.table.row[1].input_grad_us: -2 is negative", "0 or more"},
           Bad{"no rows", head + "\"table\": {\"row\": []}}}", ":2: costs.table.row: is missing",
               "row {"},
       }) {
    ExpectRefused(bad);
  }
}

// A recursive reader would run off its stack.
TEST(BadJson, DeepNestingIsRefusedAtItsFirstStep) {
  std::string nested;
  for (int i = 0; i < 1'000'000; ++i) nested += '[';
  EXPECT_THAT(JsonError(nested), StartsWith("my.json:1: starts with ["));
  EXPECT_THAT(JsonError("{\"costs\": {\"table\": {\"row\": " + nested),
              StartsWith("my.json:1: costs.table.row: is a list where a single value is due"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"costs\":";
  EXPECT_THAT(JsonError(objects), StartsWith("my.json:1: costs: there is no such field here"));
}

// Left out, what comes after it would move up.
TEST(BadJson, NullIsNoEntryOfAList) {
  for (const Bad& bad : {
           Bad{"scalars", "{\"model\": {\"layers_per_stage\": [5,\nnull, 5, 6, 6]}}",
               ":2: model.layers_per_stage[1]: is null", "leave it out"},
           Bad{"objects", "{\"costs\": {\"table\": {\"row\": [{},\nnull]}}}",
               ":2: costs.table.row[1]: is null", "{ \"field\""},
       }) {
    ExpectRefused(bad);
  }
}

TEST(BadJson, MillionsOfFieldsAreRefusedByTheirNumber) {
  std::string text = "{\"model\": {\"layers_per_stage\": [1";
  for (int i = 0; i < 2'000'000; ++i) text += ",1";
  EXPECT_THAT(JsonError(text + "]}}"), HasSubstr("fields and entries of lists, more than"));
}

}  // namespace
}  // namespace spiritlevel
