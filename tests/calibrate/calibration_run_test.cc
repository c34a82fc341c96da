// Whole calibrations of this machine: measured, written, read, and used to price a model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/file.h"
#include "calibrate/calibration.h"
#include "calibrate/cpu_device.h"
#include "calibrate/profile_file.h"
#include "models/hf_config.h"
#include "models/model_costs.h"
#include "tests/base/temporary_folder.h"
#include "tests/sanitized.h"

namespace spiritlevel {
namespace {

// Counts what a progress line would show, which must go forward and stay within its total.
struct Progress {
  int reports = 0;
  int last = -1;

  CalibrationObserver Observer() {
    return [this](int done, int total, const std::string& what) {
      EXPECT_GT(done, last);
      EXPECT_LT(done, total);
      EXPECT_NE(what, "");
      last = done;
      ++reports;
    };
  }
};

Calibration WrittenAndRead(const Calibration& calibration) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "machine.textproto";
  WriteFile(path, ProfileText(calibration, ProfileFormatOf(path)));
  return LoadProfile(path);
}

Costs PriceTinyLlama(const DeviceProfile& profile, bool all_cores_busy) {
  const Architecture model = LoadHfConfig("scenarios/tinyllama-1.1b.json");
  return CostsFromModel(model,
                        {.sequence_length = 256,
                         .dtype = DType::kFloat32,
                         .ranks = 2,
                         .micro_batches = 4,
                         .all_cores_busy = all_cores_busy},
                        profile);
}

// Layers do the bulk of it, and take at least what the fastest core there is needs for their FLOP.
void ExpectPlausible(const Costs& costs) {
  constexpr double kLayerParameters = 11 * 44e6;
  constexpr double kFlop = 2.0 * 256 * kLayerParameters;
  constexpr double kMostFlopPerNs = 10'000;
  for (int stage = 0; stage < 2; ++stage) {
    const StageCost& t = costs.of(stage, 0);
    for (const TimeNs pass : {t.forward, t.input_grad, t.weight_grad}) {
      EXPECT_GT(static_cast<double>(pass), kFlop / kMostFlopPerNs);
    }
  }
  EXPECT_GT(costs.common().hop.busy, 0);
  EXPECT_GT(costs.common().optimizer_by_stage[0], 0);
}

TEST(CalibrationRun, ATinyBudgetIsMeasuredWrittenReadAndPricesAModel) {
  const std::unique_ptr<Device> device = MakeCpuDevice(Bytes{1} << 20);
  Progress progress;
  const Calibration measured =
      Calibrate(*device, {.seconds = 0.5, .quick = true}, progress.Observer());
  EXPECT_GE(progress.reports, 2 * kNumPrimitives);  // what no fit can do without
  const Calibration read = WrittenAndRead(measured);
  EXPECT_EQ(read, measured);
  const Costs alone = PriceTinyLlama(read.profile, /*all_cores_busy=*/false);
  const Costs busy = PriceTinyLlama(read.profile, /*all_cores_busy=*/true);
  ExpectPlausible(alone);
  for (int stage = 0; stage < 2; ++stage) {
    EXPECT_GE(busy.of(stage, 0).forward, alone.of(stage, 0).forward);
    EXPECT_GE(busy.of(stage, 0).fused_backward, alone.of(stage, 0).fused_backward);
  }
}

TEST(CalibrationRun, WhatIsUsualStaysWithinAMinute) { EXPECT_LE(CalibrationOptions{}.seconds, 60); }

TEST(CalibrationRun, AUsualOnePredictsUnseenShapesWithinFifteenPercent) {
  if (std::getenv("SPIRITLEVEL_LONG_TESTS") == nullptr) {
    GTEST_SKIP() << "a long test: ./run_tests --long";
  }
  if (kSanitized) GTEST_SKIP() << "sanitizers are timed here, not kernels";
  const std::unique_ptr<Device> device = MakeCpuDevice(ColdBytes(DescribeMachine()));
  Progress progress;
  const Calibration c = Calibrate(*device, {}, progress.Observer());
  EXPECT_TRUE(c.complete);
  EXPECT_LE(c.seconds, 60);
  EXPECT_GT(progress.reports, 300);
  ExpectPlausible(PriceTinyLlama(c.profile, /*all_cores_busy=*/true));
  const Errors held_out = InTotal(c, /*held_out=*/true);
  EXPECT_GE(held_out.count, 70);
  if (c.validity.noisy()) {
    GTEST_SKIP() << fmt::format(
        "the machine was noisy: one kernel took up to {:.0f} % longer, {} of {} samples were "
        "disturbed; nine in ten unseen shapes were predicted within {:.1f} %",
        100 * c.validity.drift, c.validity.disturbed, c.validity.samples, 100 * held_out.p90);
  }
  EXPECT_LT(held_out.p90, 0.15);
}

}  // namespace
}  // namespace spiritlevel
