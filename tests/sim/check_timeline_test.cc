#include "sim/analysis/check_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/sim/played_events.h"

namespace spiritlevel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// --- legal timelines

TEST(CheckTimeline, PassesWhatRunsByTheRules) {
  for (const std::string_view orders : kWorlds) {
    for (const int iterations : {1, 3}) {
      const std::vector<Event> events = Play(orders, iterations);
      EXPECT_THAT(Judge(events), IsEmpty()) << orders << Words(Judge(events));
    }
  }
}

TEST(CheckTimeline, PassesALaterPartOfARun) {
  std::vector<Event> events = Play(kZb, 4);
  std::erase_if(events, [](const Event& e) { return e.iteration < 2; });
  EXPECT_THAT(Judge(events), IsEmpty()) << Words(Judge(events));
}

TEST(CheckTimeline, PassesMeasuredTimesThatFollowNoModel) {
  // Every op takes what it takes and messages as long as they like, without bytes; nothing about
  // memory is known; time zero is wherever the clock says.
  std::vector<Event> events = Play(kV, 2);
  for (Event& e : events) {
    for (TimeNs* t : {&e.ready, &e.issue, &e.start, &e.end}) *t = 17 * *t - 1'000'000;
    if (e.kind == NodeKind::kReceive) e.end -= 11;
    e.bytes = 0;
    e.before = e.during = e.after = {};
    e.live = 0;
  }
  EXPECT_THAT(Judge(events), IsEmpty()) << Words(Judge(events));
}

TEST(CheckTimeline, RanksMayComeInterleaved) {
  std::vector<Event> events = Play(kZb, 2);
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  // Swapping neighbours of different ranks leaves each lane in order.
  for (int i = 0; i < 2000; ++i) {
    const size_t at = random() % (events.size() - 1);
    if (events[at].rank != events[at + 1].rank) std::swap(events[at], events[at + 1]);
  }
  EXPECT_THAT(Judge(events), IsEmpty()) << "seed " << kSeed << Words(Judge(events));
}

TEST(CheckTimeline, PassesWildMessageIdsThatMatch) {
  std::vector<Event> events = Play(k1F1B);
  for (Event& e : events) {
    if (e.message != kNone) e.message = std::numeric_limits<int32_t>::max() - 7919 * e.message;
  }
  EXPECT_THAT(Judge(events), IsEmpty()) << Words(Judge(events));
}

// --- planted faults: exactly the right rule is named

struct Fault {
  std::string name;
  std::string_view orders;
  std::string rule;
  std::string words;  // found in the findings
  std::function<void(std::vector<Event>&)> plant;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class CheckTimelineFaults : public testing::TestWithParam<Fault> {};

TEST_P(CheckTimelineFaults, NamesExactlyTheRightRule) {
  const Fault& fault = GetParam();
  std::vector<Event> events = Play(fault.orders, 2);
  ASSERT_THAT(Judge(events), IsEmpty());
  fault.plant(events);
  const std::vector<Finding> findings = Judge(events);
  EXPECT_THAT(Rules(findings), ElementsAre(fault.rule)) << Words(findings);
  EXPECT_THAT(Words(findings), HasSubstr(fault.words));
  EXPECT_LE(findings.size(), 6u) << "few enough to read\n" << Words(findings);
}

// Each takes the other's place in time.
void ExchangeOps(Event& a, Event& b) { std::swap(a.op, b.op); }

using Events = std::vector<Event>;

const std::vector<Fault> kFaults = {
    {"WBeforeItsB", kZb, "dependency", "but its input 0B0 ends at",
     [](Events& e) { ExchangeOps(FindNode(e, "0B0"), FindNode(e, "0W0")); }},
    {"OpBeforeItsInputArrived", k1F1B, "dependency", "but its input 0F0 arrives at 8 ns",
     [](Events& e) { --FindNode(e, "1F0").start; }},
    {"InputOfTheSecondOfAPairArrivesLate", kPairs, "dependency", "but its input 1BW0 arrives at",
     [](Events& e) { FindEnd(e, NodeKind::kReceive, "1BW0").end += 1000; }},
    {"BackwardOnAnotherRankThanItsForward", kBidirectional, "dependency",
     "1BW1 of iteration 0 ran on rank 1, but 1F1 ran on rank 0",
     [](Events& e) {
       ExchangeOps(FindNode(e, "1BW1"), FindNode(e, "1BW0"));
       // Their results are where they are needed now, without a message.
       std::erase_if(e, [](const Event& x) {
         return x.iteration == 0 && x.message != kNone && x.op.stage == 1 && x.op.pass == Pass::kBW;
       });
     }},
    {"LostPass", kZb, "pass_count", "stage 1, micro-batch 2 of iteration 0: B but no W",
     [](Events& e) {
       ForgetMemory(e);
       Remove(e, FindNode(e, "1W2"));
     }},
    {"DoubledPass", k1F1B, "pass_count", "0F1 of iteration 0 ran twice: on rank 0 and on rank 0",
     [](Events& e) {
       const Event& barrier = FindTail(e, NodeKind::kCollective, 0);
       Event again = barrier;
       again.kind = NodeKind::kOp;
       again.op = Read("0F1");
       again.start = again.end = barrier.issue;
       e.insert(e.begin() + (&barrier - e.data()), again);
     }},
    {"SendWithoutReceive", k1F1B, "message", "rank 0 has the send, but rank 1 has no receive",
     [](Events& e) { Remove(e, FindEnd(e, NodeKind::kReceive, "0F1")); }},
    {"ReceiveWithoutSend", k1F1B, "message", "rank 1 has the receive, but rank 0 has no send",
     [](Events& e) { Remove(e, FindEnd(e, NodeKind::kSend, "0F1")); }},
    {"NoMessageBetweenRanks", k1F1B, "message",
     "1F1 of iteration 0 on rank 1 needs 0F1 of rank 0, and no message brings it",
     [](Events& e) {
       Remove(e, FindEnd(e, NodeKind::kSend, "0F1"));
       Remove(e, FindEnd(e, NodeKind::kReceive, "0F1"));
     }},
    {"WrongPeerOfASend", kV, "message", "rank 0 sends it to rank 2, but rank 1 receives it",
     [](Events& e) { FindEnd(e, NodeKind::kSend, "0F1").peer = 2; }},
    {"WrongPeerOfAReceive", kV, "message", "but rank 1 receives it from rank 1",
     [](Events& e) { FindEnd(e, NodeKind::kReceive, "0F1").peer = 1; }},
    {"BytesDiffer", k1F1B, "message", "1000 bytes are sent and 1001 received",
     [](Events& e) { ++FindEnd(e, NodeKind::kReceive, "0F1").bytes; }},
    {"CarriesAnotherOp", k1F1B, "message", "it is received as 0F2 of iteration 0",
     [](Events& e) { FindEnd(e, NodeKind::kReceive, "0F1").op = Read("0F2"); }},
    {"CarriedIntoAnotherIteration", k1F1B, "message", "it is received as 0F1 of iteration 1",
     [](Events& e) {
       Event& receive = FindEnd(e, NodeKind::kReceive, "0F1");
       receive.iteration = receive.parameter_version = 1;
     }},
    {"ArrivesBeforeItLeaves", k1F1B, "message", "before it leaves at 5 ns",
     [](Events& e) {
       Event& receive = FindEnd(e, NodeKind::kReceive, "0F0");
       receive.start = receive.end = 4;
     }},
    {"LeavesBeforeItIsMade", k1F1B, "message", "it leaves at 4 ns, before it is made at 5 ns",
     [](Events& e) { FindEnd(e, NodeKind::kSend, "0F0").start = 4; }},
    {"EndsBeforeItStarts", k1F1B, "message", "before it starts at 5 ns",
     [](Events& e) { FindEnd(e, NodeKind::kSend, "0F0").end = 4; }},
    {"SentTwice", k1F1B, "message", "0F0 of iteration 0 was sent twice",
     [](Events& e) {
       for (const NodeKind kind : {NodeKind::kSend, NodeKind::kReceive}) {
         e.push_back(FindEnd(e, kind, "0F0"));
         e.back().message = 77;
       }
     }},
    {"TwoReceivesOfOneMessage", k1F1B, "message", "has two receives: on rank 1 and on rank 1",
     [](Events& e) { e.push_back(Event(FindEnd(e, NodeKind::kReceive, "0F0"))); }},
    {"NobodyWaitsForIt", k1F1B, "message", "0BW1 of iteration 0: no op waits for it",
     [](Events& e) {
       for (const NodeKind kind : {NodeKind::kSend, NodeKind::kReceive}) {
         e.push_back(FindEnd(e, kind, "0F0"));
         e.back().message = 77;
         e.back().op = Read("0BW1");
         e.back().start = e.back().end = 1'000'000;
       }
     }},
    {"NoMessageId", k1F1B, "message", "send of 0F0 of iteration 0 has no message id",
     [](Events& e) {
       FindEnd(e, NodeKind::kSend, "0F0").message = kNone;
       FindEnd(e, NodeKind::kReceive, "0F0").message = kNone;
     }},
    {"VersionsMixedAlongStages", k1F1B, "version", "1F1 of iteration 0 reads parameter version 1",
     [](Events& e) { FindNode(e, "1F1").parameter_version = 1; }},
    {"VersionsMixedBetweenPasses", kZb, "version", "0W2 of iteration 0 reads parameter version 1",
     [](Events& e) { FindNode(e, "0W2").parameter_version = 1; }},
    {"TwoOpsOverlapByANanosecond", k1F1B, "overlap",
     "rank 0: 0F1 of iteration 0 starts at 4 ns, before 0F0 of iteration 0 ends at 5 ns",
     [](Events& e) { --FindNode(e, "0F1").start; }},
    {"OptimizerStepOverlapsTheNextIteration", k1F1B, "overlap", "the optimizer step of iteration 0",
     [](Events& e) { ++FindTail(e, NodeKind::kOptimizer, 0).end; }},
    {"OpEndsBeforeItStarts", k1F1B, "overlap", "ends at 1 ns, before it starts at 5 ns",
     [](Events& e) { FindNode(e, "0F1").end = 1; }},
    {"CollectiveDoesNotEndTogether", k1F1B, "collective", "iteration 0: collective 0 ends on",
     [](Events& e) { --FindTail(e, NodeKind::kCollective, 1).end; }},
    {"CollectiveEndsBeforeAllJoin", k1F1B, "collective", "before rank 1 joins at",
     [](Events& e) {
       FindTail(e, NodeKind::kCollective, 1).issue = FindTail(e, NodeKind::kCollective, 0).end + 1;
     }},
    {"LiveTotalOffByOneByte", kZb, "ledger",
     "the categories sum to 120 bytes, the live total is 121",
     [](Events& e) { ++FindNode(e, "0F1").live; }},
    {"CategoryOffByOneByte", kZb, "ledger", "of waiting_for_w, and",
     [](Events& e) { ++FindNode(e, "0B0").after[kForW]; }},
    {"MemoryBelowZero", kZb, "negative_memory", "has -1 bytes of waiting_for_w",
     [](Events& e) {
       // Only while it runs, so that what it leaves is what the next one finds.
       Event& op = FindNode(e, "0F1");
       op.during[kForW] -= 1;
       op.live -= 1;
     }},
    {"RankBelowZero", k1F1B, "bad_event", "rank -1, iteration 0",
     [](Events& e) {
       e.push_back(e.front());
       e.back().rank = -1;
     }},
};

std::string FaultName(const testing::TestParamInfo<Fault>& fault) { return fault.param.name; }

INSTANTIATE_TEST_SUITE_P(Planted, CheckTimelineFaults, testing::ValuesIn(kFaults), FaultName);

// An op whose result went to another rank cannot be moved without its message telling, too.
TEST(CheckTimeline, SwappedOpsBreakADependencyAndTheMessageTheyFeed) {
  std::vector<Event> events = Play(k1F1B);
  ExchangeOps(FindNode(events, "1BW1"), FindNode(events, "1F2"));
  const std::vector<Finding> findings = Judge(events);
  EXPECT_THAT(Rules(findings), ElementsAre("dependency", "message")) << Words(findings);
  EXPECT_THAT(Words(findings), AllOf(HasSubstr("1F2 of iteration 0 starts on rank 1 at"),
                                     HasSubstr(" with 1BW1 of iteration 0: it leaves at")));
}

TEST(CheckTimeline, SwappedRanksOfAMessageAreNamed) {
  std::vector<Event> events = Play(k1F1B);
  Event& send = FindEnd(events, NodeKind::kSend, "0F0");
  Event& receive = FindEnd(events, NodeKind::kReceive, "0F0");
  std::swap(send.rank, receive.rank);
  std::swap(send.peer, receive.peer);
  EXPECT_THAT(Rules(Judge(events)), ElementsAre("message"));
  EXPECT_THAT(Words(Judge(events)), HasSubstr("rank 1 sends it, but it ran on rank 0"));
}

// --- sweeps: every event of every small world, one at a time

TEST(CheckTimelineSweep, EveryOpThatIsLeftOutIsMissedAndEveryHalfOfAMessageToo) {
  for (const std::string_view world : kWorlds) {
    const std::vector<Event> honest = Play(world, 2);
    for (size_t i = 0; i < honest.size(); ++i) {
      if (honest[i].kind == NodeKind::kOptimizer || honest[i].kind == NodeKind::kCollective) {
        continue;
      }
      std::vector<Event> events = honest;
      ForgetMemory(events);
      events.erase(events.begin() + static_cast<int64_t>(i));
      const bool is_op = honest[i].kind == NodeKind::kOp || honest[i].kind == NodeKind::kPair;
      EXPECT_THAT(Rules(Judge(events)), testing::Contains(is_op ? "pass_count" : "message"))
          << world << ToString(honest[i].op);
    }
  }
}

// The player starts everything as early as the rules allow, so there is no nanosecond to win.
TEST(CheckTimelineSweep, NothingCanStartANanosecondEarlier) {
  for (const std::string_view world : kWorlds) {
    const std::vector<Event> honest = Play(world, 2);
    for (size_t i = 0; i < honest.size(); ++i) {
      const Event& e = honest[i];
      const bool waits_for_nothing = e.start == 0;
      if (waits_for_nothing || e.kind == NodeKind::kReceive || e.kind == NodeKind::kCollective) {
        continue;
      }
      std::vector<Event> events = honest;
      --events[i].start;
      EXPECT_THAT(Judge(events), Not(IsEmpty())) << world << i << ": " << ToString(e.op);
    }
  }
}

TEST(CheckTimelineSweep, AByteMoreOrLessInAnyRecordOfMemoryIsFound) {
  for (const std::string_view world : kWorlds) {
    const std::vector<Event> honest = Play(world, 2);
    for (size_t i = 0; i < honest.size(); ++i) {
      if (honest[i].kind == NodeKind::kSend || honest[i].kind == NodeKind::kReceive) continue;
      // Nothing stands before the first event of a rank, or behind the last.
      const bool first = i == 0 || honest[i - 1].rank != honest[i].rank;
      const bool last = i + 1 == honest.size() || honest[i + 1].rank != honest[i].rank;
      for (int c = 0; c < kNumMemoryCategories; ++c) {
        std::vector<Event> events = honest;
        ++events[i].during[c];
        EXPECT_THAT(Rules(Judge(events)), ElementsAre("ledger")) << world << i;
        events = honest;
        if (!first) ++events[i].before[c];
        if (!last) ++events[i].after[c];
        EXPECT_THAT(Rules(Judge(events)), ElementsAre("ledger")) << world << i;
      }
    }
  }
}

TEST(CheckTimelineSweep, RandomDamageNeverCrashes) {
  constexpr unsigned kSeed = 4711;
  std::mt19937_64 random(kSeed);
  const std::vector<Event> honest = Play(kV, 2);
  int found = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<Event> events = honest;
    for (auto damages = 1 + random() % 4; damages > 0; --damages) {
      Event& e = events[random() % events.size()];
      const auto wild = static_cast<int64_t>(random() >> (random() % 64));
      const auto number = static_cast<int32_t>(random() % 2 == 0 ? wild : wild % 5 - 1);
      switch (random() % 14) {
        case 0:
          e.kind = static_cast<NodeKind>(random() % 6);
          break;
        case 1:
          e.iteration = number;
          break;
        case 2:
          e.rank = number;
          break;
        case 3:
          e.op.micro_batch = number;
          break;
        case 4:
          e.op.stage = static_cast<uint16_t>(number);
          break;
        case 5:
          e.op.pass = static_cast<Pass>(random() % 5);
          break;
        case 6:
          e.message = number;
          break;
        case 7:
          e.peer = number;
          break;
        case 8:
          e.start = wild;
          break;
        case 9:
          e.end = -wild;
          break;
        case 10:
          e.during[random() % kNumMemoryCategories] = wild;
          break;
        case 11:
          e.live = -wild;
          break;
        case 12:
          e.parameter_version = number;
          break;
        case 13:
          e.collective = number;
          break;
      }
    }
    found += CheckTimeline(events, 1000).empty() ? 0 : 1;
  }
  EXPECT_GT(found, 1000) << "seed " << kSeed;
}

}  // namespace
}  // namespace spiritlevel
