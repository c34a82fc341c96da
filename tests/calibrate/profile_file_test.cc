#include "calibrate/profile_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "tests/base/temporary_folder.h"
#include "tests/calibrate/fake_device.h"

namespace spiritlevel {
namespace {

using testing::ElementsAre;

TEST(ProfileFile, ReadsBackWhatWasWrittenInBothFormats) {
  const Calibration written = FakeCalibration({.noise = 0.1});
  for (const ProfileFormat format : {ProfileFormat::kText, ProfileFormat::kJson}) {
    const Calibration read = ParseProfile(ProfileText(written, format), format, "p");
    EXPECT_EQ(read.profile, written.profile);
    EXPECT_EQ(read, written);
  }
}

TEST(ProfileFile, ReadsBackFromADisk) {
  const TemporaryFolder folder;
  const Calibration written = FakeCalibration();
  for (const char* const name : {"p.textproto", "p.json", "p.PBTXT"}) {
    const std::filesystem::path path = folder.path() / name;
    WriteFile(path, ProfileText(written, ProfileFormatOf(path)));
    EXPECT_EQ(LoadProfile(path), written) << name;
  }
}

TEST(ProfileFile, SaysOfEachNumberWhatItContains) {
  const std::string text = ProfileText(FakeCalibration(), ProfileFormat::kText);
  for (const PrimitiveInfo& info : Primitives()) {
    const std::string field = fmt::format("contains: \"{}\"", info.contains);
    EXPECT_NE(text.find(field), std::string::npos) << field;
  }
  EXPECT_NE(text.find("sample_ns: ["), std::string::npos);
}

// No home folder, no name of the machine, wherever a real one is described.
TEST(ProfileFile, NamesNoMachineAndNoUser) {
  Calibration c = FakeCalibration();
  c.machine = DescribeMachine();
  c.software = DescribeSoftware();
  const std::string text = ProfileText(c, ProfileFormat::kJson);
  for (const char* const variable : {"HOME", "USER", "HOSTNAME", "PWD"}) {
    const char* const value = std::getenv(variable);
    if (value == nullptr || std::string(value).size() < 3) continue;
    EXPECT_EQ(text.find(fmt::format("\"{}", value)), std::string::npos) << variable;
  }
  EXPECT_EQ(text.find("/home"), std::string::npos) << "a path";
  EXPECT_EQ(text.find("/root"), std::string::npos) << "a path";
}

// A profile typed in by hand: the fits and nothing else. Curves where `curve` says so and may be.
Calibration TypedIn(bool curve, const std::string& slowdown = "slowdown_all_cores: 1") {
  std::string text = "dtype: 'bf16' launch { ns: 5 } " + slowdown + "\n";
  for (const PrimitiveInfo& info : Primitives()) {
    const bool as_curve = curve ? MayBeCurve(info.primitive) : !MayBeLine(info.primitive);
    text += fmt::format("primitive {{ name: '{}' ", info.name);
    text += as_curve ? "curve { point { units: 1 ns_per_unit: 2 } } }\n"
                     : "line { base_ns: 3 ns_per_unit: 0.5 } }\n";
  }
  return ParseProfile(text, ProfileFormat::kText, "p");
}

TEST(ProfileFile, TakesACurveForALineWhereverOneMayBe) {
  const DeviceProfile profile = TypedIn(/*curve=*/true).profile;
  EXPECT_EQ(TimeOf(profile, Elementwise{.bytes_moved = 10}), 20);
  EXPECT_EQ(TimeOf(profile, Norm{.rows = 3, .width = 5, .element = 2}), 2 * 3 * 2 * 5 * 2);
  EXPECT_EQ(profile.optimizer.At(10), 8);
  EXPECT_EQ(profile.transfer_latency_ns, 3);
}

TEST(ProfileFile, OneTypedInSlowdownMeansAllThree) {
  EXPECT_THAT(TypedIn(false, "slowdown_all_cores: 1.25").profile.slowdown_all_cores,
              ElementsAre(1.25, 1.25, 1.25));
  EXPECT_THAT(TypedIn(false, "slowdown_by_class { streaming: 1.5 product: 1 attention: 1.125 }")
                  .profile.slowdown_all_cores,
              ElementsAre(1, 1.125, 1.5));
}

TEST(ProfileFile, NeedsOnlyTheFits) {
  const Calibration c = TypedIn(/*curve=*/false);
  EXPECT_EQ(c.profile.dtype, DType::kBFloat16);
  EXPECT_EQ(c.profile.launch_ns, 5);
  EXPECT_EQ(TimeOf(c.profile, Elementwise{.bytes_moved = 10}), 8);
  EXPECT_EQ(TimeOf(c.profile, Gemm{.m = 1, .n = 1, .k = 3}), 12);
  EXPECT_TRUE(c.primitives.front().measurements.empty());
}

}  // namespace
}  // namespace spiritlevel
