#include "calibrate/table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/calibrate/fake_device.h"

namespace spiritlevel {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

// 0.02 ns a FLOP are 50 GFLOP/s, 0.04 ns a byte 25 GB/s.
TEST(CalibrationTable, ShowsSpeedsErrorsAndSlowdown) {
  const std::string table = CalibrationTable(FakeCalibration());
  for (const PrimitiveInfo& info : Primitives()) {
    EXPECT_THAT(table, HasSubstr(fmt::format("\n{}", info.name)));
  }
  EXPECT_THAT(table, HasSubstr(" 50 GFLOP/s"));
  EXPECT_THAT(table, HasSubstr(" 25 GB/s"));
  EXPECT_THAT(table, HasSubstr("+20.0 %"));
  EXPECT_THAT(table, HasSubstr("that no fit has seen are predicted within"));
  EXPECT_THAT(table, ContainsRegex("\nin all +[0-9]+ .*[0-9]\\.[0-9] / +[0-9]+\\.[0-9] %\n"));
}

TEST(CalibrationWarnings, AreSilentWhenAllIsWell) {
  EXPECT_THAT(CalibrationWarnings(FakeCalibration()), IsEmpty());
}

TEST(CalibrationWarnings, SpeakOfNoiseEarlyStopsAndBadFits) {
  Calibration c = FakeCalibration();
  c.complete = false;
  c.left_out = 17;
  c.validity.drift = 0.3;
  for (PrimitiveResult& result : c.primitives) {
    for (Measurement& m : result.measurements) m.predicted_ns *= 1.4;
  }
  const std::string warnings = CalibrationWarnings(c);
  EXPECT_THAT(warnings, HasSubstr("stopped early; 17 planned shapes"));
  EXPECT_THAT(warnings, HasSubstr("30.0 %"));
  EXPECT_THAT(warnings, HasSubstr("more than 15 %"));
}

}  // namespace
}  // namespace spiritlevel
