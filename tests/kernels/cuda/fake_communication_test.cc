// The fake's communicators, held against what NCCL promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/cuda/fake_layer.h"

namespace spiritlevel::cuda {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kSeeds = 48;

// One rank on each device, each with two streams and its end of one communicator.
struct World {
  World(uint64_t seed, int ranks, std::chrono::milliseconds patience = {})
      : layer({.devices = ranks, .seed = seed, .patience = patience}) {
    const CommunicatorId id = layer.MakeCommunicatorId();
    for (int rank = 0; rank < ranks; ++rank) {
      streams.push_back(layer.MakeStream(rank, Partition{}, true));
      others.push_back(layer.MakeStream(rank, Partition{}, true));
      ends.push_back(layer.MakeCommunicator(rank, id, ranks, rank));
    }
  }

  View Numbers(int rank, const std::vector<float>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const View view = Dense(layer.Allocate(rank, count * 4), ElementType::kFloat32, 1, count);
    std::memcpy(view.data, values.data(), values.size() * sizeof(float));
    return view;
  }
  static std::vector<float> Of(View view) {
    std::vector<float> values(static_cast<size_t>(view.size()));
    std::memcpy(values.data(), view.data, values.size() * sizeof(float));
    return values;
  }
  void Send(int from, int to, View view, bool other = false) {
    layer.Send(ends[from], other ? others[from] : streams[from], view.data, view.size() * 4, to);
  }
  void Receive(int to, int from, View view, bool other = false) {
    layer.Receive(ends[to], other ? others[to] : streams[to], view.data, view.size() * 4, from);
  }

  FakeLayer layer;
  std::vector<Stream> streams;
  std::vector<Stream> others;
  std::vector<Communicator> ends;
};

TEST(FakeCommunication, ASendIsDoneWithItsReceive) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed, 2);
    const View x = world.Numbers(0, {1, 2});
    const View y = world.Numbers(1, {0, 0});
    const Event sent = world.layer.MakeEvent(0, false);
    world.Send(0, 1, x);
    world.layer.Record(sent, world.streams[0]);
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(world.layer.IsDone(sent)) << "no receive yet";
    world.Receive(1, 0, y);
    world.layer.Synchronize(world.streams[0]);
    EXPECT_THAT(World::Of(y), ElementsAre(1, 2)) << world.layer.Log();
    EXPECT_FALSE(world.layer.IsStuck());
  }
}

// Behind a kernel that waits, the receive is not at the head of its stream.
TEST(FakeCommunication, AReceiveWaitsForWhatIsBeforeItOnItsStream) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed, 2);
    const View x = world.Numbers(0, {7});
    const View y = world.Numbers(1, {0});
    world.layer.Launch(world.streams[1], Fill{y, 3});
    world.Receive(1, 0, y);
    world.Send(0, 1, x);
    world.layer.Drain();
    EXPECT_THAT(World::Of(y), ElementsAre(7)) << world.layer.Log();
  }
}

// Both send first, each waits for the other's receive, for ever: what NCCL does outside of a group
// once messages are larger than its buffers.
TEST(FakeCommunication, TwoSendsThatMeetAreADeadlock) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed, 2);
    const View x = world.Numbers(0, {1});
    const View y = world.Numbers(1, {2});
    const View from_y = world.Numbers(0, {0});
    const View from_x = world.Numbers(1, {0});
    world.Send(0, 1, x);
    world.Receive(0, 1, from_y);
    world.Send(1, 0, y);
    world.Receive(1, 0, from_x);
    world.layer.Drain();
    EXPECT_TRUE(world.layer.IsStuck()) << world.layer.Log();
    try {
      world.layer.Synchronize(world.streams[0]);
      FAIL() << world.layer.Log();
    } catch (const GpuError& e) {
      EXPECT_EQ(e.kind(), GpuErrorKind::kTimeout);
      EXPECT_THAT(e.what(), HasSubstr("Send of 4 bytes"));
    }
  }
}

TEST(FakeCommunication, InAGroupTheyAreNot) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed, 2);
    std::vector<View> got;
    for (int rank = 0; rank < 2; ++rank) {
      const View mine = world.Numbers(rank, {static_cast<float>(rank + 1)});
      got.push_back(world.Numbers(rank, {0}));
      world.layer.BeginGroup();
      world.Send(rank, 1 - rank, mine);
      world.Receive(rank, 1 - rank, got.back());
      world.layer.EndGroup();
    }
    for (const Stream stream : world.streams) world.layer.Synchronize(stream);
    EXPECT_THAT(World::Of(got[0]), ElementsAre(2)) << world.layer.Log();
    EXPECT_THAT(World::Of(got[1]), ElementsAre(1)) << world.layer.Log();
  }
}

TEST(FakeCommunication, ARankCanSendToItselfInAGroup) {
  World world(3, 1);
  const View x = world.Numbers(0, {5});
  const View y = world.Numbers(0, {0});
  world.layer.BeginGroup();
  world.Send(0, 0, x);
  world.Receive(0, 0, y);
  world.layer.EndGroup();
  world.layer.Synchronize(world.streams[0]);
  EXPECT_THAT(World::Of(y), ElementsAre(5));
}

// One communicator does one thing after the other, in the order of posting, on whatever streams:
// rank 1 takes what comes first into what it posted first.
TEST(FakeCommunication, OneCommunicatorKeepsTheOrderOfPostingAcrossStreams) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed, 2);
    const View first = world.Numbers(0, {1});
    const View second = world.Numbers(0, {2});
    const View y = world.Numbers(1, {0});
    const View z = world.Numbers(1, {0});
    world.Send(0, 1, first);
    world.Send(0, 1, second, /*other=*/true);
    world.Receive(1, 0, y, /*other=*/true);
    world.Receive(1, 0, z);
    world.layer.Drain();
    EXPECT_THAT(World::Of(y), ElementsAre(1)) << world.layer.Log();
    EXPECT_THAT(World::Of(z), ElementsAre(2)) << world.layer.Log();
  }
}

TEST(FakeCommunication, AGroupOnTwoStreamsHoldsBothUp) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed, 2);
    const View x = world.Numbers(0, {1});
    const View y = world.Numbers(0, {2});
    world.layer.BeginGroup();
    world.Send(0, 1, x);
    world.Send(0, 1, y, /*other=*/true);
    world.layer.EndGroup();
    const Event behind = world.layer.MakeEvent(0, false);
    world.layer.Record(behind, world.others[0]);
    const View into = world.Numbers(1, {0});
    world.Receive(1, 0, into);
    world.layer.Drain();
    EXPECT_FALSE(world.layer.IsDone(behind)) << "the second is not received yet";
    world.Receive(1, 0, into);
    world.layer.Drain();
    EXPECT_TRUE(world.layer.IsDone(behind)) << world.layer.Log();
    EXPECT_THAT(World::Of(into), ElementsAre(2)) << world.layer.Log();
  }
}

TEST(FakeCommunication, ACollectiveStartsWhenAllRanksHaveCome) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    World world(seed, 3);
    std::vector<View> data;
    for (int rank = 0; rank < 3; ++rank) {
      data.push_back(world.Numbers(rank, {static_cast<float>(rank), 1}));
    }
    const Event done = world.layer.MakeEvent(0, false);
    for (int rank = 0; rank < 2; ++rank) {
      world.layer.AllReduce(world.ends[rank], world.streams[rank], data[rank], Reduction::kSum);
    }
    world.layer.Record(done, world.streams[0]);
    world.layer.Drain();
    EXPECT_FALSE(world.layer.IsDone(done)) << world.layer.Log();
    world.layer.AllReduce(world.ends[2], world.streams[2], data[2], Reduction::kSum);
    world.layer.Drain();
    for (const View& view : data) EXPECT_THAT(World::Of(view), ElementsAre(3, 3));
  }
}

TEST(FakeCommunication, CollectivesGiveWhatTheirNamesSay) {
  constexpr int kRanks = 3;
  World world(5, kRanks);
  std::vector<View> max, gathered, spread, scattered;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<float>(rank);
    const Communicator c = world.ends[rank];
    const Stream s = world.streams[rank];
    max.push_back(world.Numbers(rank, {r, -r}));
    world.layer.AllReduce(c, s, max.back(), Reduction::kMax);
    const View mine = world.Numbers(rank, {10 * r, 10 * r + 1, 10 * r + 2});
    gathered.push_back(world.Numbers(rank, {0, 0, 0}));
    world.layer.AllGather(c, s, mine.data, gathered.back().data, 4);
    spread.push_back(world.Numbers(rank, {0, 0, 0}));
    world.layer.AllToAll(c, s, mine.data, spread.back().data, 4);
    scattered.push_back(world.Numbers(rank, {0}));
    world.layer.ReduceScatter(c, s, mine, scattered.back());
  }
  world.layer.Drain();
  ASSERT_FALSE(world.layer.IsStuck()) << world.layer.Log();
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<float>(rank);
    EXPECT_THAT(World::Of(max[rank]), ElementsAre(2, 0));
    EXPECT_THAT(World::Of(gathered[rank]), ElementsAre(0, 10, 20));
    EXPECT_THAT(World::Of(spread[rank]), ElementsAre(r, 10 + r, 20 + r));
    EXPECT_THAT(World::Of(scattered[rank]), ElementsAre(30 + 3 * r));
  }
  EXPECT_THAT(world.layer.misuses(), IsEmpty()) << world.layer.Log();
}

TEST(FakeCommunication, BFloat16IsAddedInFp32AndRoundedOnce) {
  World world(1, 3);
  std::vector<View> data;
  // 256 + 1 + 1 = 258 has a bf16; rounded after each sum it would stay at 256.
  for (const uint16_t bits : {uint16_t{0x4380}, uint16_t{0x3f80}, uint16_t{0x3f80}}) {
    const int rank = static_cast<int>(data.size());
    data.push_back(Dense(world.layer.Allocate(rank, 2), ElementType::kBFloat16, 1, 1));
    std::memcpy(data.back().data, &bits, 2);
    world.layer.AllReduce(world.ends[rank], world.streams[rank], data.back(), Reduction::kSum);
  }
  world.layer.Drain();
  for (const View& view : data) EXPECT_EQ(*static_cast<uint16_t*>(view.data), 0x4381);
}

TEST(FakeCommunication, AMessageOfAnotherSizeThanItsReceiveIsAMisuse) {
  World world(1, 2);
  world.Send(0, 1, world.Numbers(0, {1, 2}));
  world.Receive(1, 0, world.Numbers(1, {0}));
  world.layer.Drain();
  EXPECT_THAT(world.layer.misuses(), Contains(HasSubstr("which receives 4")));
  EXPECT_TRUE(world.layer.Failure(world.ends[0]).has_value());
}

TEST(FakeCommunication, TwoRanksOfACommunicatorAreNotOnOneDevice) {
  FakeLayer layer({.devices = 1});
  const CommunicatorId id = layer.MakeCommunicatorId();
  layer.MakeCommunicator(0, id, 2, 0);
  EXPECT_THROW(layer.MakeCommunicator(0, id, 2, 1), GpuError);
}

// With a thread to a rank, as with a process to a rank, a receive is waited for that comes later.
TEST(FakeCommunication, ThreadsExchangeInARing) {
  constexpr int kRanks = 4;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    World world(seed, kRanks, std::chrono::minutes(1));
    std::vector<View> mine, got;
    for (int rank = 0; rank < kRanks; ++rank) {
      mine.push_back(world.Numbers(rank, {static_cast<float>(rank)}));
      got.push_back(world.Numbers(rank, {-1}));
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        world.layer.BeginGroup();
        world.Send(rank, (rank + 1) % kRanks, mine[rank]);
        world.Receive(rank, (rank + kRanks - 1) % kRanks, got[rank]);
        world.layer.EndGroup();
        world.layer.Synchronize(world.streams[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_THAT(World::Of(got[rank]),
                  ElementsAre(static_cast<float>((rank + kRanks - 1) % kRanks)))
          << world.layer.Log();
    }
  }
}

}  // namespace
}  // namespace spiritlevel::cuda
