// A GPU's ruler, held against a device whose times are made up.
#include "calibrate/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "calibrate/measure.h"
#include "tests/calibrate/cuda_fixture.h"

namespace spiritlevel {
namespace {

using cuda::FakeCost;
using testing::Each;
using testing::IsEmpty;

CudaWorkload& AsCuda(const std::unique_ptr<Workload>& workload) {
  return static_cast<CudaWorkload&>(*workload);
}

// What one run of it posts takes, by the made-up device's own table.
TimeNs TruthOf(const Work& work) {
  const CudaWork real = CudaWorkOf(work, Bytes{32} << 10);
  std::vector<cuda::View> views;
  for (const OperandSpec& spec : real.operands) {
    views.push_back(cuda::Dense(nullptr, spec.type, spec.rows, spec.cols));
  }
  TimeNs sum = 0;
  for (const cuda::Call& call : real.calls(views)) sum += MadeUpTime({.call = &call});
  return sum;
}

TEST(CudaDevice, TimesOfEveryKindOfWorkAreTheDevicesOwn) {
  cuda::FakeLayer layer(MadeUpGpu());
  {
    CudaDevice device(&layer, TinySettings());
    for (const PlannedWork& planned : TinyPlan()) {
      if (planned.primitive == Primitive::kHandOver) continue;
      const std::unique_ptr<Workload> workload = device.Prepare(planned.work);
      ASSERT_NE(workload, nullptr) << planned.what;
      EXPECT_EQ(device.Time(*workload, 3).wall, 3 * TruthOf(planned.work)) << planned.what;
      EXPECT_EQ(device.Time(*workload, 1).away, 0);
    }
  }
  EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
  ExpectNothingLeft(layer);
}

TEST(CudaDevice, ASampleOfManyRunsIsTimedInPiecesThatAQueueHolds) {
  cuda::FakeLayer layer(MadeUpGpu());
  CudaDevice device(&layer, TinySettings());
  const std::unique_ptr<Workload> empty = device.Prepare(EmptyOp{});
  EXPECT_EQ(device.Time(*empty, 1'000).wall, 1'000 * 900);
}

// In turn there, and back by the other stream: two copies.
TEST(CudaDevice, ARoundTripOnOneDeviceIsTwoCopies) {
  cuda::FakeLayer layer(MadeUpGpu());
  {
    CudaDevice device(&layer, TinySettings());
    const std::unique_ptr<Workload> trip = device.PrepareRoundTrip(5'000);
    EXPECT_EQ(device.Time(*trip, 3).wall, 3 * 2 * (2'000 + 5'000));
  }
  EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
}

TEST(CudaDevice, ARoundTripBetweenTwoDevicesIsTwoTransfers) {
  cuda::FakeLayer layer(MadeUpGpu(2));
  {
    CudaDevice device(&layer, TinySettings({1}));
    const std::unique_ptr<Workload> trip = device.PrepareRoundTrip(5'000);
    EXPECT_EQ(device.Time(*trip, 3).wall, 3 * 2 * (2'000 + 5'000));
    EXPECT_EQ(layer.live_communicators(), 2);
  }
  EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
  ExpectNothingLeft(layer, 2);
}

// --- Cold operands

TEST(CudaDevice, OperandsRotateThroughMoreThanTwiceTheCache) {
  SpyLayer layer(MadeUpGpu());
  CudaDevice device(&layer, TinySettings());
  for (const int64_t width : {64, 640}) {
    const Norm norm{.rows = 8, .width = width};
    const Bytes touched = 2 * 8 * width * 2 + 8 * 4;  // x, y and a number for each row
    const size_t before = layer.launched("rms_norm_forward").size();
    const std::unique_ptr<Workload> workload = device.Prepare(Kernel(norm));
    device.Time(*workload, 200);
    auto launched = layer.launched("rms_norm_forward");
    launched.erase(launched.begin(), launched.begin() + static_cast<int64_t>(before));
    ASSERT_EQ(launched.size(), 200u);
    std::set<const void*> memory;
    for (const auto& [stream, x] : launched) memory.insert(x);
    const auto sets = static_cast<int64_t>(memory.size());
    EXPECT_GT(sets * touched, 2 * (Bytes{32} << 10));
    // Each comes again only when all others have been used.
    for (size_t i = 0; i + memory.size() < launched.size(); ++i) {
      EXPECT_EQ(launched[i].second, launched[i + memory.size()].second) << i;
    }
  }
}

TEST(CudaOperands, AreAsManySetsAsTheCacheAsksFor) {
  const std::vector<OperandSpec> one = {{.rows = 16, .cols = 64},
                                        {.cols = 1 << 20, .shared = true}};
  const Bytes each = 2'048;
  for (const Bytes l2 : {Bytes{0}, each, 10 * each, 10 * each + 1}) {
    EXPECT_GT(SetsOf(one, l2) * each, 2 * l2);
    EXPECT_LE((SetsOf(one, l2) - 1) * each, 2 * l2);
    EXPECT_EQ(BytesOf(one, l2), SetsOf(one, l2) * each + (Bytes{2} << 20));
  }
}

// Numbers from -1 to 1, of which few are equal; tokens within their vocabulary; moments of zero.
TEST(CudaOperands, HoldWhatTheirContentSays) {
  cuda::FakeLayer layer(MadeUpGpu());
  {
    const CudaOwned<cuda::Stream> stream = OwnStream(&layer, 0);
    CudaFiller filler(&layer, 0, stream.get());
    const auto float32 = cuda::ElementType::kFloat32;
    const CudaOperands operands(
        &layer, 0, &filler,
        {{.type = float32, .cols = 1'000},
         {.type = cuda::ElementType::kInt32,
          .cols = 300,
          .content = OperandSpec::Content::kTokens,
          .vocabulary = 7},
         {.type = float32, .cols = 100, .content = OperandSpec::Content::kZeros}},
        Bytes{10} << 10);
    layer.Synchronize(stream.get());
    ASSERT_GT(operands.sets(), 3);
    for (int set = 0; set < operands.sets(); ++set) {
      const std::vector<cuda::View> views = operands.ViewsOf(set);
      const std::span<const float> numbers(static_cast<const float*>(views[0].data), 1'000);
      EXPECT_THAT(numbers, Each(testing::AllOf(testing::Ge(-1.01f), testing::Le(1.01f))));
      EXPECT_GT(std::set<float>(numbers.begin(), numbers.end()).size(), 900u);
      const std::span<const int32_t> tokens(static_cast<const int32_t*>(views[1].data), 300);
      EXPECT_THAT(tokens, Each(testing::AllOf(testing::Ge(0), testing::Lt(7))));
      const std::span<const float> moments(static_cast<const float*>(views[2].data), 100);
      EXPECT_THAT(moments, Each(0.0f));
    }
  }
  ExpectNothingLeft(layer);
}

// --- Events

// Between the two events lie the runs and nothing else; before the first there is something that
// holds the device up.
TEST(CudaDevice, EventsEncloseTheRunsAlone) {
  cuda::FakeLayer layer(MadeUpGpu());
  CudaDevice device(&layer, TinySettings());
  const std::unique_ptr<Workload> workload =
      device.Prepare(Kernel(Elementwise{.bytes_moved = 6'000}));
  const size_t before = layer.calls().size();
  device.Time(*workload, 3);
  std::vector<std::string> calls = layer.calls();
  calls.erase(calls.begin(), calls.begin() + static_cast<int64_t>(before));
  const auto is_record = [](const std::string& call) { return call.starts_with("record"); };
  const auto begin = std::find_if(calls.begin(), calls.end(), is_record);
  const auto end = std::find_if(begin + 1, calls.end(), is_record);
  ASSERT_NE(end, calls.end());
  EXPECT_GE(begin - calls.begin(), 1);
  EXPECT_THAT(std::vector(calls.begin(), begin), Each(testing::StartsWith("launch fill")));
  EXPECT_EQ(end - begin, 4);
  EXPECT_THAT(std::vector(begin + 1, end), Each(testing::StartsWith("launch swiglu_forward")));
  ASSERT_NE(end + 1, calls.end());
  EXPECT_THAT(*(end + 1), testing::StartsWith("synchronize"));
}

// The host takes 3 us for each call, and a kernel 0.9: what is timed is the kernel.
TEST(CudaDevice, TheHostsPostingIsHiddenFromKernelsAndSeenWhereItIsAskedFor) {
  cuda::FakeSettings settings = MadeUpGpu();
  settings.call_cost = 3'000;
  cuda::FakeLayer layer(settings);
  CudaDevice device(&layer, TinySettings());
  const CudaMemory memory = CudaMemory::OnDevice(&layer, 0, 512);
  const cuda::Fill fill{.to = cuda::Dense(memory.data(), cuda::ElementType::kFloat32, 1, 1)};
  const std::unique_ptr<CudaWorkload> workload =
      MakeCudaWorkload(device.stream(), 1, [&] { layer.Launch(device.stream(), fill); });
  EXPECT_EQ(device.timer().Time(*workload, 100), 100 * 900);
  EXPECT_GE(device.timer().TimeOfPosting(*workload, 100), 99 * 3'000);
}

// --- Samples

// The first run takes ten times as long, the second twice; then 100, 120 and 140 us in turn.
TEST(CudaDevice, WarmUpIsNotCountedAndMedianAndSpreadAreOfTheRest) {
  int launches = 0;
  const std::vector<TimeNs> later = {400'000, 480'000, 560'000};
  cuda::FakeSettings settings = MadeUpGpu();
  settings.duration = [&](const FakeCost& cost) -> TimeNs {
    if (cost.call == nullptr || !std::holds_alternative<cuda::SwigluForward>(*cost.call)) {
      return MadeUpTime(cost);
    }
    const int run = launches++;
    if (run == 0) return 4'000'000;
    if (run == 1) return 800'000;
    return later[static_cast<size_t>(run - 2) % later.size()];
  };
  cuda::FakeLayer layer(settings);
  CudaDevice device(&layer, TinySettings());
  const std::unique_ptr<Workload> workload =
      device.Prepare(Kernel(Elementwise{.bytes_moved = 6'000}));
  const Samples samples =
      Measure([&](int repeats) { return device.Time(*workload, repeats); },
              {.least_samples = 5, .most_samples = 9, .budget = TimeNs{1} << 40});
  EXPECT_EQ(samples.cold_ns, 4'000'000);
  EXPECT_EQ(samples.repeats, 1);
  EXPECT_THAT(samples.ns, testing::ElementsAre(400'000, 480'000, 560'000, 400'000, 480'000, 560'000,
                                               400'000, 480'000, 560'000));
  EXPECT_EQ(samples.median_ns, 480'000);
  EXPECT_EQ(samples.quiet_ns, 400'000);
  EXPECT_NEAR(samples.spread, 80'000 / 0.6745 / 480'000, 1e-4);
}

// The library's first choice is the slower one.
TEST(CudaDevice, ProductsAreTimedWithTheQuickestAlgorithm) {
  cuda::FakeSettings settings = MadeUpGpu();
  settings.duration = [](const FakeCost& cost) -> TimeNs {
    if (cost.kind != FakeCost::Kind::kProduct) return MadeUpTime(cost);
    return cost.algorithm == 1 ? 500'000 : 900'000;
  };
  cuda::FakeLayer layer(settings);
  CudaDevice device(&layer, TinySettings());
  for (int use = 0; use < kNumGemmUses; ++use) {
    const std::unique_ptr<Workload> workload =
        device.Prepare(Kernel(Gemm{16, 32, 16, static_cast<Gemm::Use>(use)}));
    EXPECT_EQ(device.Time(*workload, 2).wall, 2 * 500'000);
  }
}

// --- Others

TEST(CudaDevice, OthersRunOnTheirOwnPartsOfTheDeviceFromFirstToLast) {
  SpyLayer layer(MadeUpGpu());
  {
    CudaDevice device(&layer, TinySettings({}, /*partitions=*/3));
    const Kernel kernel = Elementwise{.bytes_moved = 6'000};
    const std::unique_ptr<Workload> workload = device.Prepare(kernel);
    const TimeNs alone = device.Time(*workload, 4).wall;
    const size_t before = layer.launched("swiglu_forward").size();
    TimeNs busy = 0;
    EXPECT_EQ(device.WhileOthersRun(kernel, [&] { busy = device.Time(*workload, 4).wall; }), 2);
    EXPECT_EQ(busy, alone);  // the made-up device's parts do not disturb each other
    auto launched = layer.launched("swiglu_forward");
    launched.erase(launched.begin(), launched.begin() + static_cast<int64_t>(before));
    std::map<cuda::Stream, int> runs;
    for (const auto& [stream, x] : launched) ++runs[stream];
    ASSERT_EQ(runs.size(), 3u);
    for (const auto& [stream, count] : runs) {
      if (stream == AsCuda(workload).stream()) {
        EXPECT_EQ(count, 4);
      } else {
        EXPECT_GE(count, 5);  // one before the first, and then as many
      }
    }
    EXPECT_EQ(device.machine().cores, 132);
    EXPECT_EQ(device.machine().usable_cores, 44);
  }
  EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
  ExpectNothingLeft(layer);
}

// A message of 10 us beside a kernel of 420: as many of them as it takes.
TEST(CudaDevice, WhatRunsBesideIsRepeatedUntilItOutlastsWhatIsTimed) {
  SpyLayer layer(MadeUpGpu());
  CudaDevice device(&layer, TinySettings());
  const std::unique_ptr<Workload> workload =
      device.Prepare(Kernel(Elementwise{.bytes_moved = 6'000}));
  const std::unique_ptr<CudaWorkload> message =
      device.Group(1).Prepare(TransferKind::kMessage, 8'000);
  device.WhileBeside(message.get(), [&] { device.Time(*workload, 4); });
  const std::vector<std::string> done = layer.executed();
  const auto last_kernel = std::find_if(done.rbegin(), done.rend(), [](const std::string& work) {
    return work.starts_with("launch swiglu_forward");
  });
  ASSERT_NE(last_kernel, done.rend());
  // Four kernels are 1.7 ms, so there are 168 messages at least in the try that counts.
  EXPECT_GE(
      std::count_if(done.begin(), done.end(),
                    [](const std::string& work) { return work.starts_with("transfer of 8000"); }),
      168);
}

// --- Groups

// Two processes are two threads here. Neither sees the other's clock, and both post the same.
TEST(CudaGroup, RanksOfSeveralProcessesMeasureTogether) {
  cuda::FakeSettings settings = MadeUpGpu(2);
  settings.patience = std::chrono::seconds(20);
  cuda::FakeLayer layer(settings);
  {
    const cuda::CommunicatorId id = layer.MakeCommunicatorId();
    std::array<std::vector<Samples>, 2> measured;
    const auto process = [&](int rank) {
      CudaTimer timer(&layer, rank, Bytes{32} << 10);
      CudaGroup group(&layer, &timer, {rank}, Bytes{32} << 10,
                      {.id = id, .size = 2, .first_rank = rank, .link = LinkClass::kOtherNode});
      EXPECT_EQ(group.link(), LinkClass::kOtherNode);
      for (const TransferKind kind : {TransferKind::kMessage, TransferKind::kAllReduce,
                                      TransferKind::kReduceScatter, TransferKind::kAllToAll}) {
        measured[static_cast<size_t>(rank)].push_back(group.Measure(kind, 4'096));
      }
    };
    std::thread other([&] { process(1); });
    process(0);
    other.join();
    for (size_t i = 0; i < 4; ++i) {
      const TimeNs bytes = i == 1 ? 2 * 4'096 : 4'096;  // a sum moves all of each rank's
      EXPECT_NEAR(measured[0][i].median_ns, static_cast<double>(2'000 + bytes), 1) << i;
      EXPECT_EQ(measured[0][i].repeats, measured[1][i].repeats);
      EXPECT_EQ(measured[0][i].ns.size(), measured[1][i].ns.size());
    }
  }
  EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
  ExpectNothingLeft(layer, 2);
}

// The second rank is never there: what waits for it is ended, and its memory given back.
TEST(CudaGroup, APeerThatNeverComesEndsInAMessage) {
  cuda::FakeLayer layer(MadeUpGpu());
  {
    CudaTimer timer(&layer, 0, Bytes{32} << 10);
    CudaGroup group(&layer, &timer, {0}, Bytes{32} << 10,
                    {.id = layer.MakeCommunicatorId(), .size = 2, .first_rank = 0});
    try {
      group.Measure(TransferKind::kAllGather, 4'096);
      FAIL() << "nobody was there";
    } catch (const cuda::GpuError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("synchronize"));
    }
  }
  ExpectNothingLeft(layer);
  EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
}

TEST(CudaDevice, WhatDoesNotFitInItsMemoryIsNoWorkload) {
  cuda::FakeLayer layer(MadeUpGpu());
  CudaDevice device(&layer, TinySettings());
  EXPECT_EQ(device.Prepare(Kernel(Elementwise{.bytes_moved = Bytes{1} << 30})), nullptr);
  EXPECT_NE(device.Prepare(Kernel(Elementwise{.bytes_moved = 6'000})), nullptr);
}

TEST(CudaDevice, MemoryIsWhatIsNoLongerFree) {
  cuda::FakeLayer layer(MadeUpGpu());
  CudaDevice device(&layer, TinySettings());
  EXPECT_EQ(device.memory().context, 0);                // the made-up device has none
  EXPECT_EQ(device.memory().products, Bytes{1} << 16);  // no more than the workspace it is given
  EXPECT_EQ(device.memory().rounding, 1);               // it hands out every byte
}

}  // namespace
}  // namespace spiritlevel
