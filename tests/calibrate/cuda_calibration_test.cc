// A whole calibration of a made-up GPU: what it gives back, what it says of doubtful measurements,
// and how it ends when something fails.
#include "calibrate/cuda_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "calibrate/profile_file.h"
#include "calibrate/table.h"
#include "tests/base/input_error_of.h"
#include "tests/calibrate/cuda_fixture.h"

namespace spiritlevel {
namespace {

using cuda::FakeCost;
using cuda::GpuErrorKind;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

const TransferFit& Transfer(const Calibration& c, TransferKind kind, LinkClass link, int ranks) {
  const TransferFit* const fit = FindTransfer(*c.profile.gpu, kind, link, ranks);
  static const TransferFit none;
  EXPECT_NE(fit, nullptr) << Name(kind) << " by " << Name(link) << ", " << ranks << " ranks";
  return fit == nullptr ? none : *fit;
}

void ExpectLine(const TransferFit& fit, double base, double per_byte) {
  for (const double bytes : {1'024.0, 9'000.0, 65'536.0}) {
    EXPECT_NEAR(fit.time.At(bytes), base + per_byte * bytes, 0.01 * (base + per_byte * bytes))
        << Name(fit.kind) << ", " << fit.ranks << " ranks, " << bytes;
  }
}

TEST(CudaCalibration, GivesBackTheMadeUpDevice) {
  cuda::FakeLayer layer(MadeUpGpu());
  const Calibration c = TinyCalibration(&layer);
  EXPECT_EQ(c.backend, "cuda");
  EXPECT_EQ(c.profile.dtype, DType::kBFloat16);
  EXPECT_EQ(c.machine.cpu, "Made-up 100");
  EXPECT_EQ(c.left_out, 0);
  EXPECT_EQ(c.profile.launch_ns, 900);
  EXPECT_FALSE(c.validity.noisy());
  EXPECT_EQ(CalibrationWarnings(c).find("doubtful"), std::string::npos);
  // Of 0.4 ms and 20 ns for each of the gradients' elements, with a sum of squares of as much.
  EXPECT_NEAR(c.profile.optimizer.At(1'600), 2 * (400'000 + 20 * 1'600), 8'000);
  EXPECT_NEAR(c.profile.transfer_latency_ns, 2'000, 40);
  EXPECT_NEAR(c.profile.transfer_ns_per_byte, 1, 0.01);
  for (const TransferKind kind :
       {TransferKind::kHostToDevice, TransferKind::kDeviceToHost, TransferKind::kDeviceToDevice}) {
    ExpectLine(Transfer(c, kind, LinkClass::kSameDevice, 1), 2'000, 1);
  }
  ExpectLine(Transfer(c, TransferKind::kMessage, LinkClass::kSameDevice, 2), 2'000, 1);
  EXPECT_EQ(c.profile.slowdown_all_cores, (std::array<double, 3>{1, 1, 1}));
  EXPECT_THAT(c.gpu->left_out, IsEmpty());
  EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.misuses().front();
  ExpectNothingLeft(layer);
}

// The made-up device moves a rank's part times the ranks.
TEST(CudaCalibration, FitsCollectivesOfTwoAndOfAllDevices) {
  cuda::FakeLayer layer(MadeUpGpu(3));
  const Calibration c = TinyCalibration(&layer, {1, 2});
  for (const int ranks : {2, 3}) {
    ExpectLine(Transfer(c, TransferKind::kAllReduce, LinkClass::kSameNode, ranks), 2'000, ranks);
    for (const TransferKind kind :
         {TransferKind::kReduceScatter, TransferKind::kAllGather, TransferKind::kAllToAll}) {
      ExpectLine(Transfer(c, kind, LinkClass::kSameNode, ranks), 2'000, 1);
    }
  }
  ExpectLine(Transfer(c, TransferKind::kMessage, LinkClass::kSameNode, 2), 2'000, 1);
  EXPECT_THAT(layer.misuses(), IsEmpty());
  ExpectNothingLeft(layer, 3);
}

TEST(CudaCalibration, ReadsBackWhatItWrote) {
  cuda::FakeLayer layer(MadeUpGpu(2));
  const Calibration c = TinyCalibration(&layer, {1});
  ASSERT_EQ(c.profile.gpu->gemm_fp8.size(), 3u);
  for (const ProfileFormat format : {ProfileFormat::kText, ProfileFormat::kJson}) {
    const Calibration read = ParseProfile(ProfileText(c, format), format, "p");
    EXPECT_EQ(read.profile, c.profile);
    EXPECT_EQ(read, c);
  }
  EXPECT_THAT(CalibrationTable(c),
              AllOf(HasSubstr("host_to_device"), HasSubstr("all_reduce, 2 ranks"),
                    HasSubstr("gemm_weight_grad, fp8"), HasSubstr("SMs 1980 MHz at first")));
}

TEST(CudaCalibration, ADeviceWithoutFp8HasNoRatesOfIt) {
  cuda::FakeSettings settings = MadeUpGpu();
  settings.device.major = 8;
  cuda::FakeLayer layer(settings);
  const Calibration c = TinyCalibration(&layer);
  EXPECT_THAT(c.profile.gpu->gemm_fp8, IsEmpty());
  EXPECT_THAT(c.gpu->products_fp8, IsEmpty());
}

// Kernels take half as long again once a message has passed since the device was last held up; and
// a message 7 us more once a product has.
TEST(CudaCalibration, SeesWhatComputeAndMessagesDoToEachOther) {
  bool message = false;
  bool product = false;
  cuda::FakeSettings settings = MadeUpGpu();
  settings.duration = [&](const FakeCost& cost) -> TimeNs {
    const TimeNs time = MadeUpTime(cost);
    if (cost.kind == FakeCost::Kind::kTransfer) {
      message = true;
      return time + (product ? 7'000 : 0);
    }
    if (cost.call == nullptr) return time;
    if (std::holds_alternative<cuda::Fill>(*cost.call)) {
      message = product = false;
      return time;
    }
    product = product || cost.kind == FakeCost::Kind::kProduct;
    return message ? time + time / 2 : time;
  };
  cuda::FakeLayer layer(settings);
  const Calibration c = TinyCalibration(&layer);
  ASSERT_EQ(c.gpu->beside_transfers.size(), 3u);
  for (const double factor : c.profile.gpu->slowdown_beside_transfers) {
    EXPECT_NEAR(factor, 1.5, 1e-9);
  }
  EXPECT_EQ(c.profile.gpu->delay_behind_product_ns, 7'000);
  EXPECT_THAT(c.gpu->left_out, IsEmpty());
}

TEST(CudaCalibration, ProgressNeverPassesItsTotal) {
  cuda::FakeLayer layer(MadeUpGpu());
  TinyCalibration(&layer, {}, [](int done, int total, const std::string& what) {
    EXPECT_GE(done, 0);
    EXPECT_LT(done, total) << what;
  });
}

// --- Doubtful measurements

Calibration WithStateLater(const cuda::DeviceState& state) {
  cuda::FakeLayer layer(MadeUpGpu());
  return TinyCalibration(&layer, {}, [&](int done, int, const std::string&) {
    if (done == 30) layer.SetState(state);
  });
}

TEST(CudaCalibration, AClockThatChangesByMoreThanTwoPercentMakesItDoubtful) {
  cuda::DeviceState state{.sm_clock_mhz = 1'950, .memory_clock_mhz = 3'201, .temperature = 71};
  EXPECT_FALSE(WithStateLater(state).validity.doubtful_clocks());  // 1.5 % below 1980
  state.sm_clock_mhz = 1'900;
  const Calibration c = WithStateLater(state);
  EXPECT_TRUE(c.validity.doubtful_clocks());
  EXPECT_TRUE(c.validity.noisy());
  EXPECT_NEAR(c.validity.clock_change(), 1'980.0 / 1'900 - 1, 1e-9);
  EXPECT_EQ(c.validity.sensors.back().temperature, 71);
  EXPECT_THAT(CalibrationWarnings(c),
              AllOf(HasSubstr("clock changed by 4.2 %"), HasSubstr("doubtful")));
}

TEST(CudaCalibration, ThrottlingMakesItDoubtful) {
  const Calibration c = WithStateLater(
      {.sm_clock_mhz = 1'980, .memory_clock_mhz = 3'201, .temperature = 89, .throttled = true});
  EXPECT_TRUE(c.validity.noisy());
  EXPECT_THAT(CalibrationWarnings(c), HasSubstr("throttled itself"));
}

TEST(CudaCalibration, ClocksThatCannotBeReadAreSaidToBeUnknown) {
  cuda::FakeSettings settings = MadeUpGpu();
  settings.state = {};
  cuda::FakeLayer layer(settings);
  const Calibration c = TinyCalibration(&layer);
  EXPECT_FALSE(c.validity.doubtful_clocks());
  EXPECT_THAT(CalibrationWarnings(c), HasSubstr("clocks cannot be read"));
}

// --- No device

std::string Refusal(cuda::Layer* layer, CudaCalibrationOptions options = TinyOptions()) {
  return InputErrorOf(
      [&] { CalibrateCuda(layer, options, {.seconds = 5, .plan = TinyPlan()}, {}); });
}

TEST(CudaCalibration, SaysWhyThereIsNoDevice) {
  EXPECT_THAT(Refusal(nullptr), AllOf(HasSubstr("--backend cuda: this build is without"),
                                      HasSubstr("use --backend cpu")));
  cuda::FakeSettings settings = MadeUpGpu(0);
  cuda::FakeLayer none(settings);
  EXPECT_THAT(Refusal(&none), HasSubstr("shows no device"));
  settings.versions.driver = 0;
  cuda::FakeLayer no_driver(settings);
  EXPECT_THAT(Refusal(&no_driver), HasSubstr("no CUDA driver"));
  cuda::FakeLayer two(MadeUpGpu(2));
  CudaCalibrationOptions third;
  third.device = 2;
  EXPECT_THAT(Refusal(&two, third),
              AllOf(HasSubstr("--device: there is no device 2"), HasSubstr("there are 0 to 1")));
}

TEST(CudaCalibration, RefusesADeviceThatIsTooOldOrTooFullBeforeItMeasures) {
  cuda::FakeSettings settings = MadeUpGpu();
  settings.device.major = 7;
  cuda::FakeLayer old(settings);
  EXPECT_THAT(Refusal(&old), HasSubstr("compute capability 7.0"));
  settings = MadeUpGpu();
  settings.device.memory = Bytes{16} << 20;
  cuda::FakeLayer full(settings);
  EXPECT_THAT(Refusal(&full),
              AllOf(HasSubstr("16 MiB of its 16 MiB free"), HasSubstr("--micro-batch")));
  EXPECT_EQ(full.executed().size(), 0u);
}

// --- Failures: each ends in a message of ours, or in a profile that names what it lacks. Nothing
// hangs, and nothing is left on the device.

// Empty, and `left_out` is what the profile says, if it came to one.
std::string Outcome(cuda::FakeLayer* layer, int devices, std::vector<std::string>* left_out) {
  std::vector<int> peers;
  for (int i = 1; i < devices; ++i) peers.push_back(i);
  return InputErrorOf([&] { *left_out = TinyCalibration(layer, peers).gpu->left_out; });
}

TEST(CudaCalibration, EveryCallMayFailAndSaysSo) {
  const std::string functions[] = {"Allocate", "MakeStream",     "MakeEvent", "Record",  "Wait",
                                   "Launch",   "Synchronize",    "Between",   "Memory",  "State",
                                   "Multiply", "FindAlgorithms", "Copy",      "Describe"};
  for (const std::string& function : functions) {
    for (const int nth : {1, 2, 23, 160}) {
      SCOPED_TRACE(function + " " + std::to_string(nth));
      cuda::FakeLayer layer(MadeUpGpu());
      layer.FailCall(function, nth,
                     nth % 2 == 0 ? GpuErrorKind::kAsynchronous : GpuErrorKind::kOther);
      std::vector<std::string> left_out;
      const std::string error = Outcome(&layer, 1, &left_out);
      const bool reached = layer.Log().find("-> ") != std::string::npos;
      EXPECT_EQ(error.starts_with("--backend cuda: "), reached) << error;
      ExpectNothingLeft(layer);
    }
  }
}

TEST(CudaCalibration, OutOfMemoryLeavesOutWhatItWasFor) {
  cuda::FakeSettings settings = MadeUpGpu();
  for (const int nth : {1, 4, 12, 30, 300}) {
    cuda::FakeLayer layer(settings);
    layer.FailCall("Allocate", nth, GpuErrorKind::kOutOfMemory);
    std::vector<std::string> left_out;
    const std::string error = Outcome(&layer, 1, &left_out);
    EXPECT_EQ(error.empty(), error.find("memory") == std::string::npos) << nth << ": " << error;
    ExpectNothingLeft(layer);
  }
}

TEST(CudaCalibration, AKernelThatTakesTheDeviceWithItIsTold) {
  for (const int nth : {1, 40, 400}) {
    cuda::FakeLayer layer(MadeUpGpu());
    layer.BreakLaunch(nth);
    std::vector<std::string> left_out;
    EXPECT_THAT(Outcome(&layer, 1, &left_out),
                AllOf(HasSubstr("--backend cuda: "), HasSubstr("failed on the device"),
                      HasSubstr("run it again")))
        << nth;
  }
}

// With a peer the hand-over itself needs it; what comes later is left out by name.
TEST(CudaCalibration, ALostPeerIsTold) {
  for (const int nth : {1, 2, 30}) {
    SpyLayer layer(MadeUpGpu(2));
    layer.BreakAtSend(nth);
    std::vector<std::string> left_out;
    EXPECT_THAT(Outcome(&layer, 2, &left_out),
                AllOf(HasSubstr("the peer is gone"), HasSubstr("NCCL_DEBUG")))
        << nth;
  }
  // The only rank, which talks to itself.
  SpyLayer alone(MadeUpGpu());
  alone.BreakAtSend(1);
  std::vector<std::string> left_out;
  EXPECT_EQ(Outcome(&alone, 1, &left_out), "");
  EXPECT_THAT(left_out, testing::Contains(AllOf(HasSubstr("compute beside transfers"),
                                                HasSubstr("the peer is gone"))));
  ExpectNothingLeft(alone);
}

TEST(CudaCalibration, WithoutNcclTheRestIsMeasured) {
  cuda::FakeLayer layer(MadeUpGpu());
  layer.FailCall("MakeCommunicatorId", 1, GpuErrorKind::kUnsupported);
  std::vector<std::string> left_out;
  EXPECT_EQ(Outcome(&layer, 1, &left_out), "");
  EXPECT_THAT(left_out, testing::ElementsAre(HasSubstr("compute beside transfers")));
}

TEST(CudaCalibration, APeerThatDoesNotComeIsTold) {
  cuda::FakeLayer layer(MadeUpGpu(2));
  layer.FailCall("MakeCommunicator", 2, GpuErrorKind::kTimeout);
  std::vector<std::string> left_out;
  EXPECT_THAT(Outcome(&layer, 2, &left_out), HasSubstr("timed out"));
}

}  // namespace
}  // namespace spiritlevel
