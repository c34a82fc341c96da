#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "base/file.h"
#include "calibrate/profile_file.h"
#include "tests/base/input_error_of.h"
#include "tests/base/temporary_folder.h"
#include "tests/calibrate/fake_device.h"
#include "tests/models/stopwatch.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

const std::string& Good(ProfileFormat format) {
  static const auto* const text =
      new std::string(ProfileText(FakeCalibration(), ProfileFormat::kText));
  static const auto* const json =
      new std::string(ProfileText(FakeCalibration(), ProfileFormat::kJson));
  return format == ProfileFormat::kJson ? *json : *text;
}

// The whole message, or "accepted". Whatever the text, it comes within a second.
std::string Complaint(const std::string& text, ProfileFormat format) {
  const Stopwatch watch;
  const std::string complaint = InputErrorOf([&] { ParseProfile(text, format, "p"); });
  EXPECT_LT(watch.Seconds(), 1) << text.substr(0, 60) << ", " << text.size() << " bytes";
  return complaint.empty() ? "accepted" : complaint;
}

// The good text with the first `from` after `after` replaced.
std::string With(ProfileFormat format, const std::string& after, const std::string& from,
                 const std::string& to) {
  std::string text = Good(format);
  const size_t begin = text.find(after);
  const size_t at = text.find(from, begin);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

int LineOf(const std::string& text, const std::string& part) {
  const auto end = text.begin() + static_cast<int64_t>(text.find(part));
  return static_cast<int>(std::count(text.begin(), end, '\n')) + 1;
}

TEST(BadProfile, TruncatedAnywhereIsRefused) {
  for (const ProfileFormat format : {ProfileFormat::kText, ProfileFormat::kJson}) {
    const std::string& good = Good(format);
    for (size_t size = 0; size < good.size() - 3; size += good.size() / 61) {
      EXPECT_NE(Complaint(good.substr(0, size), format), "accepted") << size;
    }
  }
}

TEST(BadProfile, NanAndInfinitiesAreRefusedWithTheirLine) {
  for (const char* const bad : {"nan", "inf", "-1", "1e300"}) {
    std::string text = With(ProfileFormat::kText, "name: \"elementwise\"",
                            "base_ns: ", std::string("base_ns: ") + bad + " # ");
    EXPECT_THAT(Complaint(text, ProfileFormat::kText),
                MatchesRegex("p:" + std::to_string(LineOf(text, std::string(bad) + " # ")) +
                             ": primitive\\[8\\]\\.line\\.base_ns: .* is no number from 0.*\n.*"))
        << bad;
  }
  for (const char* const bad : {"\"NaN\"", "\"Infinity\"", "-1"}) {
    const std::string json =
        With(ProfileFormat::kJson, "\"launch\"",
             "\"ns\": ", std::string("\"ns\": ") + bad + ", \"samples\": {}}, \"xx\": {");
    EXPECT_NE(Complaint(json, ProfileFormat::kJson), "accepted") << bad;
  }
  std::string json = Good(ProfileFormat::kJson);
  const size_t at = json.find("\"streaming\": ") + 13;
  json.replace(at, json.find('\n', at) - at, "\"NaN\"");
  EXPECT_THAT(Complaint(json, ProfileFormat::kJson),
              HasSubstr("p:" + std::to_string(LineOf(json, "\"streaming\"")) +
                        ": slowdown_by_class.streaming: nan is no number"));
}

TEST(BadProfile, NumbersThatMakeNoSenseAreRefused) {
  EXPECT_THAT(Complaint(With(ProfileFormat::kText, "", "attention: ", "attention: 0.5 # "),
                        ProfileFormat::kText),
              HasSubstr("slowdown_by_class.attention: is below 1"));
  EXPECT_THAT(Complaint(With(ProfileFormat::kText, "curve", "ns_per_unit: ", "ns_per_unit: 0 # "),
                        ProfileFormat::kText),
              HasSubstr("primitive[0].curve.point[0].ns_per_unit: is not above 0"));
  EXPECT_THAT(Complaint(With(ProfileFormat::kText, "curve", "units: ", "units: 1e14 # "),
                        ProfileFormat::kText),
              HasSubstr("primitive[0].curve.point[1].units: does not ascend"));
}

// A typed-in profile whose primitive `name` is described by `fit`; all others are as they should
// be.
std::string TypedIn(std::string_view name, std::string_view fit) {
  std::string text = "dtype: 'bf16' launch { ns: 5 } slowdown_all_cores: 1\n";
  for (const PrimitiveInfo& info : Primitives()) {
    const std::string_view good = IsProduct(info.primitive)
                                      ? "curve { point { units: 1 ns_per_unit: 2 } }"
                                      : "line { base_ns: 3 ns_per_unit: 0.5 }";
    text +=
        fmt::format("primitive {{ name: '{}' {} }}\n", info.name, info.name == name ? fit : good);
  }
  return text;
}

TEST(BadProfile, AFitIsALineOrACurveAndOneThatItsPrimitiveMayHave) {
  constexpr const char* kLine = "line { base_ns: 1 ns_per_unit: 1 }";
  constexpr const char* kCurve = "curve { point { units: 1 ns_per_unit: 2 } }";
  const auto complaint = [](std::string_view name, std::string_view fit) {
    return Complaint(TypedIn(name, fit), ProfileFormat::kText);
  };
  EXPECT_EQ(complaint("norm_input_grad", kLine), "accepted");
  EXPECT_EQ(complaint("norm_input_grad", kCurve), "accepted");
  EXPECT_THAT(complaint("norm_input_grad", ""),
              HasSubstr("p:8: primitive[6].line: of norm_input_grad is missing"));
  EXPECT_THAT(complaint("norm_input_grad", fmt::format("{} {}", kLine, kCurve)),
              HasSubstr("p:8: primitive[6].curve: norm_input_grad has a line too"));
  EXPECT_THAT(complaint("elementwise", "curve { }"),
              HasSubstr("p:10: primitive[8].curve: has no points"));
  EXPECT_THAT(complaint("elementwise", "curve { pad_m: 1 point { units: 1 ns_per_unit: 2 } }"),
              HasSubstr("p:10: primitive[8].curve: elementwise has no padding"));
  EXPECT_THAT(complaint("elementwise", "curve { point { units: 1 ns_per_unit: nan } }"),
              HasSubstr("p:10: primitive[8].curve.point[0].ns_per_unit: nan is no number"));
  EXPECT_THAT(complaint("hand_over", kCurve),
              HasSubstr("p:16: primitive[14].curve: hand_over has no curve"));
  EXPECT_THAT(complaint("optimizer", kCurve),
              HasSubstr("p:15: primitive[13].curve: optimizer has no curve"));
  EXPECT_THAT(complaint("gemm_forward", kLine),
              HasSubstr("p:2: primitive[0].line: gemm_forward has no line"));
  EXPECT_THAT(complaint("gemm_forward", ""),
              HasSubstr("p:2: primitive[0].curve: of gemm_forward is missing"));
  EXPECT_THAT(complaint("embedding_forward", "line { base_ns: 1 }"),
              HasSubstr("primitive[9].line.ns_per_unit: is missing"));
  EXPECT_THAT(
      complaint("embedding_forward", fmt::format("{} measurement {{ units: 1 rows: 0 }}", kLine)),
      HasSubstr("primitive[9].measurement[0].rows: is below 1"));
}

// Of a profile from before its halves had fits of their own.
TEST(BadProfile, ANormsBackwardAsOneIsNoLongerKnown) {
  EXPECT_THAT(Complaint(With(ProfileFormat::kText, "", "name: \"norm_input_grad\"",
                             "name: \"norm_backward\""),
                        ProfileFormat::kText),
              HasSubstr("there is no primitive \"norm_backward\""));
}

TEST(BadProfile, WhatIsMissingIsNamed) {
  EXPECT_THAT(Complaint("", ProfileFormat::kText), HasSubstr("dtype: is missing"));
  EXPECT_THAT(Complaint("{}", ProfileFormat::kJson), HasSubstr("dtype: is missing"));
  EXPECT_THAT(Complaint("dtype: 'float32'", ProfileFormat::kText), HasSubstr("launch"));
  EXPECT_THAT(
      Complaint("dtype: 'float32' launch { ns: 1 } slowdown_all_cores: 1", ProfileFormat::kText),
      HasSubstr("gemm_forward is missing"));
  EXPECT_THAT(
      Complaint(With(ProfileFormat::kText, "", "name: \"optimizer\"", "name: \"optimiser\""),
                ProfileFormat::kText),
      HasSubstr("there is no primitive \"optimiser\""));
  EXPECT_THAT(
      Complaint(With(ProfileFormat::kText, "", "name: \"optimizer\"", "name: \"hand_over\""),
                ProfileFormat::kText),
      HasSubstr("hand_over is there twice"));
}

TEST(BadProfile, UnknownAndDoubledFieldsAreRefusedWithTheirLine) {
  EXPECT_THAT(Complaint("dtype: 'float32'\nspeed: 3\n", ProfileFormat::kText),
              HasSubstr("p:2:6: "));
  EXPECT_THAT(Complaint("dtype: 'float32'\ndtype: 'float32'\n", ProfileFormat::kText),
              HasSubstr("p:2:"));
  EXPECT_THAT(Complaint("{\"dtype\": \"float32\",\n \"speed\": 3}", ProfileFormat::kJson),
              HasSubstr("speed"));
  EXPECT_THAT(Complaint("{\"dtype\": \"float32\",\n \"dtype\": \"bf16\"}", ProfileFormat::kJson),
              HasSubstr("p:2: dtype: is given twice"));
  EXPECT_THAT(Complaint("{\"launch\": {\n\"ns\": \"fast\"}}", ProfileFormat::kJson),
              HasSubstr("p:2: "));
  EXPECT_THAT(Complaint("{\"launch\": {\n\"ns\": 1,,}}", ProfileFormat::kJson), HasSubstr("p:2: "));
}

TEST(BadProfile, ASlowdownIsOneForAllKernelsOrOneForEachClass) {
  const auto complaint = [](const char* slowdowns) {
    std::string text = TypedIn("", "");
    text.replace(text.find("slowdown_all_cores: 1"), 21, slowdowns);
    return Complaint(text, ProfileFormat::kText);
  };
  EXPECT_EQ(complaint("slowdown_by_class { product: 1 attention: 1.1 streaming: 2 }"), "accepted");
  EXPECT_THAT(complaint(""), HasSubstr("slowdown_all_cores: is missing"));
  EXPECT_THAT(complaint("slowdown_all_cores: 0.5"), HasSubstr("slowdown_all_cores: is below 1"));
  EXPECT_THAT(complaint("slowdown_by_class { product: 1 streaming: 2 }"),
              HasSubstr("p:1: slowdown_by_class.attention: is missing"));
  EXPECT_THAT(complaint("slowdown_by_class { product: 1 attention: 1 streaming: inf }"),
              HasSubstr("p:1: slowdown_by_class.streaming: inf is no number"));
  EXPECT_THAT(complaint("slowdown_all_cores: 1 slowdown_by_class { product: 1 }"),
              HasSubstr("p:1: slowdown_all_cores: slowdown_by_class is there too"));
}

TEST(BadProfile, EveryComplaintHasAWayOut) {
  for (const char* const text : {"", "dtype: 'x'", "{", "launch {", "\xff", "primitive { }"}) {
    for (const ProfileFormat format : {ProfileFormat::kText, ProfileFormat::kJson}) {
      const std::string complaint = Complaint(text, format);
      EXPECT_THAT(complaint, HasSubstr("\n    ")) << text;
      EXPECT_EQ(complaint.substr(0, 2), "p:") << text;
    }
  }
}

TEST(BadProfile, DeepNestingAndHugeFilesAreRefusedWithinASecond) {
  const size_t size = 2'000'000;
  std::string objects;
  for (size_t i = 0; i < size / 5; ++i) objects += "{\"a\":";
  EXPECT_NE(Complaint(objects, ProfileFormat::kJson), "accepted");
  EXPECT_NE(Complaint(std::string(size, '['), ProfileFormat::kJson), "accepted");
  EXPECT_NE(Complaint(std::string(size, '{'), ProfileFormat::kText), "accepted");
  EXPECT_NE(Complaint(std::string(size, 'a'), ProfileFormat::kText), "accepted");
  std::string primitives;
  for (size_t i = 0; i < size / 13; ++i) primitives += "primitive { }\n";
  EXPECT_NE(Complaint(primitives, ProfileFormat::kText), "accepted");
  std::string points = "curve { ";
  for (size_t i = 0; i < size / 13; ++i) points += "point { } ";
  EXPECT_NE(Complaint(TypedIn("elementwise", points + "}"), ProfileFormat::kText), "accepted");
}

TEST(BadProfile, AFileOf100MegabytesIsNotEvenRead) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "huge.textproto";
  WriteFile(path, "");
  std::filesystem::resize_file(path, 100'000'000);
  const Stopwatch watch;
  const std::string complaint = InputErrorOf([&] { LoadProfile(path); });
  EXPECT_LT(watch.Seconds(), 1);
  EXPECT_THAT(complaint, HasSubstr("100000000 bytes"));
}

TEST(BadProfile, EndingsThatSayNothingAreRefused) {
  for (const char* const name : {"profile", "profile.txt", "a.json.bak"}) {
    EXPECT_THROW(ProfileFormatOf(name), InputError) << name;
  }
}

// Whatever is changed in it, a profile is read whole or refused with its place; nothing crashes.
TEST(BadProfile, AnyChangedByteIsReadOrRefused) {
  unsigned state = 7;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (const ProfileFormat format : {ProfileFormat::kText, ProfileFormat::kJson}) {
    for (int round = 0; round < 60; ++round) {
      std::string text = Good(format);
      const size_t at = next() % text.size();
      text[at] = static_cast<char>(next());
      const std::string complaint = Complaint(text, format);
      EXPECT_TRUE(complaint == "accepted" || complaint.starts_with("p:")) << at;
    }
  }
}

// Left out, what comes after it would move up.
TEST(BadProfile, NullIsNoEntryOfAList) {
  EXPECT_THAT(Complaint("{\"primitive\": [{\"curve\": {\"point\": [{\"units\": 1},\nnull]}}]}",
                        ProfileFormat::kJson),
              HasSubstr("p:2: point[1]: is null"));
  EXPECT_THAT(Complaint("{\"validity\": {\"reference_ns\": [1, 2, null]}}", ProfileFormat::kJson),
              HasSubstr("p:1: reference_ns[2]: is null"));
  EXPECT_THAT(Complaint("{\"date\": null, \"device\": \"[null\"}", ProfileFormat::kJson),
              testing::Not(HasSubstr("null")));
}

TEST(BadProfile, ANegativeCountIsRefused) {
  for (const std::string field :
       {"left_out: -1", "machine { cores: -1 }", "machine { cache { bytes: -1 } }",
        "validity { samples: -1 }", "launch { ns: 1 samples { repeats: -1 } }",
        "slowdown { others: -1 }"}) {
    std::string text = "dtype: \"float32\" slowdown_all_cores: 1 ";
    if (field.find("launch") == std::string::npos) text += "launch { ns: 1 } ";
    EXPECT_THAT(Complaint(text + field, ProfileFormat::kText), HasSubstr(": -1 is negative"))
        << field;
  }
}

TEST(BadProfile, AFileThatCannotBeReadComesWithAWayOut) {
  for (const char* file : {"/nowhere/p.textproto", "/dev/zero", "."}) {
    EXPECT_THAT(InputErrorOf([&] { LoadProfile(file); }), HasSubstr("\n    name a profile"));
  }
}

}  // namespace
}  // namespace spiritlevel
