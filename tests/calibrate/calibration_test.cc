#include "calibrate/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "tests/calibrate/fake_device.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

// Over the sizes that were measured; a device's base shows in the small ones only.
void ExpectFit(const Calibration& c, Primitive primitive, const SizeFit& truth, double tolerance) {
  const PrimitiveResult& result = c.primitives[static_cast<size_t>(primitive)];
  ASSERT_FALSE(result.measurements.empty());
  const SizeFit fit = FitOf(c.profile, primitive);
  for (const Measurement& m : result.measurements) {
    EXPECT_NEAR(fit.At(m.units) / truth.At(m.units), 1, tolerance)
        << InfoOf(primitive).name << ", " << m.what;
  }
}

void ExpectTruth(const Calibration& c, const FakeTruth& truth, double tolerance,
                 double tolerance_at_a_bend) {
  const auto expect = [&](Primitive primitive, const LinearFit& line) {
    ExpectFit(c, primitive, {.line = line}, tolerance);
  };
  expect(Primitive::kAttentionForward, truth.attention_forward);
  expect(Primitive::kAttentionBackward, truth.attention_backward);
  expect(Primitive::kElementwise, truth.bytes);
  expect(Primitive::kLossForward, truth.bytes);
  expect(Primitive::kLossBackward, truth.bytes);
  expect(Primitive::kOptimizer, truth.optimizer);
  expect(Primitive::kHandOver, truth.hand_over);
  ExpectFit(c, Primitive::kNormForward, truth.norm_forward, tolerance);
  ExpectFit(c, Primitive::kNormWeightGrad, truth.norm_weight_grad, tolerance);
  ExpectFit(c, Primitive::kEmbeddingForward, truth.embedding, tolerance);
  ExpectFit(c, Primitive::kEmbeddingBackward, truth.embedding, tolerance);
  ExpectFit(c, Primitive::kNormInputGrad, truth.norm_input_grad, tolerance_at_a_bend);
  EXPECT_NEAR(c.profile.launch_ns, truth.launch, tolerance * truth.launch + 1e-9);
  for (size_t i = 0; i < truth.slowdown.size(); ++i) {
    EXPECT_NEAR(c.profile.slowdown_all_cores[i], truth.slowdown[i], tolerance * truth.slowdown[i])
        << Name(static_cast<KernelClass>(i));
  }
}

TEST(Calibration, GivesBackTheMadeUpDevice) {
  const FakeTruth truth;
  const Calibration c = FakeCalibration(truth, /*quick=*/false);
  ExpectTruth(c, truth, 0.002, 0.06);
  EXPECT_TRUE(c.complete);
  EXPECT_EQ(c.left_out, 0);
  EXPECT_LT(InTotal(c, /*held_out=*/true).p90, 0.02);
  EXPECT_FALSE(c.validity.noisy());
}

// A line where a line holds, to the last number; a curve where a cache has an edge.
TEST(Calibration, TakesACurveOnlyWhereALineDoesNotHold) {
  const FakeTruth truth;
  const Calibration c = FakeCalibration(truth, /*quick=*/false);
  for (const PrimitiveInfo& info : Primitives()) {
    const bool bends = IsProduct(info.primitive) || info.primitive == Primitive::kNormInputGrad;
    EXPECT_EQ(FitOf(c.profile, info.primitive).is_curve(), bends) << info.name;
  }
  EXPECT_NEAR(c.profile.norm_forward.line.per_unit_ns, 0.03, 1e-4);
  EXPECT_NEAR(c.profile.norm_forward.line.base_ns, 20, 0.5);
}

// The two halves of a norm's backward have rates of their own, and its whole has their sum.
TEST(Calibration, ANormsBackwardIsBothItsHalves) {
  const FakeTruth truth;
  const Calibration c = FakeCalibration(truth, /*quick=*/false);
  const FakeDevice device(truth);
  Norm norm{.rows = 300, .width = 700, .element = 4};
  double both = 0;
  for (const Norm::Part part : {Norm::Part::kInputGrad, Norm::Part::kWeightGrad}) {
    norm.part = part;
    both += device.NanosecondsOf(Kernel(norm));
    EXPECT_NEAR(NanosecondsOf(c.profile, norm) / device.NanosecondsOf(Kernel(norm)), 1, 0.04);
  }
  norm.part = Norm::Part::kBackward;
  EXPECT_NEAR(NanosecondsOf(c.profile, norm) / both, 1, 0.04);
}

TEST(Calibration, StandsUpToNoiseAndOneOutlierInTen) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const FakeTruth truth{.noise = 0.03, .outliers = 0.1};
    const Calibration c = FakeCalibration(truth, /*quick=*/false, seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExpectTruth(c, truth, 0.06, 0.12);
    EXPECT_LT(InTotal(c, /*held_out=*/true).p90, 0.06);
  }
}

TEST(Calibration, PredictsProductsItHasNotSeen) {
  const FakeTruth truth;
  const Calibration c = FakeCalibration(truth, /*quick=*/false);
  const FakeDevice device(truth);
  for (const Gemm gemm : {Gemm{300, 600, 700}, Gemm{40, 800, 800}, Gemm{900, 1'000, 1'100}}) {
    EXPECT_NEAR(NanosecondsOf(c.profile, gemm) / device.NanosecondsOf(Kernel(gemm)), 1, 0.05)
        << ToString(gemm);
  }
}

TEST(Calibration, QuickMeasuresLessAndStillJudgesItself) {
  const Calibration quick = FakeCalibration({}, /*quick=*/true);
  const Calibration full = FakeCalibration({}, /*quick=*/false);
  EXPECT_LT(InTotal(quick, false).count, InTotal(full, false).count);
  EXPECT_GE(InTotal(quick, true).count, 14);
}

TEST(Calibration, HeldOutShapesDoNotMoveTheFit) {
  Calibration c = FakeCalibration();
  const DeviceProfile before = c.profile;
  for (PrimitiveResult& result : c.primitives) {
    for (Measurement& m : result.measurements) {
      if (m.held_out) m.samples.quiet_ns *= 10;
    }
  }
  FitProfile(&c);
  EXPECT_EQ(c.profile, before);
  EXPECT_GT(InTotal(c, true).p50, 0.85);  // predicted a tenth of what is now said to be measured
}

// Every shape is timed on several visits, and others' work only ever makes it slower.
TEST(Calibration, TheQuietestVisitCounts) {
  for (const PrimitiveResult& result : FakeCalibration({.noise = 0.05}).primitives) {
    for (const Measurement& m : result.measurements) {
      EXPECT_GE(m.revisit_ns, m.samples.quiet_ns) << m.what;
    }
  }
}

// Noise makes a kernel seem faster beside others; a profile never says so.
TEST(Calibration, NoKernelIsFasterBesideOthers) {
  const Calibration c = FakeCalibration({.slowdown = {0.9, 1.1, 0.95}});
  EXPECT_LT(c.slowdowns[0].factor(), 1);
  EXPECT_EQ(c.profile.slowdown_all_cores[0], 1);
  EXPECT_NEAR(c.profile.slowdown_all_cores[1], 1.1, 1e-6);
  EXPECT_EQ(c.profile.slowdown_all_cores[2], 1);
}

TEST(Calibration, AMachineThatDriftsIsCalledNoisy) {
  EXPECT_TRUE(FakeCalibration({.noise = 0.4}).validity.noisy());
}

TEST(Calibration, StoppedAtOnceItSaysWhatIsMissing) {
  FakeDevice device({});
  const std::atomic<bool> stop = true;
  try {
    Calibrate(device, {.seconds = 100, .stop = &stop}, {});
    FAIL() << "nothing was measured";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("gemm_forward"));
    EXPECT_THAT(error.what(), HasSubstr("hand_over"));
    EXPECT_NE(error.way_out(), "");
  }
}

TEST(Calibration, StoppedAfterTheFirstRoundItKeepsWhatIsDone) {
  FakeDevice device({});
  std::atomic<bool> stop = false;
  const Calibration c = Calibrate(device, {.seconds = 100, .stop = &stop},
                                  [&](int done, int, const std::string&) { stop = done > 60; });
  EXPECT_FALSE(c.complete);
  EXPECT_GT(c.left_out, 0);
  EXPECT_EQ(c.slowdowns.size(), 3u);
  CheckProfile(c.profile);
}

TEST(Calibration, ProgressNeverPassesItsTotal) {
  FakeDevice device({});
  int last = -1;
  Calibrate(device, {.seconds = 100, .quick = true},
            [&](int done, int total, const std::string& what) {
              EXPECT_GT(done, last);
              EXPECT_LT(done, total);
              EXPECT_NE(what, "");
              last = done;
            });
  EXPECT_GT(last, 100);
}

}  // namespace
}  // namespace spiritlevel
