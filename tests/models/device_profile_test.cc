// Times of kernels from a profile whose numbers we made up.
#include "models/device_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/base/input_error_of.h"
#include "tests/models/made_up_device.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

TEST(RateCurve, IsExactOnAPowerLawBetweenItsPoints) {
  RateCurve curve;
  for (const double units : {1e3, 1e5, 1e8}) {
    curve.points.push_back({units, 7 * std::pow(units, -0.25)});
  }
  for (const double units : {1e3, 3e3, 1e5, 4e7, 1e8}) {
    EXPECT_NEAR(curve.At(units) / (7 * std::pow(units, 0.75)), 1, 1e-12) << units;
  }
}

TEST(RateCurve, KeepsTheRateOfItsEndsOutside) {
  const RateCurve curve{{{10, 4}, {1000, 2}}};
  EXPECT_DOUBLE_EQ(curve.At(5), 20);
  EXPECT_DOUBLE_EQ(curve.At(10), 40);
  EXPECT_DOUBLE_EQ(curve.At(1000), 2000);
  EXPECT_DOUBLE_EQ(curve.At(5000), 10000);
  EXPECT_DOUBLE_EQ(curve.At(0), 0);
}

TEST(DeviceProfile, EachKernelIsTimedByItsOwnFit) {
  const DeviceProfile device = MadeUpDevice();
  EXPECT_EQ(TimeOf(device, Gemm{.m = 10, .n = 20, .k = 30}), 12'000);
  EXPECT_EQ(TimeOf(device, Gemm{.m = 10, .n = 20, .k = 30, .use = Gemm::Use::kInputGrad}), 18'000);
  EXPECT_EQ(TimeOf(device, Gemm{.m = 10, .n = 20, .k = 30, .use = Gemm::Use::kWeightGrad}), 24'000);
  const Attention attention{
      .batch = 1, .heads = 2, .kv_heads = 2, .sequence = 4, .head_dim = 8, .causal = false};
  EXPECT_EQ(TimeOf(device, attention), 100 + 2 * 4 * 2 * 8 * 16);
  EXPECT_EQ(TimeOf(device, Norm{.rows = 4, .width = 8, .element = 2}), 4 * 200 + 2 * 64);
  Norm norm{.rows = 4, .width = 8, .part = Norm::Part::kInputGrad, .element = 2};
  EXPECT_EQ(TimeOf(device, norm), 4 * 210 + 2 * 3 * 64);
  norm.part = Norm::Part::kWeightGrad;
  EXPECT_EQ(TimeOf(device, norm), 4 * 220 + 3 * 2 * 64);
  norm.part = Norm::Part::kBackward;  // one half after the other
  EXPECT_EQ(TimeOf(device, norm), 4 * (210 + 220) + 2 * 3 * 64 + 3 * 2 * 64);
  EXPECT_EQ(TimeOf(device, Elementwise{500}), 300 + 500);
  EXPECT_EQ(TimeOf(device, Embedding{.tokens = 1024, .width = 8, .element = 2}),
            400 + 2 * 1024 * 16);
  EXPECT_EQ(TimeOf(device, Loss{.tokens = 4, .vocabulary = 8, .element = 2}), 500 + 64);
}

TEST(DeviceProfile, ACurveHoldsInsteadOfTheLineBesideIt) {
  DeviceProfile device = MadeUpDevice();
  device.elementwise.curve = {{{100, 4}, {1000, 2}}};
  EXPECT_EQ(TimeOf(device, Elementwise{100}), 400);
  EXPECT_EQ(TimeOf(device, Elementwise{1000}), 2000);
  device.elementwise.curve = {};
  EXPECT_EQ(TimeOf(device, Elementwise{100}), 300 + 100);
}

TEST(DeviceProfile, EachKernelIsOfTheClassThatBoundsIt) {
  EXPECT_EQ(ClassOf(Gemm{}), KernelClass::kProduct);
  EXPECT_EQ(ClassOf(Attention{}), KernelClass::kAttention);
  for (const Kernel& kernel :
       {Kernel(Norm{}), Kernel(Elementwise{}), Kernel(Embedding{}), Kernel(Loss{})}) {
    EXPECT_EQ(ClassOf(kernel), KernelClass::kStreaming);
  }
}

// Both of a line's numbers and all of a curve's: the factor is on the whole time, at every size.
TEST(DeviceProfile, WhileAllCoresAreBusyEachKernelTakesItsOwnClasssFactor) {
  DeviceProfile device = MadeUpDevice();
  device.loss_forward.curve = {{{100, 4}, {1000, 2}}};
  device.slowdown_all_cores = {1.25, 1.5, 2};
  const DeviceProfile busy = WhileAllCoresAreBusy(device);
  std::vector<Kernel> kernels;
  for (const Gemm::Use use : {Gemm::Use::kForward, Gemm::Use::kInputGrad, Gemm::Use::kWeightGrad}) {
    kernels.push_back(Gemm{.m = 10, .n = 20, .k = 30, .use = use});
  }
  for (const Norm::Part part : {Norm::Part::kForward, Norm::Part::kBackward, Norm::Part::kInputGrad,
                                Norm::Part::kWeightGrad}) {
    kernels.push_back(Norm{.rows = 4, .width = 8, .part = part, .element = 2});
  }
  for (const bool backward : {false, true}) {
    kernels.push_back(Attention{
        .batch = 1, .heads = 2, .kv_heads = 2, .sequence = 4, .head_dim = 8, .backward = backward});
    kernels.push_back(Embedding{.tokens = 9, .width = 8, .backward = backward});
    kernels.push_back(Loss{.tokens = 9, .vocabulary = 8, .backward = backward});
    kernels.push_back(Loss{.tokens = 90, .vocabulary = 8, .backward = backward});
  }
  kernels.push_back(Elementwise{500});
  for (const Kernel& kernel : kernels) {
    const double factor = device.slowdown_all_cores[static_cast<size_t>(ClassOf(kernel))];
    EXPECT_DOUBLE_EQ(NanosecondsOf(busy, kernel), factor * NanosecondsOf(device, kernel))
        << ToString(kernel);
  }
  EXPECT_EQ(busy.optimizer.per_unit_ns, 2 * device.optimizer.per_unit_ns);
  EXPECT_EQ(busy.launch_ns, device.launch_ns);
  EXPECT_EQ(busy.transfer_latency_ns, device.transfer_latency_ns);
  EXPECT_EQ(busy.transfer_ns_per_byte, device.transfer_ns_per_byte);
  EXPECT_EQ(WhileAllCoresAreBusy(busy), busy);  // not twice
}

TEST(DeviceProfile, TimesAreRoundedHalfUp) {
  DeviceProfile device = MadeUpDevice();
  device.elementwise.line = {.base_ns = 0, .per_unit_ns = 0.5};
  EXPECT_EQ(TimeOf(device, Elementwise{1}), 1);
  EXPECT_EQ(TimeOf(device, Elementwise{3}), 2);
  EXPECT_EQ(TimeOf(device, Elementwise{4}), 2);
}

TEST(DeviceProfile, NumbersThatNoMeasurementGivesAreRefusedByName) {
  const auto refusal = [](auto&& change) {
    DeviceProfile device = MadeUpDevice();
    change(&device);
    return InputErrorOf([&] { CheckProfile(device); });
  };
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refusal([](DeviceProfile*) {}), "");
  EXPECT_THAT(refusal([](DeviceProfile* d) { d->norm_forward.line.base_ns = kNaN; }),
              HasSubstr("norm_forward.base_ns: nan"));
  EXPECT_THAT(refusal([](DeviceProfile* d) { d->loss_backward.line.per_unit_ns = -1; }),
              HasSubstr("loss_backward.per_unit_ns: -1"));
  EXPECT_THAT(refusal([](DeviceProfile* d) {
                d->norm_weight_grad.curve = {{{10, 1}, {20, kNaN}}};
              }),
              HasSubstr("norm_weight_grad.ns_per_unit: nan"));
  EXPECT_THAT(refusal([](DeviceProfile* d) { d->transfer_ns_per_byte = kInfinity; }),
              HasSubstr("transfer_ns_per_byte"));
  EXPECT_THAT(refusal([](DeviceProfile* d) { d->slowdown_all_cores[1] = 0.9; }),
              HasSubstr("slowdown_all_cores of attention: 0.9"));
  EXPECT_THAT(refusal([](DeviceProfile* d) { d->gemm[1].points.clear(); }),
              HasSubstr("gemm input grad: has no points"));
  EXPECT_THAT(refusal([](DeviceProfile* d) {
                d->gemm[2].points = {{10, 1}, {10, 1}};
              }),
              HasSubstr("gemm weight grad: sizes do not ascend"));
  EXPECT_THAT(refusal([](DeviceProfile* d) {
                d->gemm[0].points = {{10, 0}};
              }),
              HasSubstr("gemm forward"));
}

}  // namespace
}  // namespace spiritlevel
