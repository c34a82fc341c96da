// What goes wrong on a device ends in a GpuError, and with nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "kernels/cuda/model/device_stage_optimizer.h"
#include "kernels/cuda/model/device_stage_sizes.h"
#include "tests/kernels/cuda/model/device_pipeline.h"

namespace spiritlevel::cuda {
namespace {

using testing::IsEmpty;

cpu::ModelShape Shape() {
  cpu::ModelShape shape = DeviceModels()[2].shape;  // with biases and dropout
  shape.layers = 1;
  shape.storage = cpu::DType::kBFloat16;
  return shape;
}

// All that a rank does in an iteration, and the bits that come of it.
std::string Iteration(FakeLayer* layer, BufferPool* pool) {
  const cpu::ModelShape shape = Shape();
  TestRank rank(layer, pool);
  DeviceStage stage(shape, cpu::EvenStages(shape, 1)[0], rank.context());
  DeviceGradients sums(stage.parameters());
  DeviceStageOptimizer optimizer(&stage.parameters());
  for (int i = 0; i < 2; ++i) {
    const ReferenceBatch batch = RandomBatch(shape, i);
    DeviceStage::Forwarded f = stage.Forward(ViewOf(batch, 1), DeviceTensor());
    DeviceStage::Backwarded b = stage.InputGrad(std::move(f.activation), DeviceTensor(), &sums);
    stage.LossSum(f.losses);
    stage.WeightGrad(std::move(b.weight_state));
  }
  optimizer.SquaredNorms(sums);
  const DeviceStageOptimizer::Snapshot snapshot = optimizer.TakeSnapshot();
  optimizer.Step({}, sums, 1);
  std::string bits;
  for (int i = 0; i < stage.parameters().size(); ++i) {
    bits += BitsOfTensor(rank.context(), stage.parameters().value(i));
  }
  optimizer.Restore(snapshot);
  return bits;
}

struct Outcome {
  std::string bits;
  std::optional<GpuErrorKind> error;
};

Outcome TryIteration(FakeLayer* layer, BufferPoolSettings settings) {
  Outcome outcome;
  BufferPool pool(layer, 0, settings);
  try {
    outcome.bits = Iteration(layer, &pool);
  } catch (const GpuError& e) {
    outcome.error = e.kind();
  }
  EXPECT_EQ(pool.live(), 0);
  return outcome;
}

std::string ExpectedBits() {
  FakeLayer layer({});
  return TryIteration(&layer, {}).bits;
}

// A pool that is told once that there is no more gives back what it does not use, and asks again.
TEST(DeviceFaults, MemoryThatIsShortForAMomentChangesNoBit) {
  const std::string expected = ExpectedBits();
  bool reached = true;
  for (int nth = 1; reached; ++nth) {
    SCOPED_TRACE(testing::Message() << "allocation " << nth);
    FakeLayer layer({.seed = static_cast<uint64_t>(nth)});
    layer.FailCall("Allocate", nth, GpuErrorKind::kOutOfMemory);
    const Outcome outcome = TryIteration(&layer, {});
    EXPECT_EQ(outcome.error, std::nullopt);
    EXPECT_EQ(outcome.bits, expected);
    EXPECT_EQ(layer.allocated(0), 0);
    EXPECT_THAT(layer.misuses(), IsEmpty());
    reached = layer.Log().find("-> out of memory") != std::string::npos;
    ASSERT_TRUE(reached || nth > 20) << "an iteration takes many buffers";
  }
}

// On a device of `memory` bytes.
Outcome TryWithin(Bytes memory, uint64_t seed) {
  FakeSettings settings{.devices = 1, .seed = seed};
  settings.device.memory = memory;
  FakeLayer layer(settings);
  const Outcome outcome = TryIteration(&layer, {});
  EXPECT_EQ(layer.allocated(0), 0) << "memory " << memory;
  EXPECT_EQ(layer.live_events(), 0) << "memory " << memory;
  EXPECT_THAT(layer.misuses(), IsEmpty()) << "memory " << memory;
  return outcome;
}

// Whichever buffer it is for which there is no more.
TEST(DeviceFaults, MemoryThatIsShortForGoodIsOutOfMemoryAndNothingIsLeft) {
  const std::string expected = ExpectedBits();
  int failures = 0;
  uint64_t seed = 0;
  for (Bytes memory = 512;; memory += 2048) {
    const Outcome outcome = TryWithin(memory, ++seed);
    if (!outcome.error) {
      EXPECT_EQ(outcome.bits, expected);
      break;
    }
    EXPECT_EQ(outcome.error, GpuErrorKind::kOutOfMemory);
    ++failures;
  }
  EXPECT_GT(failures, 20);
}

TEST(DeviceFaults, ACallThatFailsEndsInItsErrorAndNothingIsLeft) {
  for (const std::string call :
       {"Launch", "Multiply", "Copy", "FindAlgorithms", "AllocateHost", "MakeStream"}) {
    int nth = 1;
    for (bool reached = true; reached; nth += call == "Launch" ? 7 : 3) {
      SCOPED_TRACE(call + " " + std::to_string(nth));
      FakeLayer layer({.seed = static_cast<uint64_t>(nth)});
      layer.FailCall(call, nth, GpuErrorKind::kOther);
      const Outcome outcome = TryIteration(&layer, {});
      reached = outcome.error.has_value();
      EXPECT_EQ(outcome.error.value_or(GpuErrorKind::kOther), GpuErrorKind::kOther);
      EXPECT_EQ(layer.allocated(0), 0);
      EXPECT_EQ(layer.live_events(), 0);
      EXPECT_THAT(layer.misuses(), IsEmpty());
    }
    EXPECT_GT(nth, 3) << call << " is one of those that are made";
  }
}

// The device is lost then, with what it still holds for work that was under way (buffer_pool.h):
// what counts is that the host hears of it and comes to its end.
TEST(DeviceFaults, AKernelThatBreaksIsToldByALaterCall) {
  int nth = 1;
  for (bool reached = true; reached; nth += 11) {
    SCOPED_TRACE(testing::Message() << "kernel " << nth);
    FakeLayer layer({.seed = static_cast<uint64_t>(nth)});
    layer.BreakLaunch(nth);
    const Outcome outcome = TryIteration(&layer, {.patience_ms = 1});
    reached = outcome.error.has_value();
    EXPECT_EQ(outcome.error.value_or(GpuErrorKind::kAsynchronous), GpuErrorKind::kAsynchronous);
    EXPECT_THAT(layer.misuses(), IsEmpty());
  }
  EXPECT_GT(nth, 100);
}

}  // namespace
}  // namespace spiritlevel::cuda
