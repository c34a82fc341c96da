// What ranks without memory in common tell each other of a norm that comes together, over a channel
// whose messages arrive when the test says so. No MPI: a job on one machine is too quick for it.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "verify/side_channel.h"
#include "verify/transaction_prefix.h"

namespace spiritlevel {
namespace {

// One rank's end: keeps what it sends, is given what it receives.
class FakeChannel : public SideChannel {
 public:
  struct Sent {
    int to = 0;
    int topic = 0;
    Payload payload{};
  };

  void Send(int to, int topic, std::span<const std::byte> bytes) override {
    sent.push_back({to, topic, Payload::CopyOf(bytes)});
  }
  std::optional<SideMessage> Poll(int topic) override {
    if (topic != PrefixSender::kTopic || here.empty()) return std::nullopt;
    SideMessage first = std::move(here.front());
    here.pop_front();
    return first;
  }
  // What would come while it waits, comes.
  SideMessage Receive(int topic) override {
    ++waits;
    if (here.empty()) {
      here.push_back(std::move(late.front()));
      late.pop_front();
    }
    return std::move(*Poll(topic));
  }

  std::deque<Sent> sent;
  std::deque<SideMessage> here;
  std::deque<SideMessage> late;
  int waits = 0;
};

// What rank `from` publishes, as it would arrive elsewhere.
SideMessage Publication(int from, int64_t iteration, const PrefixTable::Partials& partials) {
  FakeChannel channel;
  PrefixSender(/*ranks=*/2, /*rank=*/from, /*replica=*/0, channel).Send(iteration, partials);
  return {.from = from, .payload = std::move(channel.sent.front().payload)};
}

TEST(PrefixSender, TellsAllOtherRanksOfItsReplicaAndNobodyElse) {
  FakeChannel channel;
  PrefixSender(/*ranks=*/3, /*rank=*/1, /*replica=*/2, channel).Send(4, {{1, {0.5}}});
  ASSERT_EQ(channel.sent.size(), 2u);
  EXPECT_EQ(channel.sent[0].to, 6);
  EXPECT_EQ(channel.sent[1].to, 8);
  EXPECT_EQ(channel.sent[0].topic, PrefixSender::kTopic);
}

TEST(PrefixSender, PutsWhatHasComeIntoTheTableToTheBit) {
  FakeChannel channel;
  PrefixTable table({2, 1, 1});
  PrefixSender sender(2, 1, 0, channel);
  channel.here.push_back(Publication(0, 7, {{0, {0.1, 1e300}}, {2, {0.3}}}));
  table.Publish(7, 1, std::array<double, 1>{0.2});
  EXPECT_FALSE(table.UpTo(7, 0));
  sender.TakeAll(7, table);
  EXPECT_EQ(table.UpTo(7, 0)->sum, 0.1 + 1e300);
  EXPECT_EQ(table.Full(7)->sum, 0.1 + 1e300 + 0.2 + 0.3);
  EXPECT_EQ(channel.waits, 0);
}

// A forward can overtake what the ranks before it have published.
TEST(PrefixSender, WaitsForWhatIsStillOnItsWay) {
  FakeChannel channel;
  PrefixTable table({1, 1});
  PrefixSender sender(2, 1, 0, channel);
  channel.late.push_back(Publication(0, 3, {{0, {2.0}}}));
  sender.TakeAll(3, table);
  EXPECT_FALSE(table.UpTo(3, 0));
  sender.TakeNext(3, table);
  EXPECT_EQ(table.UpTo(3, 0)->sum, 2.0);
  EXPECT_EQ(channel.waits, 1);
}

// Cells are used again two iterations later: what was asked for by nobody, and comes out of the
// queue behind another rank's news of the same stage, must not take their place.
TEST(PrefixSender, LetsGoOfWhatNobodyWantsToKnowAnyMore) {
  FakeChannel channel;
  PrefixTable table({1, 1});
  PrefixSender sender(2, 1, 0, channel);
  channel.here.push_back(Publication(0, 4, {{0, {2.0}}}));
  channel.here.push_back(Publication(0, 2, {{0, {1.0}}}));
  sender.TakeAll(4, table);
  ASSERT_TRUE(table.UpTo(4, 0));
  EXPECT_EQ(table.UpTo(4, 0)->sum, 2.0);
}

}  // namespace
}  // namespace spiritlevel
