// A made-up device, whose times are known: what calibration must give back.
#pragma once

#include <array>
#include <memory>
#include <random>

#include "calibrate/calibration.h"
#include "calibrate/device.h"

namespace spiritlevel {

struct FakeTruth {
  // ns = base + (units + pad) * rate, by kind.
  double gemm_rate = 0.01;  // of large ones; small ones are slower
  double gemm_small = 2e6;  // FLOP at which the rate is twice that of large ones
  double thin = 16;         // rows that a product's m seems thicker
  LinearFit attention_forward{20'000, 0.02};
  LinearFit attention_backward{30'000, 0.025};
  LinearFit bytes{500, 0.04};  // elementwise, loss
  // Of a row. Of both forms: rows of the input gradient outgrow a cache, by and by.
  SizeFit norm_forward{.line = {20, 0.03}};
  SizeFit norm_input_grad{.curve = {{{5e3, 0.04}, {80e3, 0.07}}}};
  SizeFit norm_weight_grad{.line = {10, 0.05}};
  SizeFit embedding{.line = {100, 0.04}};
  LinearFit optimizer{1'000, 1.5};
  LinearFit hand_over{900, 0.1};
  double launch = 50;
  std::array<double, kNumKernelClasses> slowdown = {1.2, 1.05, 1.4};  // by KernelClass
  double noise = 0;     // relative, uniform to both sides
  double outliers = 0;  // share of samples that take three times as long
};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(const FakeTruth& truth, unsigned seed = 1) : truth_(truth), random_(seed) {}

  std::string_view name() const override { return "fake"; }
  MeasuredMachine machine() const override {
    return {.cpu = "made up", .cores = 2, .usable_cores = 2};
  }
  Software software() const override { return {.blas = "none", .compiler = "none"}; }
  std::unique_ptr<Workload> Prepare(const Work& work) override;
  Timing Time(Workload& workload, int repeats) override;
  int WhileOthersRun(const Work& work, const std::function<void()>& body) override;
  std::unique_ptr<Workload> PrepareRoundTrip(Bytes bytes) override;

  // The time of a kernel without noise.
  double NanosecondsOf(const Work& work) const;

  int times_called = 0;

 private:
  FakeTruth truth_;
  std::mt19937 random_;
  double busy_ = 1;  // factor on all that runs
};

// A calibration of a made-up device, complete in an instant.
Calibration FakeCalibration(const FakeTruth& truth = {}, bool quick = true, unsigned seed = 1);

}  // namespace spiritlevel
