// Messages as runtimes post them: one in-order lane for a pair of ranks, or one batch before each
// op.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/analysis/check_timeline.h"
#include "sim/analysis/deadlock.h"
#include "sim/event.h"
#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

LoweringOptions Fifo(Receives receives, Channels channels = Channels::kPair) {
  return {.posting = Posting::kNcclFifo,
          .iterations = kPeriodIterations,
          .receives = receives,
          .channels = channels};
}

constexpr LoweringOptions kBatches{.posting = Posting::kBatched, .iterations = kPeriodIterations};

TimeNs MakespanUnder(const Schedule& schedule, const Costs& costs, const LoweringOptions& options) {
  const Program program = Lower(schedule, costs, options);
  const std::optional<std::string> deadlock = FindDeadlock(program);
  EXPECT_FALSE(deadlock) << deadlock.value_or("");
  if (deadlock) return -1;
  const Timeline timeline = SimulateInOrder(program);
  EXPECT_EQ(timeline, SimulateByQueue(program));
  for (const Finding& f : CheckTimeline(CollectEvents(program, timeline, 2), {})) {
    ADD_FAILURE() << f.rule << ": " << f.what;
  }
  return Summarize(program, costs, timeline).makespan;
}

// A hop long enough to be waited for.
Costs WithHops(const Schedule& schedule, TimeNs busy, TimeNs latency) {
  return UniformFor(schedule, SumOfParts(100, 100, 100, 10, 5),
                    {.hop = {.latency = latency, .busy = busy}});
}

// C36: interleaved, two ranks, four stages. A receive that is issued early stands in the lane
// before sends that could go, so the other rank waits.
TEST(NcclFifo, C36EarlyReceivesBlockSends) {
  const Schedule schedule = Make("interleaved", 2, 4);
  const Costs costs = WithHops(schedule, 20, 5);
  EXPECT_EQ(SumUp(schedule, costs).makespan, 2850);
  EXPECT_EQ(MakespanUnder(schedule, costs, Fifo(Receives::kEarly)), 2900);
  EXPECT_EQ(MakespanUnder(schedule, costs, Fifo(Receives::kDeferred)), 2850);
  EXPECT_EQ(MakespanUnder(schedule, costs, Fifo(Receives::kEarly, Channels::kDirected)), 2850);
  const auto deadlock = FindDeadlock(Lower(schedule, costs, Fifo(Receives::kNaive)));
  ASSERT_TRUE(deadlock);
  EXPECT_THAT(*deadlock, HasSubstr("stands behind"));
}

// What every rank does is the same; only waits differ.
TEST(NcclFifo, NeverBeatsIdealPosting) {
  for (const ScheduleInfo& info : AllSchedules()) {
    for (const int p : {2, 4}) {
      const Schedule schedule = info.Make({.ranks = p, .micro_batches = 2 * p});
      const Costs costs = WithHops(schedule, 7, 3);
      const TimeNs ideal = SumUp(schedule, costs).makespan;
      for (const Channels channels : {Channels::kPair, Channels::kDirected}) {
        for (const Receives receives : {Receives::kEarly, Receives::kDeferred}) {
          const Program program = Lower(schedule, costs, Fifo(receives, channels));
          if (FindDeadlock(program)) continue;
          EXPECT_GE(MakespanUnder(schedule, costs, Fifo(receives, channels)), ideal)
              << info.name << " p=" << p << " " << Name(channels) << " " << Name(receives);
        }
      }
    }
  }
}

// Receives just before their use, and two ranks that both send first: each waits for the other.
TEST(NcclFifo, TheNaiveOrderDeadlocksAndTheCycleIsNamed) {
  const Schedule schedule = Make("1f1b", 2, 4);
  const Costs costs = WithHops(schedule, 20, 5);
  const std::optional<std::string> deadlock =
      FindDeadlock(Lower(schedule, costs, Fifo(Receives::kNaive)));
  ASSERT_TRUE(deadlock);
  EXPECT_THAT(*deadlock, testing::StartsWith("deadlocks under nccl-fifo posting:\n"));
  EXPECT_THAT(*deadlock, HasSubstr("waits for rank 1: receive of 0F"));
  EXPECT_THAT(*deadlock, HasSubstr("stands behind rank 1: send of 1BW"));
  EXPECT_FALSE(FindDeadlock(Lower(schedule, costs, Fifo(Receives::kDeferred))));
  EXPECT_FALSE(FindDeadlock(Lower(schedule, costs, Fifo(Receives::kNaive, Channels::kDirected))));
}

TEST(NcclFifo, DeferredReceivesNeverDeadlockOnNamedSchedules) {
  for (const ScheduleInfo& info : AllSchedules()) {
    for (int p = 2; p <= 6; p += 2) {
      const Schedule schedule = info.Make({.ranks = p, .micro_batches = 2 * p});
      for (const Channels channels : {Channels::kPair, Channels::kDirected}) {
        const auto deadlock = FindDeadlock(
            Lower(schedule, WithHops(schedule, 1, 1), Fifo(Receives::kDeferred, channels)));
        EXPECT_FALSE(deadlock) << info.name << " p=" << p << "\n" << deadlock.value_or("");
      }
    }
  }
}

// Where messages take no time and passes are equal, exchanging costs nothing: facts about DualPipe
// have 66 units for 8 ranks and 20 micro-batches, as its authors draw it.
TEST(Batched, WithoutHopsAndWithEqualTimesEveryScheduleTakesWhatItTakesUnderIdealPosting) {
  for (const ScheduleInfo& info : AllSchedules()) {
    for (const auto& [p, m] : {std::pair{8, 20}, std::pair{4, 8}, std::pair{6, 24}}) {
      SCOPED_TRACE(testing::Message() << info.name << " p=" << p << " m=" << m);
      const Shape shape{.ranks = p, .micro_batches = m};
      const Schedule schedule = info.Make(shape);
      EXPECT_EQ(MakespanUnder(schedule, UniformFor(schedule, kUnit), kBatches),
                SumUp(schedule, kUnit).makespan);
    }
  }
  const Schedule dualpipe = Make("dualpipe", 8, 20);
  EXPECT_EQ(MakespanUnder(dualpipe, UniformFor(dualpipe, kUnit), kBatches), 66);
}

TEST(Batched, OneFOneBPaysForHopsAndNeverWins) {
  for (const int p : {2, 4, 8}) {
    const Schedule schedule = Make("1f1b", p, 2 * p);
    const Costs costs = WithHops(schedule, 10, 5);
    EXPECT_GE(MakespanUnder(schedule, costs, kBatches), SumUp(schedule, costs).makespan);
  }
}

// Taken at its word, "before each op what it needs" lets ranks wait for each other wherever one has
// to take something in before it needs it.
TEST(Batched, TheLiteralRuleDeadlocksOnDualPipeAndTheCycleIsNamed) {
  LoweringOptions literal = kBatches;
  literal.receives = Receives::kNaive;
  const Schedule schedule = Make("dualpipe", 8, 20);
  const auto deadlock = FindDeadlock(Lower(schedule, WithHops(schedule, 7, 3), literal));
  ASSERT_TRUE(deadlock);
  EXPECT_THAT(*deadlock, testing::StartsWith("deadlocks under batched posting:\n"));
  EXPECT_THAT(*deadlock, HasSubstr("batch (send of"));
  const Schedule plain = Make("1f1b", 4, 8);
  EXPECT_FALSE(FindDeadlock(Lower(plain, WithHops(plain, 7, 3), literal)));
}

TEST(Batched, ABatchIsDoneWhenAllOfItIs) {
  const Schedule schedule = Schedule::Parse("0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n");
  const Costs costs = UniformFor(schedule, SumOfParts(10, 5, 5), {.hop = {.latency = 3}});
  LoweringOptions literal = kBatches;
  literal.receives = Receives::kNaive;
  const Program program = Lower(schedule, costs, literal);
  ASSERT_FALSE(FindDeadlock(program));
  const Timeline t = SimulateInOrder(program);
  EXPECT_EQ(t, SimulateByQueue(program));
  // 0F0 0-10; its send takes 10-13, and 0F1 waits for it.
  EXPECT_EQ(t.nodes[1].start, 13);
  // 1F0 13-23, 1BW0 23-33. The batch of 1BW0's send and 0F1's receive starts at 33.
  EXPECT_EQ(t.nodes[static_cast<size_t>(program.rank_begin(1)) + 2].start, 36);
  EXPECT_EQ(t.nodes[2].start, 36);  // 0BW0
}

// 0F1's result is exchanged when both ranks' second turns end: nominally at one time, though rank
// 1's 1BW0 comes before it needs it.
TEST(Batched, WhatIsMadeAtOneNominalInstantIsExchangedThere) {
  const Schedule schedule = Schedule::Parse("0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n");
  const Costs costs = UniformFor(schedule, SumOfParts(10, 5, 5), {.hop = {.latency = 3}});
  const Program program = Lower(schedule, costs, kBatches);
  ASSERT_FALSE(FindDeadlock(program));
  const Timeline t = SimulateInOrder(program);
  EXPECT_EQ(t, SimulateByQueue(program));
  // 0F0 0-10 and its exchange to 13; 0F1 and 1F0 13-23; 0F1's exchange 23-26, before 1BW0.
  EXPECT_EQ(t.nodes[1].start, 13);
  const auto rank1 = static_cast<size_t>(program.rank_begin(1));
  EXPECT_EQ(t.nodes[rank1 + 1].start, 26);  // 1BW0
  EXPECT_EQ(t.nodes[2].start, 39);          // 0BW0
}

// Which exchange of a rank each half stands in.
std::map<NodeId, NodeId> ReaderBehindHalf(const Program& program) {
  std::map<NodeId, NodeId> behind;  // batch: the compute node that waits for it
  for (const Edge& edge : program.edges()) {
    if (program.is_batch(edge.from)) behind[edge.from] = edge.to;
  }
  std::map<NodeId, NodeId> readers;
  for (size_t b = 0; b < program.batches().size(); ++b) {
    for (const NodeId half : program.batches()[b].halves) {
      readers[half] = behind.at(program.batch_node(static_cast<int32_t>(b)));
    }
  }
  return readers;
}

TEST(Batched, EveryNamedScheduleRuns) {
  for (const ScheduleInfo& info : AllSchedules()) {
    for (const int p : {2, 4, 6}) {
      const Schedule schedule = info.Make({.ranks = p, .micro_batches = 4 * p});
      SCOPED_TRACE(testing::Message() << info.name << " p=" << p);
      const Costs costs = WithHops(schedule, 7, 3);
      EXPECT_GE(MakespanUnder(schedule, costs, kBatches), SumUp(schedule, costs).makespan);
    }
  }
}

// Megatron's interleaved loop: forward, backward, then one exchange for both.
TEST(Batched, AnInterleavedRankExchangesOnceForAForwardAndTheBackwardBehindIt) {
  const Schedule schedule = Make("interleaved", 4, 16);
  const Program program = Lower(schedule, WithHops(schedule, 7, 3), kBatches);
  std::set<NodeId> exchanged_before;
  for (const auto& [half, reader] : ReaderBehindHalf(program)) exchanged_before.insert(reader);
  int pairs = 0;
  for (NodeId id = 1; id < program.num_lane_nodes(); ++id) {
    const bool behind_forward = program.nodes()[id - 1].op.pass == Pass::kF;
    if (program.nodes()[id].op.pass != Pass::kBW || !behind_forward) continue;
    if (program.nodes()[id].kind != NodeKind::kOp) continue;
    ++pairs;
    EXPECT_FALSE(exchanged_before.contains(id)) << ToString(program.nodes()[id].op);
  }
  // 16 micro-batches on 2 chunks, less the warm-ups of 10, 8, 6 and 4 forwards.
  EXPECT_EQ(pairs, kPeriodIterations * (4 * 32 - (10 + 8 + 6 + 4)));
}

TEST(Batched, ARankSendsBeforeItsNextTurnAndReceivesNoLaterThanItMust) {
  for (const char* name : {"1f1b", "zb-h2", "zb-v"}) {
    const Schedule schedule = Make(name, 4, 8);
    const Program program = Lower(schedule, WithHops(schedule, 7, 3), kBatches);
    for (const auto& [half, reader] : ReaderBehindHalf(program)) {
      const Message& message = program.messages()[program.message_of(half)];
      if (program.is_send(half)) {
        EXPECT_EQ(reader, message.from + 1) << name;
      } else {
        EXPECT_LE(reader, message.to) << name;
      }
    }
  }
}

// As its code does in the second of its steps.
TEST(Batched, DualPipePostsSomeReceivesAhead) {
  const Schedule schedule = Make("dualpipe", 8, 20);
  const Program program = Lower(schedule, WithHops(schedule, 7, 3), kBatches);
  int ahead = 0;
  for (const auto& [half, reader] : ReaderBehindHalf(program)) {
    if (!program.is_send(half)) {
      ahead += reader < program.messages()[program.message_of(half)].to ? 1 : 0;
    }
  }
  EXPECT_GT(ahead, 0);
  EXPECT_LT(ahead, static_cast<int>(program.messages().size()) / 4);
}

}  // namespace
}  // namespace spiritlevel
