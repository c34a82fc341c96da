// What can be made to go wrong in the fake, and how it then looks to the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/kernels/cuda/fake_layer.h"

namespace spiritlevel::cuda {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

template <typename Function>
GpuErrorKind KindThrownBy(Function function) {
  try {
    function();
  } catch (const GpuError& e) {
    return e.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return GpuErrorKind::kOther;
}

TEST(FakeFaults, TheNthCallFailsAndTheNextDoesNot) {
  FakeLayer layer({});
  layer.FailCall("Allocate", 2, GpuErrorKind::kOutOfMemory);
  layer.Free(0, layer.Allocate(0, 8));
  EXPECT_EQ(KindThrownBy([&] { layer.Allocate(0, 8); }), GpuErrorKind::kOutOfMemory);
  layer.Free(0, layer.Allocate(0, 8));
  EXPECT_EQ(layer.allocated(0), 0);
}

TEST(FakeFaults, EachFunctionCanFail) {
  FakeLayer layer({.devices = 1, .seed = 3});
  const Stream stream = layer.MakeStream(0, Partition{}, false);
  const Event event = layer.MakeEvent(0, true);
  const View x = Dense(layer.Allocate(0, 16), ElementType::kFloat32, 2, 2);
  const Product product{.a = x, .b = x, .c = Dense(layer.Allocate(0, 16), x.type, 2, 2)};
  const Communicator self = layer.MakeCommunicator(0, layer.MakeCommunicatorId(), 1, 0);
  const auto fails = [&](const std::string& name, const std::function<void()>& call) {
    SCOPED_TRACE(name);
    layer.FailCall(name, 1, GpuErrorKind::kOther);
    EXPECT_EQ(KindThrownBy(call), GpuErrorKind::kOther);
    EXPECT_NO_THROW(call());
  };
  fails("Describe", [&] { layer.Describe(0); });
  fails("State", [&] { layer.State(0); });
  fails("Memory", [&] { layer.Memory(0); });
  fails("Split", [&] { layer.Split(0, 2); });
  fails("AllocateHost", [&] { layer.FreeHost(layer.AllocateHost(8)); });
  fails("MakeStream", [&] { layer.Destroy(layer.MakeStream(0, Partition{}, false)); });
  fails("MakeEvent", [&] { layer.Destroy(layer.MakeEvent(0, false)); });
  fails("Record", [&] { layer.Record(event, stream); });
  fails("Wait", [&] { layer.Wait(stream, event); });
  fails("IsDone", [&] { layer.IsDone(event); });
  fails("Launch", [&] { layer.Launch(stream, Fill{x, 1}); });
  fails("FindAlgorithms", [&] { layer.FindAlgorithms(0, product, 0, 1); });
  fails("Multiply", [&] {
    layer.Multiply(stream, product, layer.FindAlgorithms(0, product, 0, 1)[0], nullptr);
  });
  fails("Copy", [&] { layer.Copy(stream, product.c.data, x.data, 16); });
  fails("Synchronize", [&] { layer.Synchronize(stream); });
  fails("Between", [&] { layer.Between(event, event); });
  fails("AllReduce", [&] { layer.AllReduce(self, stream, x, Reduction::kSum); });
  fails("BeginGroup", [&] {
    layer.BeginGroup();
    layer.EndGroup();
  });
  EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
}

// As on a device: the launch returns, a later call tells, and all calls from then on.
TEST(FakeFaults, AKernelThatFailsIsToldByALaterCallAndTheDeviceIsLost) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    FakeLayer layer({.devices = 2, .seed = seed});
    const Stream stream = layer.MakeStream(0, Partition{}, false);
    const View x = Dense(layer.Allocate(0, 16), ElementType::kFloat32, 1, 4);
    layer.BreakLaunch(2);
    for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(layer.Launch(stream, Fill{x, 1}));
    EXPECT_EQ(KindThrownBy([&] { layer.Synchronize(stream); }), GpuErrorKind::kAsynchronous);
    EXPECT_EQ(KindThrownBy([&] { layer.Allocate(0, 1); }), GpuErrorKind::kAsynchronous);
    EXPECT_EQ(KindThrownBy([&] { layer.Launch(stream, Fill{x, 1}); }), GpuErrorKind::kAsynchronous);
    EXPECT_NO_THROW(layer.Free(1, layer.Allocate(1, 1))) << "the other device is as before";
    EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
  }
}

TEST(FakeFaults, AStalledStreamIsNeverDone) {
  FakeLayer layer({.devices = 1, .seed = 9});
  const Stream stalled = layer.MakeStream(0, Partition{}, false);
  const Stream other = layer.MakeStream(0, Partition{}, false);
  const Event event = layer.MakeEvent(0, false);
  layer.Stall(stalled);
  layer.Record(event, stalled);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(layer.IsDone(event));
  layer.Wait(other, event);
  EXPECT_EQ(KindThrownBy([&] { layer.Synchronize(other); }), GpuErrorKind::kTimeout);
  EXPECT_TRUE(layer.IsStuck());
}

struct Pair {
  explicit Pair(uint64_t seed) : layer({.devices = 2, .seed = seed}) {
    const CommunicatorId id = layer.MakeCommunicatorId();
    for (int rank = 0; rank < 2; ++rank) {
      stream[rank] = layer.MakeStream(rank, Partition{}, true);
      end[rank] = layer.MakeCommunicator(rank, id, 2, rank);
      data[rank] = layer.Allocate(rank, 4);
    }
  }
  FakeLayer layer;
  Stream stream[2];
  Communicator end[2];
  void* data[2];
};

TEST(FakeFaults, AnAbortSetsAWaitingStreamFreeAndNothingMoreIsExchanged) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Pair pair(seed);
    pair.layer.Receive(pair.end[0], pair.stream[0], pair.data[0], 4, 1);
    EXPECT_EQ(KindThrownBy([&] { pair.layer.Synchronize(pair.stream[0]); }),
              GpuErrorKind::kTimeout);
    pair.layer.Abort(pair.end[0]);
    EXPECT_NO_THROW(pair.layer.Synchronize(pair.stream[0])) << pair.layer.Log();
    EXPECT_TRUE(pair.layer.Failure(pair.end[0]).has_value());
    EXPECT_EQ(
        KindThrownBy([&] { pair.layer.Receive(pair.end[0], pair.stream[0], pair.data[0], 4, 1); }),
        GpuErrorKind::kCommunication);
    // The peer of one that has aborted waits, until it aborts as well.
    pair.layer.Send(pair.end[1], pair.stream[1], pair.data[1], 4, 0);
    EXPECT_TRUE(pair.layer.IsStuck());
  }
}

TEST(FakeFaults, ABrokenCommunicatorSaysWhy) {
  Pair pair(2);
  pair.layer.Receive(pair.end[0], pair.stream[0], pair.data[0], 4, 1);
  pair.layer.Send(pair.end[1], pair.stream[1], pair.data[1], 4, 0);
  EXPECT_EQ(pair.layer.Failure(pair.end[0]), std::nullopt);
  pair.layer.Break(pair.end[0], "remote process has exited");
  pair.layer.Drain();
  EXPECT_TRUE(pair.layer.IsStuck());
  EXPECT_EQ(pair.layer.Failure(pair.end[0]), "remote process has exited");
}

TEST(FakeFaults, ACommunicatorThatEndsUnderWorkIsAMisuse) {
  Pair pair(2);
  pair.layer.Receive(pair.end[0], pair.stream[0], pair.data[0], 4, 1);
  pair.layer.Destroy(pair.end[0]);
  EXPECT_THAT(pair.layer.misuses(), Contains(HasSubstr("destroyed with work under way")));
  EXPECT_EQ(pair.layer.live_communicators(), 1);
}

TEST(FakeFaults, WhyNoDeviceSaysWhatIsMissing) {
  EXPECT_THAT(WhyNoDevice(nullptr), HasSubstr("without the CUDA toolkit"));
  FakeSettings none{.devices = 0};
  FakeLayer no_device(none);
  EXPECT_THAT(WhyNoDevice(&no_device), HasSubstr("shows no device"));
  none.versions.driver = 0;
  FakeLayer no_driver(none);
  EXPECT_THAT(WhyNoDevice(&no_driver), HasSubstr("no CUDA driver"));
  FakeLayer one({});
  EXPECT_EQ(WhyNoDevice(&one), "");
}

}  // namespace
}  // namespace spiritlevel::cuda
