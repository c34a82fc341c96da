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

// The median of its shapes, of which a few were disturbed; a dash where nothing was measured.
TEST(CalibrationTable, ASpreadIsOfHalfOfTheShapes) {
  Calibration c = FakeCalibration();
  PrimitiveResult& hand_over = c.primitives[static_cast<size_t>(Primitive::kHandOver)];
  for (Measurement& m : hand_over.measurements) m.samples.spread = 0.034;
  for (size_t i = 0; i < 3; ++i) hand_over.measurements[i].samples.spread = 11.777;
  EXPECT_THAT(CalibrationTable(c), ContainsRegex("\nhand_over .* 3\\.4 % "));
  hand_over = {.primitive = Primitive::kHandOver};
  EXPECT_THAT(CalibrationTable(c), ContainsRegex("\nhand_over +0 .* - +-\n"));
}

TEST(CalibrationTable, ShowsWhatEachClassOfKernelsLosesToOthers) {
  FakeTruth truth;
  truth.slowdown = {1.2, 1.07, 1.5};
  const std::string table = CalibrationTable(FakeCalibration(truth));
  EXPECT_THAT(table, ContainsRegex("\n  gemm .*\\+20\\.0 %\n  attention .*\\+7\\.0 %\n"
                                   "  elementwise .*\\+50\\.0 %\n"));
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
