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

namespace spiritlevel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> Rules(const std::vector<Finding>& findings) {
  std::set<std::string> rules;
  for (const Finding& finding : findings) rules.insert(finding.rule);
  return {rules.begin(), rules.end()};
}

std::string Words(const std::vector<Finding>& findings) {
  std::string words;
  for (const Finding& f : findings) words += f.rule + ": " + f.what + "\n";
  return words;
}

constexpr auto kParameters = static_cast<size_t>(MemoryCategory::kParameters);
constexpr auto kForB = static_cast<size_t>(MemoryCategory::kWaitingForB);
constexpr auto kForW = static_cast<size_t>(MemoryCategory::kWaitingForW);

constexpr TimeNs kLatency = 3;
constexpr Bytes kStatic = 100;
constexpr Bytes kActivation = 10;
constexpr Bytes kWeightState = 4;

// Plays orders by the dumbest program there is, to have events to judge: each op as early as its
// rank and its inputs allow; F 5 ns, B 4, W 2, BW 6, a pair 10; a barrier and an optimizer step end
// each iteration.
class Player {
 public:
  explicit Player(Orders orders) : orders_(std::move(orders)), ranks_(orders_.size()) {
    for (const auto& row : orders_) {
      for (const Op& op : row) stages_ = std::max(stages_, op.stage + 1);
    }
    for (Rank& rank : ranks_) rank.memory[kParameters] = kStatic;
  }

  std::vector<Event> Play(int iterations) {
    for (iteration_ = 0; iteration_ < iterations; ++iteration_) {
      for (Rank& rank : ranks_) rank.at = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t r = 0; r < ranks_.size(); ++r) moved |= Step(static_cast<int>(r));
      }
      End();
    }
    std::vector<Event> all;
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(rank.at, orders_[&rank - ranks_.data()].size()) << "the test's orders can run";
      all.insert(all.end(), rank.events.begin(), rank.events.end());
    }
    return all;
  }

 private:
  using Key = std::tuple<int, int, Pass, int>;  // iteration, stage, pass, micro-batch

  struct Result {
    int rank = 0;
    TimeNs end = 0;
    int32_t message = kNone;
    Op op;
  };

  struct Rank {
    size_t at = 0;
    TimeNs clock = 0;
    MemoryByCategory memory{};
    std::vector<Event> events;
  };

  const Result* Find(int stage, Pass pass, int micro_batch) const {
    const auto found = results_.find({iteration_, stage, pass, micro_batch});
    return found == results_.end() ? nullptr : &found->second;
  }

  const Result* FindBackward(int stage, int micro_batch) const {
    const Result* fused = Find(stage, Pass::kBW, micro_batch);
    return fused != nullptr ? fused : Find(stage, Pass::kB, micro_batch);
  }

  // False: an input is missing.
  bool Inputs(const Op& op, std::vector<const Result*>& inputs) const {
    if (op.pass == Pass::kF && op.stage > 0) {
      inputs.push_back(Find(op.stage - 1, Pass::kF, op.micro_batch));
    }
    if (op.pass == Pass::kB || op.pass == Pass::kBW) {
      inputs.push_back(Find(op.stage, Pass::kF, op.micro_batch));
      if (op.stage + 1 < stages_) inputs.push_back(FindBackward(op.stage + 1, op.micro_batch));
    }
    if (op.pass == Pass::kW) inputs.push_back(Find(op.stage, Pass::kB, op.micro_batch));
    return std::count(inputs.begin(), inputs.end(), nullptr) == 0;
  }

  static TimeNs Duration(Pass pass) {
    switch (pass) {
      case Pass::kF:
        return 5;
      case Pass::kB:
        return 4;
      case Pass::kW:
        return 2;
      case Pass::kBW:
        return 6;
    }
    return 0;
  }

  bool Step(int r) {
    Rank& rank = ranks_[r];
    const std::vector<Op>& row = orders_[r];
    if (rank.at == row.size()) return false;
    const bool pair = row[rank.at].overlaps_next;
    std::vector<Op> ops = {row[rank.at]};
    if (pair) ops.push_back(row[rank.at + 1]);
    std::vector<const Result*> inputs;
    for (const Op& op : ops) {
      if (!Inputs(op, inputs)) return false;
    }
    rank.at += ops.size();
    Run(r, ops, inputs);
    return true;
  }

  void Run(int r, const std::vector<Op>& ops, const std::vector<const Result*>& inputs) {
    Rank& rank = ranks_[r];
    Event e = {.iteration = iteration_, .rank = r, .parameter_version = iteration_};
    e.kind = ops.size() == 2 ? NodeKind::kPair : NodeKind::kOp;
    e.op = ops[0];
    if (ops.size() == 2) e.second = ops[1];
    std::vector<Event> messages;
    for (const Result* input : inputs) {
      const bool arrives = input->rank != r;
      e.ready = std::max(e.ready, input->end + (arrives ? kLatency : 0));
      if (arrives) messages.push_back(MessageEvent(NodeKind::kReceive, r, *input, input->rank));
    }
    e.issue = e.start = std::max(e.ready, rank.clock);
    e.end = e.start + (ops.size() == 2 ? 10 : Duration(ops[0].pass));
    ChangeMemory(ops, e);
    rank.clock = e.end;
    for (const Op& op : ops) Release(r, op, e.end, messages);
    rank.events.push_back(e);
    rank.events.insert(rank.events.end(), messages.begin(), messages.end());
  }

  void Release(int r, const Op& op, TimeNs end, std::vector<Event>& messages) {
    Result result = {.rank = r, .end = end, .message = kNone, .op = op};
    const int next = op.pass == Pass::kF ? op.stage + 1 : op.stage - 1;
    if (op.pass != Pass::kW && next >= 0 && next < stages_ && RankOf(next, op.micro_batch) != r) {
      result.message = next_message_++;
      messages.push_back(MessageEvent(NodeKind::kSend, r, result, RankOf(next, op.micro_batch)));
    }
    results_[{iteration_, op.stage, op.pass, op.micro_batch}] = result;
  }

  Event MessageEvent(NodeKind kind, int rank, const Result& result, int peer) const {
    Event e = {.kind = kind, .iteration = iteration_, .rank = rank, .op = result.op};
    e.start = result.end;
    e.end = result.end + (kind == NodeKind::kReceive ? kLatency : 0);
    e.message = result.message;
    e.peer = peer;
    e.bytes = 1000 + result.op.stage;
    return e;
  }

  int RankOf(int stage, int micro_batch) const {
    for (size_t r = 0; r < orders_.size(); ++r) {
      for (const Op& op : orders_[r]) {
        if (op.stage == stage && op.micro_batch == micro_batch) return static_cast<int>(r);
      }
    }
    return kNone;
  }

  void ChangeMemory(const std::vector<Op>& ops, Event& e) {
    MemoryByCategory& memory = ranks_[e.rank].memory;
    e.before = memory;
    for (const Op& op : ops) {
      if (op.pass == Pass::kF) memory[kForB] += kActivation;
    }
    e.during = memory;
    e.live = Total(memory);
    for (const Op& op : ops) {
      if (op.pass == Pass::kB || op.pass == Pass::kBW) memory[kForB] -= kActivation;
      if (op.pass == Pass::kB) memory[kForW] += kWeightState;
      if (op.pass == Pass::kW) memory[kForW] -= kWeightState;
    }
    e.after = memory;
  }

  void End() {
    TimeNs together = 0;
    for (const Rank& rank : ranks_) together = std::max(together, rank.clock);
    together += 7;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      Event e = {.kind = NodeKind::kCollective, .iteration = iteration_};
      e.rank = static_cast<int32_t>(r);
      e.ready = e.issue = rank.clock;
      e.start = together - 7;
      e.end = together;
      ChangeMemory({}, e);
      rank.events.push_back(e);
      e.kind = NodeKind::kOptimizer;
      e.parameter_version = iteration_ + 1;
      e.ready = e.issue = e.start = together;
      e.end = rank.clock = together + 9;
      rank.events.push_back(e);
    }
  }

  Orders orders_;
  int stages_ = 0;
  int iteration_ = 0;
  int32_t next_message_ = 0;
  std::vector<Rank> ranks_;
  std::map<Key, Result> results_;
};

std::vector<Event> Play(std::string_view orders, int iterations = 1) {
  return Player(ParseOrders(orders)).Play(iterations);
}

constexpr std::string_view k1F1B =
    "0F0 0F1 0BW0 0F2 0BW1 0BW2\n"
    "1F0 1BW0 1F1 1BW1 1F2 1BW2\n";
constexpr std::string_view kZb =
    "0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2\n"
    "1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2\n";
constexpr std::string_view kV =
    "0F0 3F0 3B0 0F1 3F1 3B1 3W0 3W1 0B0 0B1 0W0 0W1\n"
    "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 2W0 2W1 1W0 1W1\n";
constexpr std::string_view kPairs =
    "0F0 0F1 (0F2;0BW0) 0BW1 0BW2\n"
    "1F0 (1F1;1BW0) 1BW1 1F2 1BW2\n";
constexpr std::string_view kBidirectional =
    "0F0 1F1 1BW1 0BW0\n"
    "0F1 1F0 1BW0 0BW1\n";

std::vector<Finding> Judge(const std::vector<Event>& events) {
  return CheckTimeline(events, std::nullopt);
}

bool SameOp(const Op& a, const Op& b) {
  return a.stage == b.stage && a.pass == b.pass && a.micro_batch == b.micro_batch;
}

Op Read(std::string_view text) { return ParseOrders(text)[0][0]; }

// Of the first iteration.
Event& FindNode(std::vector<Event>& events, std::string_view op) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Event& e) {
    return (e.kind == NodeKind::kOp || e.kind == NodeKind::kPair) && SameOp(e.op, Read(op));
  });
  EXPECT_NE(found, events.end()) << op;
  return *found;
}

Event& FindEnd(std::vector<Event>& events, NodeKind kind, std::string_view op) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Event& e) {
    return e.kind == kind && SameOp(e.op, Read(op));
  });
  EXPECT_NE(found, events.end()) << op;
  return *found;
}

Event& FindTail(std::vector<Event>& events, NodeKind kind, int rank, int iteration = 0) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Event& e) {
    return e.kind == kind && e.rank == rank && e.iteration == iteration;
  });
  EXPECT_NE(found, events.end()) << "rank " << rank << ", iteration " << iteration;
  return *found;
}

void Remove(std::vector<Event>& events, const Event& event) {
  events.erase(events.begin() + (&event - events.data()));
}

// --- legal timelines

TEST(CheckTimeline, PassesWhatRunsByTheRules) {
  for (const std::string_view orders : {k1F1B, kZb, kV, kPairs, kBidirectional}) {
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

void ForgetMemory(std::vector<Event>& events) {
  for (Event& e : events) {
    e.before = e.during = e.after = {};
    e.live = 0;
  }
}

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
       Event again = FindTail(e, NodeKind::kOptimizer, 0);
       again.kind = NodeKind::kOp;
       again.op = Read("0F1");
       again.parameter_version = 0;
       again.start = again.end = FindTail(e, NodeKind::kCollective, 0).end;
       e.insert(e.begin() + (&FindTail(e, NodeKind::kOptimizer, 0) - e.data()), again);
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
     [](Events& e) { FindEnd(e, NodeKind::kReceive, "0F1").iteration = 1; }},
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
    {"OptimizerStepBeforeTheLastOp", kZb, "early_optimizer",
     "rank 1: the optimizer step of iteration 0 starts at",
     [](Events& e) {
       // Before the last W on the lane, in a gap of no length: nothing overlaps.
       Event step = FindTail(e, NodeKind::kOptimizer, 1);
       Remove(e, FindTail(e, NodeKind::kOptimizer, 1));
       Event& last = FindNode(e, "1W2");
       step.start = step.end = last.start;
       step.before = step.during = step.after = last.before;
       step.live = Total(step.during);
       e.insert(e.begin() + (&last - e.data()), step);
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
    {"CollectiveDoesNotEndTogether", k1F1B, "collective", "iteration 0: the collective ends on",
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

constexpr std::string_view kWorlds[] = {k1F1B, kZb, kV, kPairs, kBidirectional};

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
      switch (random() % 12) {
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
      }
    }
    found += CheckTimeline(events, 1000).empty() ? 0 : 1;
  }
  EXPECT_GT(found, 1000) << "seed " << kSeed;
}

// --- shapes

TEST(CheckTimeline, AnEmptyTimelineIsAFinding) {
  EXPECT_THAT(Rules(Judge({})), ElementsAre("pass_count"));
  EXPECT_THAT(Words(Judge({})), HasSubstr("the timeline has no ops"));
}

TEST(CheckTimeline, AMicroBatchMissingInTheMiddleOrInOneIterationIsNamed) {
  for (const int iteration : {0, 1}) {
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      std::vector<Event> events = Play(k1F1B, 2);
      ForgetMemory(events);
      std::erase_if(events, [&](const Event& e) {
        return e.kind != NodeKind::kOptimizer && e.kind != NodeKind::kCollective &&
               e.iteration == iteration && e.op.micro_batch == micro_batch;
      });
      const std::vector<Finding> findings = Judge(events);
      EXPECT_THAT(Rules(findings), ElementsAre("pass_count")) << Words(findings);
      EXPECT_THAT(Words(findings),
                  HasSubstr("stage 1, micro-batch " + std::to_string(micro_batch) +
                            " of iteration " + std::to_string(iteration) + ": no ops at all"));
    }
  }
}

TEST(CheckTimeline, AbsurdNumbersCostNoMemory) {
  for (const auto& [iteration, stage, micro_batch] :
       {std::tuple{0, 65535, 2147483647}, std::tuple{2147483647, 0, 0},
        std::tuple{2147483647, 65535, 2147483647}}) {
    std::vector<Event> events = Play(k1F1B);
    events.push_back(events.front());
    events.back().iteration = iteration;
    events.back().op.stage = static_cast<uint16_t>(stage);
    events.back().op.micro_batch = micro_batch;
    EXPECT_THAT(Words(Judge(events)), HasSubstr("are named, but there are only 13 ops"));
  }
}

TEST(CheckTimeline, MessagesOfOpsOutsideTheTimelineDoNotCrash) {
  std::vector<Event> events = Play(k1F1B);
  for (const NodeKind kind : {NodeKind::kSend, NodeKind::kReceive}) {
    Event& end = FindEnd(events, kind, "0F1");
    end.op = {.micro_batch = 2147483647, .stage = 65535, .pass = Pass::kF};
    end.iteration = 2147483647;
  }
  EXPECT_THAT(Words(Judge(events)), HasSubstr("that op never ran"));
}

// --- memory limit

Bytes Peak(const std::vector<Event>& events, int rank) {
  Bytes peak = 0;
  for (const Event& e : events) {
    if (e.rank == rank) peak = std::max(peak, e.live);
  }
  return peak;
}

TEST(CheckTimelineMemory, ALimitOfExactlyThePeakPassesAndOneByteLessFails) {
  const std::vector<Event> events = Play(kZb);
  // Rank 0 holds two micro-batches at its third F at most: 100 static + 2 x 10 waiting for B, and
  // nothing waiting for W by then.
  const Bytes peak = std::max(Peak(events, 0), Peak(events, 1));
  EXPECT_EQ(Peak(events, 0), 120);
  EXPECT_THAT(CheckTimeline(events, peak), IsEmpty());
  const std::vector<Finding> findings = CheckTimeline(events, peak - 1);
  EXPECT_THAT(Rules(findings), ElementsAre("memory_limit"));
}

TEST(CheckTimelineMemory, TheFirstOffenceOfEachRankIsNamedWithOpBytesAndCategory) {
  const std::vector<Event> events = Play(k1F1B, 3);
  const std::vector<Finding> findings = CheckTimeline(events, 109);
  ASSERT_EQ(findings.size(), 2u) << Words(findings);
  EXPECT_EQ(findings[0].what,
            "rank 0: 0F0 of iteration 0 brings live memory to 110 bytes, over the limit of 109; "
            "the largest part is parameters, 100 bytes");
  EXPECT_THAT(findings[1].what, HasSubstr("rank 1: 1F0 of iteration 0 brings live memory to 110"));
}

TEST(CheckTimelineMemory, StaticMemoryAloneOverTheLimitIsNamedAtTheFirstOp) {
  const std::vector<Finding> findings = CheckTimeline(Play(k1F1B), 50);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_THAT(findings[0].what, HasSubstr("0F0 of iteration 0"));
}

// --- accounts

StallReport HonestReport(const std::vector<Event>& events, int ranks) {
  StallReport report;
  report.busy.resize(static_cast<size_t>(ranks));
  report.stalls.resize(static_cast<size_t>(ranks));
  for (const Event& e : events) {
    if (e.iteration > 0) continue;
    report.makespan = std::max(report.makespan, e.end);
    if (e.kind == NodeKind::kOp || e.kind == NodeKind::kPair) {
      report.busy[e.rank] += e.end - e.start;
    }
  }
  for (size_t r = 0; r < report.busy.size(); ++r) {
    report.stalls[r][static_cast<size_t>(StallCategory::kTransfer)] = 1;
    report.stalls[r][static_cast<size_t>(StallCategory::kDependency)] =
        report.makespan - report.busy[r] - 1;
  }
  return report;
}

TEST(CheckAccounts, BusyAndStallsThatSumToTheMakespanPass) {
  for (const std::string_view orders : {k1F1B, kZb, kV, kPairs, kBidirectional}) {
    const std::vector<Event> events = Play(orders, 2);
    const auto findings = CheckAccounts(events, HonestReport(events, 2));
    EXPECT_THAT(findings, IsEmpty()) << Words(findings);
  }
}

TEST(CheckAccounts, ANanosecondOffAnywhereIsNamed) {
  const std::vector<Event> events = Play(kZb, 2);
  const StallReport honest = HonestReport(events, 2);
  const auto check = [&](const std::function<void(StallReport&)>& plant) {
    StallReport report = honest;
    plant(report);
    const std::vector<Finding> findings = CheckAccounts(events, report);
    EXPECT_THAT(Rules(findings), ElementsAre("accounts"));
    return Words(findings);
  };
  EXPECT_THAT(check([](StallReport& r) { ++r.stalls[1][0]; }), HasSubstr("rank 1: busy 33 ns + "));
  EXPECT_THAT(check([](StallReport& r) { ++r.busy[0], --r.stalls[0][0]; }),
              HasSubstr("rank 0: busy time is 34 ns by the accounts and 33 ns by the events"));
  EXPECT_THAT(check([](StallReport& r) {
                ++r.makespan;
                for (StallsByCategory& stalls : r.stalls) ++stalls[0];
              }),
              HasSubstr("the makespan is"));
  EXPECT_THAT(check([](StallReport& r) { r.stalls[0][2] -= 5, r.stalls[0][0] += 5; }),
              HasSubstr("rank 0: -4 ns of "));
}

TEST(CheckAccounts, TheWrongNumberOfRanksIsNamed) {
  const std::vector<Event> events = Play(kZb);
  StallReport one = HonestReport(events, 2);
  one.busy.pop_back();
  one.stalls.pop_back();
  EXPECT_THAT(Words(CheckAccounts(events, one)), HasSubstr("accounts are of 1 ranks"));
  EXPECT_THAT(Rules(CheckAccounts(events, StallReport{})), ElementsAre("accounts"));
}

TEST(CheckAccounts, TimeZeroMayLieAnywhere) {
  std::vector<Event> events = Play(kZb);
  const StallReport honest = HonestReport(events, 2);
  for (Event& e : events) {
    for (TimeNs* t : {&e.ready, &e.issue, &e.start, &e.end}) *t += 123'456'789;
  }
  EXPECT_THAT(CheckAccounts(events, honest), IsEmpty());
}

}  // namespace
}  // namespace spiritlevel
