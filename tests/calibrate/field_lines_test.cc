#include "calibrate/field_lines.h"

#include <gtest/gtest.h>

#include <string>

namespace spiritlevel {
namespace {

constexpr const char* kText =
    "name: \"a { b: 1\"   # not { a field: 2\n"  // 1
    "one {\n"                                    // 2
    "  x: -1.5e3\n"                              // 3
    "  y: [1,\n"                                 // 4
    "      2]\n"                                 // 5
    "}\n"                                        // 6
    "many < x: 1 >\n"                            // 7
    "many {\n"                                   // 8
    "  one { x: 'it\\'s' }\n"                    // 9
    "}\n";

constexpr const char* kJson =
    "{\n"                                 // 1
    "  \"name\": \"a { b: 1, \\\" \",\n"  // 2
    "  \"one\": {\n"                      // 3
    "    \"x\": -1.5e3,\n"                // 4
    "    \"y\": [1,\n"                    // 5
    "            2] },\n"                 // 6
    "  \"many\": [\n"                     // 7
    "    {\"x\": 1},\n"                   // 8
    "    {\n"                             // 9
    "      \"one\": {\"x\": \"s\"}}\n"    // 10
    "  ],\n"                              // 11
    "  \"last\": true\n"                  // 12
    "}\n";

TEST(FieldLines, AreFoundInTextFormat) {
  const auto line = [](const char* path) { return LineOfField(kText, false, path); };
  EXPECT_EQ(line("name"), 1);
  EXPECT_EQ(line("one"), 2);
  EXPECT_EQ(line("one.x"), 3);
  EXPECT_EQ(line("one.y"), 4);
  EXPECT_EQ(line("many"), 7);
  EXPECT_EQ(line("many[0].x"), 7);
  EXPECT_EQ(line("many[1]"), 8);
  EXPECT_EQ(line("many[1].one.x"), 9);
  EXPECT_EQ(line("field"), 0);
  EXPECT_EQ(line("many[2]"), 0);
}

TEST(FieldLines, AreFoundInJson) {
  const auto line = [](const char* path) { return LineOfField(kJson, true, path); };
  EXPECT_EQ(line("name"), 2);
  EXPECT_EQ(line("one.x"), 4);
  EXPECT_EQ(line("one.y"), 5);
  EXPECT_EQ(line("many"), 7);
  EXPECT_EQ(line("many[0].x"), 8);
  EXPECT_EQ(line("many[1].one"), 10);
  EXPECT_EQ(line("many[1].one.x"), 10);
  EXPECT_EQ(line("last"), 12);
  EXPECT_EQ(line("x"), 0);
}

// It sees only what parsers have accepted, but what if one day it does not.
TEST(FieldLines, AnyTextIsSurvived) {
  const std::string all = "{}[]<>:,;\"'\\#\nab1.";
  unsigned state = 1;
  for (int round = 0; round < 5'000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) {
      state = state * 1664525u + 1013904223u;
      text += all[(state >> 16) % all.size()];
    }
    for (const bool json : {false, true}) {
      EXPECT_EQ(LineOfField(text, json, "no.such[3].field"), 0) << text;
    }
  }
}

}  // namespace
}  // namespace spiritlevel
