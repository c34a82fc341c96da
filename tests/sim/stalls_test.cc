// The rules of docs/stalls.md, each on a case small enough to work out by hand.
#include "sim/analysis/stalls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/event.h"
#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

using testing::ElementsAre;

TimeNs Stall(const Summary& s, int rank, StallCategory category) {
  return s.stalls.stalls[static_cast<size_t>(rank)][static_cast<size_t>(category)];
}

// rank 0: F0 F1 ............ BW0 BW1      F = 1, BW = 2, a hop 10
// rank 1:            F0 BW0 F1 BW1
TEST(Stalls, AWaitIsDependencyUntilTheInputIsMadeAndTransferAfter) {
  const Schedule s = Schedule::Parse("0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n");
  const Summary summary = SumUp(s, kUnit, {.hop = {.latency = 10}});
  // 1F0 runs 11-12, 1BW0 12-14; 0BW0 may start at 24, though rank 0 is free from 2.
  EXPECT_EQ(Stall(summary, 0, StallCategory::kDependency), 12);
  EXPECT_EQ(Stall(summary, 0, StallCategory::kTransfer), 10 + 1);  // 0BW1: 1BW1 ends 17, here 27
  // Before its first op everything is dependency, the message's way included.
  EXPECT_EQ(Stall(summary, 1, StallCategory::kDependency), 11 + 12);  // and the end of rank 0
  EXPECT_EQ(Stall(summary, 1, StallCategory::kTransfer), 0);
  EXPECT_EQ(summary.makespan, 29);
}

// The link takes 5 for each message, so the second queues behind the first.
TEST(Stalls, QueueingBehindEarlierMessagesIsTransfer) {
  const Schedule s = Schedule::Parse("0F0 0F1 0BW0 0BW1\n1F0 1F1 1BW0 1BW1\n");
  const Summary summary = SumUp(s, SumOfParts(1, 1, 0), {.hop = {.busy = 5}});
  // Forwards are made at 1 and 2, leave the link at 6 and 11; rank 1 is free from 7.
  EXPECT_EQ(Stall(summary, 1, StallCategory::kTransfer), 4);
}

TEST(Stalls, LaunchDelaysEveryOp) {
  const Schedule s = Schedule::Parse("0F0 0B0 0W0");
  const Summary summary = SumUp(s, kUnit, {.launch = 7});
  EXPECT_EQ(Stall(summary, 0, StallCategory::kLaunch), 21);
  EXPECT_EQ(summary.makespan, 24);
}

// One rank's stage takes 3, the others' 1: what is waited for it beyond the mean is imbalance.
TEST(Stalls, ASlowStageIsImbalance) {
  const Schedule s = Schedule::Parse("0F0 0BW0\n1F0 1BW0\n");
  const std::vector<StageCost> table = {SumOfParts(10, 5, 5), SumOfParts(30, 5, 5)};
  const Costs costs(2, 1, table, {});
  const Summary summary = SumUp(s, costs);
  // Rank 0 waits 30 for 1F0 and 10 for 1BW0. Mean F is 20: of the 30, (30 - 20)/30 is imbalance.
  EXPECT_EQ(Stall(summary, 0, StallCategory::kImbalance), 10);
  EXPECT_EQ(Stall(summary, 0, StallCategory::kDependency), 30);
  // Rank 1 waits for rank 0's F, faster than the mean, and its equal BW: no imbalance.
  EXPECT_EQ(Stall(summary, 1, StallCategory::kImbalance), 0);
}

// The same with a micro-batch that is slow everywhere: nobody is slower than the mean.
TEST(Stalls, ALongMicroBatchIsNotImbalance) {
  const Schedule s = Make("1f1b", 2, 2);
  const std::vector<StageCost> table = {SumOfParts(10, 5, 5), SumOfParts(40, 20, 20),
                                        SumOfParts(10, 5, 5), SumOfParts(40, 20, 20)};
  const Summary summary = SumUp(s, Costs(2, 2, table, {}));
  EXPECT_EQ(Stall(summary, 0, StallCategory::kImbalance), 0);
  EXPECT_EQ(Stall(summary, 1, StallCategory::kImbalance), 0);
}

TEST(Stalls, AfterEveryRanksLastOpTheRestIsOptimizer) {
  const Schedule s = Make("1f1b", 3, 4);
  const Costs::Common tail{.optimizer = 5, .barrier = 2};
  const Summary summary = SumUp(s, kUnit, tail, Tail::kBarrier);
  EXPECT_EQ(summary.makespan, 18 + 2 + 5);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Stall(summary, rank, StallCategory::kOptimizer), 7) << rank;
  }
}

// Without a barrier rank 2 ends first, steps its optimizer at once, and waits for the others.
TEST(Stalls, AnOptimizerStepOfItsOwnIsOptimizerWhileItRuns) {
  const Schedule s = Make("1f1b", 3, 4);
  const Summary summary = SumUp(s, kUnit, {.optimizer = 3}, Tail::kNoTail);
  EXPECT_EQ(summary.makespan, 18 + 3);
  // Rank 2's last op ends at 14, its optimizer at 17; one more until rank 0's last W at 18.
  EXPECT_EQ(Stall(summary, 2, StallCategory::kOptimizer), 3 + 3);
  EXPECT_EQ(Stall(summary, 2, StallCategory::kDependency), 2 + 1);
  EXPECT_EQ(Stall(summary, 0, StallCategory::kOptimizer), 3);
}

TEST(Stalls, NoOtherCategoryIsUsedYet) {
  const Summary summary = SumUp(Make("zb-v", 4, 8), kUnit, {.hop = {.latency = 1}});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(Stall(summary, rank, StallCategory::kMemory), 0);
    EXPECT_EQ(Stall(summary, rank, StallCategory::kCollective), 0);
  }
}

// Rank 0 of ZB-H1, p = 2: two micro-batches wait for B at most, and W follows its B at once.
TEST(Waiting, CountsFromStartOfFToEndOfBAndFromStartOfBToEndOfW) {
  const Summary h1 = SumUp(Make("zb-h1", 4, 8), kUnit);
  EXPECT_EQ(h1.peak_waiting_b, 4);
  EXPECT_EQ(h1.peak_waiting_w, 4);  // the last rank lets W lag by three, and runs one B more
  const Summary one = SumUp(Make("1f1b", 4, 8), kUnit);
  EXPECT_EQ(one.peak_waiting_b, 4);
  EXPECT_EQ(one.peak_waiting_w, 1);  // a BW waits for itself while it runs
}

// A W that stays behind others was ready when its B ended; its lane made it wait.
TEST(Event, ReadyIsWhenTheLastInputIsThereAndIssueWhenTheLaneIsFreeToo) {
  const Schedule s = Schedule::Parse("0F0 0F1 0B0 0B1 0W0 0W1\n1F0 1F1 1B0 1B1 1W0 1W1\n");
  const Costs costs = UniformFor(s, SumOfParts(10, 10, 10), {.hop = {.latency = 3}, .launch = 1});
  const Program program = Lower(s, costs, {.iterations = 2});
  std::vector<Event> events;
  for (const Event& e : CollectEvents(program, SimulateInOrder(program), 2)) {
    if (e.kind == NodeKind::kOp && e.rank == 1) events.push_back(e);
  }
  const auto expect = [&](size_t i, const char* op, TimeNs ready, TimeNs issue, TimeNs start) {
    EXPECT_EQ(ToString(events[i].op), op);
    EXPECT_EQ(events[i].ready, ready) << op;
    EXPECT_EQ(events[i].issue, issue) << op;
    EXPECT_EQ(events[i].start, start) << op;
  };
  // Rank 0: 0F0 ends at 11, 0F1 at 22. Every op launches for 1 and takes 10.
  expect(0, "1F0", 14, 14, 15);
  expect(1, "1F1", 25, 25, 26);
  expect(2, "1B0", 25, 36, 37);  // its F ended at 25, the lane is free at 36
  expect(3, "1B1", 36, 47, 48);
  expect(4, "1W0", 47, 58, 59);
  expect(5, "1W1", 58, 69, 70);
  // The next iteration's input comes after rank 0's optimizer step at 94: 0F0 ends at 105.
  expect(6, "1F0", 108, 108, 109);
}

// C26: where W needs more than B frees, memory rises when B starts.
// C26: a ZB-H2 rank keeps up to 2 p - 1 activations, and where B adds, its peak is above twice
// 1F1B's.
TEST(Memory, C26WhereBAddsZbH2TakesMoreThanTwice1F1B) {
  const auto peak = [](const char* name, Bytes weight_state) {
    const Schedule schedule = Make(name, 4, 16);
    const Summary summary = SumUp(schedule, SumOfParts(10, 10, 10, 100, weight_state));
    return *std::max_element(summary.peak_activation_bytes.begin(),
                             summary.peak_activation_bytes.end());
  };
  EXPECT_LT(peak("zb-h2", 60), 2 * peak("1f1b", 60));
  EXPECT_GT(peak("zb-h2", 130), 2 * peak("1f1b", 130));
}

TEST(Memory, BMayAddInsteadOfFree) {
  const Schedule s = Schedule::Parse("0F0 0B0 0W0");
  const StageCost cost{.forward = 1,
                       .input_grad = 1,
                       .weight_grad = 1,
                       .fused_backward = 2,
                       .overlapped = 3,
                       .activation = 100,
                       .weight_state = 130};
  const Costs costs = UniformFor(s, cost, {.static_bytes = 1000});
  const Program program = Lower(s, costs, {.iterations = 4});
  const Timeline timeline = SimulateInOrder(program);
  std::vector<Bytes> live;
  for (const Event& e : CollectEvents(program, timeline, 1)) {
    EXPECT_EQ(Total(e.during), e.live);
    live.push_back(Total(e.after));
  }
  EXPECT_THAT(live, ElementsAre(1100, 1130, 1000, 1000, 1000));
  EXPECT_THAT(Summarize(program, costs, timeline, 0).peak_bytes, ElementsAre(1130));
}

}  // namespace
}  // namespace spiritlevel
