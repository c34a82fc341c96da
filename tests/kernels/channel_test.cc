#include "kernels/cpu/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/cores.h"

namespace spiritlevel {
namespace {

using cpu::Channel;
using Numbers = std::array<int, 3>;

std::span<std::byte> Bytes(Numbers* numbers) { return std::as_writable_bytes(std::span(*numbers)); }

TEST(Channel, HandsOverEveryTensorInOrder) {
  constexpr int kCount = 20'000;
  Channel channel;
  std::jthread sender([&] {
    for (int i = 0; i < kCount; ++i) {
      Numbers numbers = {i, i + 1, i + 2};
      ASSERT_TRUE(channel.Send(Bytes(&numbers)));
      numbers.fill(-1);  // after Send it is ours again
    }
  });
  for (int i = 0; i < kCount; ++i) {
    Numbers numbers{};
    ASSERT_TRUE(channel.Receive(Bytes(&numbers)));
    ASSERT_EQ(numbers, (Numbers{i, i + 1, i + 2}));
  }
}

// A tensor is copied in pieces: none may be missing at its end or at an edge, nor one byte beyond.
TEST(Channel, EveryByteOfATensorArrivesWhateverItsSize) {
  constexpr size_t kPiece = size_t{128} << 10;
  for (const size_t size :
       {size_t{0}, size_t{1}, kPiece - 1, kPiece, kPiece + 1, 3 * kPiece + 17}) {
    Channel channel;
    std::vector<std::byte> sent(size);
    for (size_t i = 0; i < size; ++i) sent[i] = static_cast<std::byte>(i * 7 + i / kPiece + 1);
    std::vector<std::byte> received(size + 1);
    std::jthread sender([&] { channel.Send(sent); });
    ASSERT_TRUE(channel.Receive(std::span(received).first(size)));
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), received.begin())) << size;
    EXPECT_EQ(received.back(), std::byte{0}) << size;
  }
}

TEST(Channel, ASlowSenderIsWaitedFor) {
  Channel channel;
  std::jthread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Numbers numbers = {4, 5, 6};
    channel.Send(Bytes(&numbers));
  });
  Numbers numbers{};
  EXPECT_TRUE(channel.Receive(Bytes(&numbers)));
  EXPECT_EQ(numbers, (Numbers{4, 5, 6}));
}

TEST(Channel, TheSenderCanWorkBetweenStartAndFinish) {
  Channel channel;
  Numbers sent = {1, 2, 3};
  channel.Start(Bytes(&sent));
  Numbers received{};
  std::jthread receiver([&] { channel.Receive(Bytes(&received)); });
  EXPECT_TRUE(channel.Finish());
  receiver.join();
  EXPECT_EQ(received, sent);
}

TEST(Channel, CloseWakesASleepingReceiver) {
  Channel channel;
  bool answer = true;
  std::jthread receiver([&] {
    Numbers numbers{};
    answer = channel.Receive(Bytes(&numbers));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  channel.Close();
  receiver.join();
  EXPECT_FALSE(answer);
}

TEST(Channel, CloseWakesASleepingSender) {
  Channel channel;
  bool answer = true;
  std::jthread sender([&] {
    Numbers numbers{};
    answer = channel.Send(Bytes(&numbers));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  channel.Close();
  sender.join();
  EXPECT_FALSE(answer);
}

TEST(Channel, AfterCloseNothingMovesAndNobodyWaits) {
  Channel channel;
  channel.Close();
  Numbers numbers{};
  EXPECT_FALSE(channel.Send(Bytes(&numbers)));
  EXPECT_FALSE(channel.Receive(Bytes(&numbers)));
}

TEST(Channel, SizesThatDifferAreOurFault) {
  Channel channel;
  Numbers numbers{};
  channel.Start(Bytes(&numbers));
  EXPECT_THROW(channel.Receive(Bytes(&numbers).first(4)), InvariantError);
}

TEST(Cores, ThereIsOneToRunOnAndItCanBePinnedTo) {
  const std::vector<int> cores = cpu::UsableCores();
  ASSERT_FALSE(cores.empty());
  std::jthread([&] {
    EXPECT_TRUE(cpu::PinThisThread({cores.front()}));
    EXPECT_EQ(cpu::UsableCores(), std::vector<int>{cores.front()});
  });
}

TEST(Cores, ThisBuildRunsHere) { EXPECT_STREQ(cpu::MissingInstructions(), ""); }

}  // namespace
}  // namespace spiritlevel
