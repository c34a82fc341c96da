// Reuse of memory on streams, against an order that is as unkind as CUDA permits. The fake calls
// each missing wait a race, whichever way the seed lets it come out.
#include "kernels/cuda/buffer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/cuda/fake_layer.h"

namespace spiritlevel::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kSeeds = 40;
constexpr BufferPoolSettings kImpatient{.patience_ms = 0};

struct Bench {
  explicit Bench(uint64_t seed, Bytes memory = Bytes{1} << 20)
      : layer(Settings(seed, memory)),
        a(layer.MakeStream(0, Partition{}, false)),
        b(layer.MakeStream(0, Partition{}, false)),
        c(layer.MakeStream(0, Partition{}, false)),
        event(layer.MakeEvent(0, false)) {}

  static FakeSettings Settings(uint64_t seed, Bytes memory) {
    FakeSettings settings{.devices = 1, .seed = seed};
    settings.device.memory = memory;
    return settings;
  }
  void Set(const Buffer& buffer, Stream stream, float value) {
    layer.Launch(stream, Fill{buffer.As(ElementType::kFloat32, 1, buffer.bytes() / 4), value});
  }

  FakeLayer layer;
  Stream a;
  Stream b;
  Stream c;
  Event event;
};

TEST(BufferPool, MemoryIsUsedAgainOnlyBehindItsLastUseOnEachStream) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    BufferPool pool(&bench.layer, 0, {});
    Buffer result = pool.Take(TensorUse::kWorkspace, 64, bench.b);
    void* first = nullptr;
    {
      Buffer x = pool.Take(TensorUse::kWaitingForB, 64, bench.a);
      first = x.data();
      bench.Set(x, bench.a, 1);
      bench.layer.Record(bench.event, bench.a);
      bench.layer.Wait(bench.b, bench.event);
      bench.layer.Copy(bench.b, result.data(), x.data(), 64);
      x.UsedOn(bench.b);
    }
    const Buffer y = pool.Take(TensorUse::kWaitingForW, 64, bench.c);
    ASSERT_EQ(y.data(), first) << "or nothing is tested here";
    bench.Set(y, bench.c, 2);
    bench.layer.Drain();
    EXPECT_EQ(*static_cast<float*>(result.data()), 1) << bench.layer.Log();
    EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
  }
}

// The test above can fail: without the word that `b` uses it, it is a race.
TEST(BufferPool, AUseThatIsNotToldIsFoundByTheFake) {
  Bench bench(1);
  BufferPool pool(&bench.layer, 0, {});
  const Buffer result = pool.Take(TensorUse::kWorkspace, 64, bench.b);
  {
    const Buffer x = pool.Take(TensorUse::kWaitingForB, 64, bench.a);
    bench.Set(x, bench.a, 1);
    bench.layer.Record(bench.event, bench.a);
    bench.layer.Wait(bench.b, bench.event);
    bench.layer.Copy(bench.b, result.data(), x.data(), 64);
  }
  const Buffer y = pool.Take(TensorUse::kWaitingForW, 64, bench.c);
  bench.Set(y, bench.c, 2);
  EXPECT_THAT(bench.layer.misuses(), testing::Contains(HasSubstr("race")));
}

TEST(BufferPool, OnTheSameStreamNothingWaits) {
  Bench bench(1);
  BufferPool pool(&bench.layer, 0, {});
  const auto take = [&] { return pool.Take(TensorUse::kWorkspace, 64, bench.a); };
  for (int i = 0; i < 10; ++i) bench.Set(take(), bench.a, 1);
  for (const std::string& call : bench.layer.calls()) EXPECT_THAT(call, Not(HasSubstr("waits")));
  EXPECT_EQ(pool.allocations(), 1);
  bench.layer.Drain();
}

// Of two unused blocks the one of the stream's own, which needs no wait; else the older one.
TEST(BufferPool, ABlockOfTheSameStreamComesFirst) {
  Bench bench(1);
  BufferPool pool(&bench.layer, 0, {});
  void* mine = nullptr;
  void* theirs = nullptr;
  {
    const Buffer x = pool.Take(TensorUse::kWorkspace, 64, bench.a);
    const Buffer y = pool.Take(TensorUse::kWorkspace, 64, bench.b);
    mine = x.data();
    theirs = y.data();
  }
  EXPECT_EQ(pool.Take(TensorUse::kWorkspace, 64, bench.a).data(), mine);
  EXPECT_EQ(pool.Take(TensorUse::kWorkspace, 64, bench.b).data(), theirs);
  EXPECT_EQ(pool.Take(TensorUse::kWorkspace, 64, bench.c).data(), mine) << "it was freed first";
  bench.layer.Drain();
}

TEST(BufferPool, CountsWhatWasAskedForByUseAndTheRoundingApart) {
  Bench bench(1);
  BufferPool pool(&bench.layer, 0, {.rounding = 256});
  Buffer weights = pool.Take(TensorUse::kParameters, 1000, bench.a);  // blocks of 1024
  EXPECT_EQ(pool.live(), 1000);
  EXPECT_EQ(pool.rounding(), 24);
  {
    Buffer x = pool.Take(TensorUse::kWaitingForB, 100, bench.a);  // and 256
    EXPECT_EQ(pool.live(), 1100);
    EXPECT_EQ(pool.live(TensorUse::kWaitingForB), 100);
    x.Retag(TensorUse::kWaitingForW);
    EXPECT_EQ(pool.live(TensorUse::kWaitingForB), 0);
    EXPECT_EQ(pool.live(TensorUse::kWaitingForW), 100);
    EXPECT_EQ(pool.held(), 1280);
    EXPECT_EQ(pool.unused(), 0);
  }
  EXPECT_EQ(pool.live(), 1000);
  EXPECT_EQ(pool.unused(), 256);
  EXPECT_EQ(pool.rounding(), 24);
  EXPECT_EQ(pool.peak(), 1100);
  EXPECT_EQ(pool.peak(TensorUse::kWaitingForB), 100);
  EXPECT_EQ(pool.live_at_peak()[static_cast<size_t>(TensorUse::kParameters)], 1000);
  pool.ResetPeaks();
  EXPECT_EQ(pool.peak(), 1000);
  weights.Reset();
  bench.layer.Drain();
}

// The same steps in both: takes, ends and changes of use, by chance.
TEST(BufferPool, CountsExactlyAsAMemoryMeterDoes) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Bench bench(seed);
    BufferPool pool(&bench.layer, 0, {});
    cpu::MemoryMeter meter;
    struct Both {
      Buffer buffer;
      void* block = nullptr;
    };
    std::vector<Both> live;
    for (int step = 0; step < 300; ++step) {
      const auto use = static_cast<TensorUse>(random() % kNumTensorUses);
      const uint64_t what = random() % 5;
      if (what < 2 || live.empty()) {
        const auto bytes = static_cast<Bytes>(random() % 3000);
        live.push_back({pool.Take(use, bytes, bench.a), meter.Allocate(use, bytes)});
      } else if (what < 4) {
        const size_t i = random() % live.size();
        meter.Free(live[i].buffer.use(), live[i].block, live[i].buffer.bytes());
        std::swap(live[i], live.back());
        live.pop_back();
      } else {
        Both& one = live[random() % live.size()];
        meter.Retag(one.buffer.use(), use, one.buffer.bytes());
        one.buffer.Retag(use);
      }
      ASSERT_EQ(pool.live_by_use(), meter.live_by_use());
      ASSERT_EQ(pool.live(), meter.live());
      ASSERT_EQ(pool.peak(), meter.peak());
      ASSERT_EQ(pool.live_at_peak(), meter.live_at_peak());
    }
    for (Both& one : live) {
      meter.Free(one.buffer.use(), one.block, one.buffer.bytes());
      one.buffer.Reset();
    }
    EXPECT_EQ(pool.live(), 0);
    bench.layer.Drain();
  }
}

TEST(BufferPool, WhereMemoryIsShortUnusedBlocksAreGivenBackFirst) {
  for (const Bytes capacity : {Bytes{0}, Bytes{4096}}) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      Bench bench(seed, capacity == 0 ? 4096 : Bytes{1} << 20);
      BufferPool pool(&bench.layer, 0, {.capacity = capacity});
      {
        const Buffer x = pool.Take(TensorUse::kWorkspace, 2048, bench.a);
        bench.Set(x, bench.a, 1);
        const Buffer y = pool.Take(TensorUse::kWorkspace, 1024, bench.b);
        bench.Set(y, bench.b, 1);
      }
      // Neither fits, nor do both together leave enough beside them; the device is waited for.
      const Buffer z = pool.Take(TensorUse::kWorkspace, 4096, bench.c);
      bench.Set(z, bench.c, 1);
      EXPECT_EQ(pool.held(), 4096);
      bench.layer.Drain();
      EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
    }
  }
}

TEST(BufferPool, WithoutEnoughItSaysWhatIsInUse) {
  Bench bench(1);
  BufferPool pool(&bench.layer, 0, {.capacity = 4096});
  const Buffer x = pool.Take(TensorUse::kParameters, 3072, bench.a);
  try {
    pool.Take(TensorUse::kWorkspace, 2048, bench.a);
    FAIL();
  } catch (const GpuError& e) {
    EXPECT_EQ(e.kind(), GpuErrorKind::kOutOfMemory);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("2 KiB"), HasSubstr("3 KiB are in use"),
                                HasSubstr("this rank may have 4 KiB")));
  }
  EXPECT_EQ(pool.live(), 3072) << "what failed does not count";
}

// Where a stream never ends, an error, and no hang; its memory is not handed out, nor freed.
TEST(BufferPool, AStalledStreamsMemoryIsNeverGivenBack) {
  Bench bench(1);
  Bytes held = 0;
  {
    BufferPool pool(&bench.layer, 0, {.capacity = 4096, .patience_ms = 0});
    {
      const Buffer x = pool.Take(TensorUse::kWorkspace, 4096, bench.a);
      bench.Set(x, bench.a, 1);
      bench.layer.Stall(bench.a);
    }
    try {
      pool.Take(TensorUse::kWorkspace, 2048, bench.b);
      FAIL();
    } catch (const GpuError& e) {
      EXPECT_EQ(e.kind(), GpuErrorKind::kOutOfMemory);
      EXPECT_THAT(e.what(), HasSubstr("4 KiB wait for work"));
    }
    held = pool.held();
  }
  EXPECT_EQ(bench.layer.allocated(0), held);
  EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
}

TEST(BufferPool, OtherErrorsThanShortMemoryAreToldAtOnce) {
  Bench bench(1);
  BufferPool pool(&bench.layer, 0, kImpatient);
  bench.layer.FailCall("Allocate", 1, GpuErrorKind::kAsynchronous);
  try {
    pool.Take(TensorUse::kWorkspace, 64, bench.a);
    FAIL();
  } catch (const GpuError& e) {
    EXPECT_EQ(e.kind(), GpuErrorKind::kAsynchronous);
  }
}

// A buffer's end cannot throw: what cannot be recorded is not handed out again.
TEST(BufferPool, ABufferWhoseLastUseCannotBeRecordedIsLeftAlone) {
  for (const std::string function : {"Record", "MakeEvent"}) {
    Bench bench(1);
    BufferPool pool(&bench.layer, 0, kImpatient);
    void* lost = nullptr;
    {
      const Buffer x = pool.Take(TensorUse::kWorkspace, 64, bench.a);
      lost = x.data();
      bench.Set(x, bench.a, 1);
      bench.layer.FailCall(function, 1, GpuErrorKind::kOther);
    }
    const Buffer y = pool.Take(TensorUse::kWorkspace, 64, bench.b);
    EXPECT_NE(y.data(), lost) << function;
    EXPECT_EQ(pool.live(), 64);
  }
}

TEST(BufferPool, ItsEndGivesEverythingBack) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Bench bench(seed);
    {
      BufferPool pool(&bench.layer, 0, {});
      for (const Stream stream : {bench.a, bench.b}) {
        const Buffer x = pool.Take(TensorUse::kWorkspace, 64, stream);
        bench.Set(x, stream, 1);
      }
    }
    EXPECT_EQ(bench.layer.allocated(0), 0) << bench.layer.Log();
    EXPECT_EQ(bench.layer.live_events(), 1) << "only the test's own";
    EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
  }
}

// Buffers of three sizes go round three streams; each is filled on one and then read on another,
// behind an event, into memory of its own, and must arrive as it was filled.
TEST(BufferPool, ALongRunOverThreeStreamsMixesNothingUp) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    Bench bench(seed);
    BufferPool pool(&bench.layer, 0, {.capacity = 16 * 1024});
    const Stream streams[] = {bench.a, bench.b, bench.c};
    constexpr int kRounds = 60;
    const View out = Dense(bench.layer.Allocate(0, kRounds * 4), ElementType::kFloat32, 1, kRounds);
    for (int round = 0; round < kRounds; ++round) {
      const Stream writer = streams[random() % 3];
      const Stream reader = streams[random() % 3];
      Buffer x = pool.Take(TensorUse::kWorkspace, 512 << random() % 3, writer);
      bench.Set(x, writer, static_cast<float>(round));
      const Event event = bench.layer.MakeEvent(0, false);
      bench.layer.Record(event, writer);
      bench.layer.Wait(reader, event);
      bench.layer.Copy(reader, out.Columns(round, 1).data, x.data(), 4);
      x.UsedOn(reader);
      bench.layer.Destroy(event);
    }
    bench.layer.Drain();
    for (int round = 0; round < kRounds; ++round) {
      ASSERT_EQ(static_cast<float*>(out.data)[round], static_cast<float>(round))
          << bench.layer.Log();
    }
    EXPECT_THAT(bench.layer.misuses(), IsEmpty()) << bench.layer.Log();
    EXPECT_LE(pool.peak_held(), 16 * 1024);
  }
}

}  // namespace
}  // namespace spiritlevel::cuda
