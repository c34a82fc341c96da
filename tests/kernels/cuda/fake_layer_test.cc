// The fake is the ruler of everything that is tested without a GPU; here it is held against what
// CUDA promises. Each claim about an order is checked over many seeds, in both directions: what
// CUDA forbids never happens, what it permits does.
#include "tests/kernels/cuda/fake_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace spiritlevel::cuda {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kSeeds = 64;

// A device with two streams and some numbers.
struct Bench {
  explicit Bench(uint64_t seed, int devices = 1)
      : layer({.devices = devices, .seed = seed}),
        a(layer.MakeStream(0, Partition{}, false)),
        b(layer.MakeStream(0, Partition{}, false)),
        event(layer.MakeEvent(0, true)) {}

  View Numbers(int64_t count) {
    return Dense(layer.Allocate(0, count * 4), ElementType::kFloat32, 1, count);
  }
  static float First(View view) { return *static_cast<const float*>(view.data); }

  FakeLayer layer;
  Stream a;
  Stream b;
  Event event;
};

TEST(FakeLayer, WorkOnOneStreamRunsInOrder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    const View x = bench.Numbers(4);
    for (int i = 0; i < 10; ++i) bench.layer.Launch(bench.a, Fill{x, static_cast<float>(i)});
    bench.layer.Synchronize(bench.a);
    EXPECT_EQ(Bench::First(x), 9) << bench.layer.Log();
    EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
  }
}

// Without an event both orders come up over the seeds, and each time it is called a race.
TEST(FakeLayer, WorkOnTwoStreamsRunsInAnyOrderAndIsCalledARace) {
  std::set<float> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    const View x = bench.Numbers(1);
    bench.layer.Launch(bench.a, Fill{x, 1});
    bench.layer.Launch(bench.b, Fill{x, 2});
    bench.layer.Drain();
    outcomes.insert(Bench::First(x));
    EXPECT_THAT(bench.layer.misuses(), Contains(HasSubstr("race"))) << bench.layer.Log();
  }
  EXPECT_THAT(outcomes, ElementsAre(1, 2));
}

TEST(FakeLayer, TwoStreamsMayReadTheSame) {
  Bench bench(1);
  const View x = bench.Numbers(1);
  const View y = bench.Numbers(1);
  const View z = bench.Numbers(1);
  bench.layer.Launch(bench.a, Fill{x, 1});
  bench.layer.Synchronize(bench.a);
  bench.layer.Launch(bench.a, Convert{x, y});
  bench.layer.Launch(bench.b, Convert{x, z});
  EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
}

TEST(FakeLayer, AWaitIsForTheRecordBeforeIt) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    const View x = bench.Numbers(1);
    bench.layer.Launch(bench.a, Fill{x, 1});
    bench.layer.Record(bench.event, bench.a);
    bench.layer.Wait(bench.b, bench.event);
    bench.layer.Launch(bench.b, Fill{x, 2});
    bench.layer.Drain();
    EXPECT_EQ(Bench::First(x), 2) << bench.layer.Log();
    EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
  }
}

// The order that a plan with a forgotten or belated Record() gets.
TEST(FakeLayer, AWaitForAnEventThatWasNeverRecordedIsNoWait) {
  std::set<float> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    const View x = bench.Numbers(1);
    bench.layer.Wait(bench.b, bench.event);
    bench.layer.Launch(bench.b, Fill{x, 2});
    bench.layer.Launch(bench.a, Fill{x, 1});
    bench.layer.Record(bench.event, bench.a);
    bench.layer.Drain();
    outcomes.insert(Bench::First(x));
    EXPECT_THAT(bench.layer.misuses(), Contains(HasSubstr("race"))) << bench.layer.Log();
  }
  EXPECT_THAT(outcomes, ElementsAre(1, 2));
}

// A second Record() does not move a wait that was posted before it: `b` may run before the second
// fill, never before the first.
TEST(FakeLayer, ALaterRecordDoesNotChangeAnEarlierWait) {
  std::set<float> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    const View x = bench.Numbers(1);
    const View y = bench.Numbers(1);
    bench.layer.Launch(bench.a, Fill{x, 1});
    bench.layer.Record(bench.event, bench.a);
    bench.layer.Wait(bench.b, bench.event);
    bench.layer.Launch(bench.b, Convert{x, y});
    bench.layer.Launch(bench.a, Fill{x, 2});
    bench.layer.Record(bench.event, bench.a);
    bench.layer.Drain();
    seen.insert(Bench::First(y));
    EXPECT_THAT(bench.layer.misuses(), Contains(HasSubstr("race"))) << bench.layer.Log();
  }
  EXPECT_THAT(seen, ElementsAre(1, 2));
}

TEST(FakeLayer, AnEventIsDoneOnlyWhenWhatIsBeforeItIs) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    const View x = bench.Numbers(1);
    EXPECT_TRUE(bench.layer.IsDone(bench.event)) << "never recorded";
    bench.layer.Launch(bench.a, Fill{x, 3});
    bench.layer.Record(bench.event, bench.a);
    int polls = 0;
    while (!bench.layer.IsDone(bench.event)) ASSERT_LT(++polls, 1000) << bench.layer.Log();
    EXPECT_EQ(Bench::First(x), 3) << bench.layer.Log();
  }
}

TEST(FakeLayer, NothingIsDoneBeforeSomebodyAsks) {
  Bench bench(1);
  const View x = bench.Numbers(1);
  bench.layer.Launch(bench.a, Fill{x, 3});
  EXPECT_THAT(bench.layer.executed(), IsEmpty());
  EXPECT_TRUE(std::isnan(Bench::First(x))) << "fresh memory holds NaN";
}

// What the host waited for is behind everything that it posts next.
TEST(FakeLayer, AWaitOfTheHostOrdersAllStreams) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    const View x = bench.Numbers(1);
    bench.layer.Launch(bench.a, Fill{x, 1});
    bench.layer.Record(bench.event, bench.a);
    while (!bench.layer.IsDone(bench.event)) {
    }
    bench.layer.Launch(bench.b, Fill{x, 2});
    bench.layer.Drain();
    EXPECT_EQ(Bench::First(x), 2);
    EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
  }
}

// b waits for a, c for b: c is behind a without an event of its own.
TEST(FakeLayer, OrderIsPassedOnThroughAThirdStream) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    const Stream c = bench.layer.MakeStream(0, Partition{}, false);
    const Event second = bench.layer.MakeEvent(0, false);
    const View x = bench.Numbers(1);
    bench.layer.Launch(bench.a, Fill{x, 1});
    bench.layer.Record(bench.event, bench.a);
    bench.layer.Wait(bench.b, bench.event);
    bench.layer.Record(second, bench.b);
    bench.layer.Wait(c, second);
    bench.layer.Launch(c, Fill{x, 2});
    bench.layer.Drain();
    EXPECT_EQ(Bench::First(x), 2) << bench.layer.Log();
    EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
  }
}

TEST(FakeLayer, AnEventOfAnotherDeviceCanBeWaitedForAndNotRecorded) {
  Bench bench(1, /*devices=*/2);
  const Stream other = bench.layer.MakeStream(1, Partition{}, false);
  bench.layer.Record(bench.event, bench.a);
  bench.layer.Wait(other, bench.event);
  EXPECT_THROW(bench.layer.Record(bench.event, other), GpuError);
}

// a: 1000, then a copy of 100000 bytes: 2000 + 1000. b waits for the first fill and adds 1000.
TEST(FakeLayer, VirtualTimeFollowsStreamsAndEvents) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    const View x = bench.Numbers(25'000);
    const View y = bench.Numbers(25'000);
    const Event begin = bench.layer.MakeEvent(0, true);
    const Event middle = bench.layer.MakeEvent(0, true);
    const Event end_of_b = bench.layer.MakeEvent(0, true);
    bench.layer.Record(begin, bench.a);
    bench.layer.Launch(bench.a, Fill{x, 1});
    bench.layer.Record(middle, bench.a);
    bench.layer.Copy(bench.a, y.data, x.data, 100'000);
    bench.layer.Record(bench.event, bench.a);
    bench.layer.Wait(bench.b, middle);
    bench.layer.Launch(bench.b, Fill{x.Columns(0, 0), 1});
    bench.layer.Record(end_of_b, bench.b);
    bench.layer.Drain();
    EXPECT_EQ(bench.layer.Between(begin, bench.event), 4000) << bench.layer.Log();
    EXPECT_EQ(bench.layer.Between(begin, end_of_b), 2000) << bench.layer.Log();
  }
}

TEST(FakeLayer, TimeIsOnlyOfTimedEventsThatAreDone) {
  Bench bench(1);
  const Event untimed = bench.layer.MakeEvent(0, false);
  bench.layer.Record(bench.event, bench.a);
  EXPECT_THROW(bench.layer.Between(bench.event, bench.event), GpuError) << "not done";
  bench.layer.Record(untimed, bench.a);
  bench.layer.Synchronize(bench.a);
  EXPECT_EQ(bench.layer.Between(bench.event, bench.event), 0);
  EXPECT_THROW(bench.layer.Between(bench.event, untimed), GpuError);
}

TEST(FakeLayer, ADeviceHasSoMuchMemoryAndNoMore) {
  FakeSettings settings;
  settings.device.memory = 1000;
  FakeLayer layer(settings);
  void* const first = layer.Allocate(0, 600);
  try {
    layer.Allocate(0, 401);
    FAIL() << "there are only 400 bytes left";
  } catch (const GpuError& e) {
    EXPECT_EQ(e.kind(), GpuErrorKind::kOutOfMemory);
    EXPECT_THAT(e.what(), HasSubstr("allocate 401 bytes on device 0"));
  }
  EXPECT_EQ(layer.Memory(0).free, 400);
  layer.Free(0, first);
  EXPECT_EQ(layer.Memory(0).free, 1000);
}

TEST(FakeLayer, MemoryThatIsFreedUnderPostedWorkIsAMisuse) {
  Bench bench(1);
  const View x = bench.Numbers(1);
  bench.layer.Launch(bench.a, Fill{x, 1});
  bench.layer.Free(0, x.data);
  EXPECT_THAT(bench.layer.misuses(), Contains(HasSubstr("is freed while work")));
  EXPECT_THROW(bench.layer.Synchronize(bench.a), GpuError) << "the kernel finds nothing there";
}

TEST(FakeLayer, AKernelThatGoesBeyondItsMemoryLosesTheDevice) {
  Bench bench(1);
  View x = bench.Numbers(4);
  x.cols = x.stride = 5;
  bench.layer.Launch(bench.a, Fill{x, 1});
  EXPECT_THROW(bench.layer.Synchronize(bench.a), GpuError);
  EXPECT_THAT(bench.layer.misuses(), SizeIs(1));
}

TEST(FakeLayer, PartitionsAreEqualMultiplesOfTheGranularity) {
  Bench bench(1);
  const std::vector<Partition> parts = bench.layer.Split(0, 5);
  ASSERT_THAT(parts, SizeIs(5));
  for (const Partition part : parts) EXPECT_EQ(bench.layer.Multiprocessors(0, part), 24);
  EXPECT_EQ(bench.layer.Multiprocessors(0, Partition{}), 132);
  EXPECT_THROW(bench.layer.Split(0, 17), GpuError);
}

TEST(FakeLayer, ASeedGivesTheSameOrderAgain) {
  std::set<std::vector<std::string>> orders;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<std::string> before;
    for (int time = 0; time < 2; ++time) {
      Bench bench(seed);
      const View x = bench.Numbers(1);
      const View y = bench.Numbers(1);
      for (int i = 0; i < 4; ++i) {
        bench.layer.Launch(bench.a, Fill{x, 1});
        bench.layer.Launch(bench.b, Fill{y, 1});
      }
      bench.layer.Drain();
      if (time == 1) {
        EXPECT_EQ(bench.layer.executed(), before) << bench.layer.Log();
      }
      before = bench.layer.executed();
    }
    orders.insert(before);
  }
  // 8! / (4! 4!) = 70 there are; half of the seeds at least come out differently.
  EXPECT_GT(orders.size(), kSeeds / 2);
}

}  // namespace
}  // namespace spiritlevel::cuda
