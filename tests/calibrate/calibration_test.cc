#include "calibrate/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "tests/calibrate/fake_device.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

void ExpectLine(const LinearFit& fit, const LinearFit& truth, double tolerance,
                const std::string& what) {
  EXPECT_NEAR(fit.per_unit_ns, truth.per_unit_ns, tolerance * truth.per_unit_ns) << what;
  // The base shows in small sizes only: here it is a twentieth of the time.
  const double small = 20 * truth.base_ns / truth.per_unit_ns;
  EXPECT_NEAR(fit.At(small), truth.At(small), tolerance * truth.At(small)) << what;
}

void ExpectTruth(const Calibration& c, const FakeTruth& truth, double tolerance) {
  const DeviceProfile& p = c.profile;
  ExpectLine(p.attention_forward, truth.attention_forward, tolerance, "attention_forward");
  ExpectLine(p.attention_backward, truth.attention_backward, tolerance, "attention_backward");
  for (const auto& [line, what] : {std::pair(p.norm_forward, "norm_forward"),
                                   {p.norm_backward, "norm_backward"},
                                   {p.elementwise, "elementwise"},
                                   {p.embedding_forward, "embedding_forward"},
                                   {p.embedding_backward, "embedding_backward"},
                                   {p.loss_forward, "loss_forward"},
                                   {p.loss_backward, "loss_backward"}}) {
    ExpectLine(line, truth.bytes, tolerance, what);
  }
  ExpectLine(p.optimizer, truth.optimizer, tolerance, "optimizer");
  ExpectLine(LineOf(p, Primitive::kHandOver), truth.hand_over, tolerance, "hand_over");
  EXPECT_NEAR(p.launch_ns, truth.launch, tolerance * truth.launch + 1e-9);
  EXPECT_NEAR(p.slowdown_all_cores, truth.slowdown, tolerance * truth.slowdown + 1e-9);
}

TEST(Calibration, GivesBackTheMadeUpDevice) {
  const FakeTruth truth;
  const Calibration c = FakeCalibration(truth, /*quick=*/false);
  ExpectTruth(c, truth, 0.002);
  EXPECT_TRUE(c.complete);
  EXPECT_EQ(c.left_out, 0);
  EXPECT_LT(InTotal(c, /*held_out=*/true).p90, 0.02);
  EXPECT_FALSE(c.validity.noisy());
}

TEST(Calibration, StandsUpToNoiseAndOneOutlierInTen) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const FakeTruth truth{.noise = 0.03, .outliers = 0.1};
    const Calibration c = FakeCalibration(truth, /*quick=*/false, seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExpectTruth(c, truth, 0.05);
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
