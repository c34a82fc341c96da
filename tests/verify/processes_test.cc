// Ranks as processes of this machine: the same results, and one that is killed takes nobody along.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <string>

#include "tests/sanitized.h"
#include "tests/sim/random_case.h"
#include "tests/verify/traced_run.h"
#include "verify/emulated_work.h"
#include "verify/shared_heap.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

constexpr size_t kPayloads = size_t{1} << 22;

TEST(Processes, ComputeWhatAWalkInOrderDoes) {
  for (const char* const name : {"1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"}) {
    const Schedule schedule = Make(name, 4, 8);
    const Costs costs = UniformFor(schedule, kUnit);
    for (const Posting posting : {Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched}) {
      for (const Tail tail : {Tail::kBarrier, Tail::kSpeculativeValidation}) {
        SCOPED_TRACE(name);
        ExpectRunsRight(schedule, costs, {.posting = posting, .tail = tail, .iterations = 2},
                        {.transport = Transport::kProcesses, .shared_payload_bytes = kPayloads});
      }
    }
  }
}

TEST(Processes, SumGradientsOfReplicas) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  RandomCase random(3);
  const Costs costs = random.WithSums(UniformFor(schedule, kUnit), true);
  ExpectRunsRight(
      schedule, costs, {.tail = Tail::kSpeculativeValidation, .iterations = 3},
      {.transport = Transport::kProcesses, .replicas = 2, .shared_payload_bytes = kPayloads});
}

// Sends more than there is room for.
class LoudWork : public EmulatedWork {
 public:
  using EmulatedWork::EmulatedWork;
  Payload RunOp(OpCall&) override { return Payload::Allocate(size_t{1} << 20); }
};

TEST(Processes, SayWhenThereIsNoRoomForAMessage) {
  const Schedule schedule = Make("1f1b", 2, 4);
  const RunReport report =
      RunProgram(Lower(schedule, UniformFor(schedule, kUnit), {}),
                 [](const RankContext& context) { return std::make_shared<LoudWork>(context); },
                 {.transport = Transport::kProcesses, .shared_payload_bytes = size_t{1} << 20});
  ASSERT_TRUE(report.failure);
  EXPECT_THAT(report.failure->message, HasSubstr("no room for a message of 1 MiB"));
}

// Ends its process after some time, wherever that is: in a pass, asleep, in the middle of a
// hand-over, with or without the board's lock.
WorkFactory DiesOnRank(int rank, int microseconds, const Costs& costs) {
  return [=, inner = Tracing(costs)](const RankContext& context) {
    if (context.rank == rank) {
      const itimerval once{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = microseconds}};
      ::setitimer(ITIMER_REAL, &once, nullptr);
    }
    return inner(context);
  };
}

TEST(Processes, ThatDieAtAnyMomentEndTheRunAndAreNamed) {
  if (kThreadSanitized) {
    GTEST_SKIP() << "ThreadSanitizer takes a lock whose owner died for one that nobody has";
  }
  const Schedule schedule = Make("zb-h1", 4, 16);
  const Costs costs = UniformFor(schedule, kUnit);
  const Program program =
      Lower(schedule, costs, {.tail = Tail::kSpeculativeValidation, .iterations = 20});
  int died = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    RandomCase random(seed);
    const int rank = random.Below(4);
    const RunReport report =
        RunProgram(program, DiesOnRank(rank, 500 + random.Below(20'000), costs),
                   {.transport = Transport::kProcesses, .shared_payload_bytes = kPayloads});
    if (!report.failure) continue;  // it was through by then
    ++died;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + report.failure->message);
    EXPECT_EQ(report.failure->kind, FailureKind::kDied);
    EXPECT_EQ(report.failure->rank, rank);
    EXPECT_GE(report.failure->peer, 0);
    EXPECT_THAT(report.failure->message, HasSubstr("rank " + std::to_string(rank)));
  }
  EXPECT_GT(died, 0);
}

// While its work is made, as it is ready, or as the run begins: nobody waits in a node yet.
TEST(Processes, ThatAreStoppedBeforeTheRunBeginsEndIt) {
  const Schedule schedule = Make("1f1b", 2, 4);
  const Costs costs = UniformFor(schedule, kUnit);
  const Program program = Lower(schedule, costs, {});
  for (const int rank : {0, 1}) {
    const WorkFactory stops = [&](const RankContext& context) {
      if (context.rank == rank) ::raise(SIGSTOP);
      return Tracing(costs)(context);
    };
    const RunReport report = RunProgram(program, stops,
                                        {.transport = Transport::kProcesses,
                                         .stall_limit = 300'000'000,
                                         .shared_payload_bytes = kPayloads});
    ASSERT_TRUE(report.failure);
    EXPECT_EQ(report.failure->kind, FailureKind::kStalled);
    EXPECT_EQ(report.failure->rank, rank);
    EXPECT_EQ(report.failure->peer, 1 - rank);
    EXPECT_THAT(report.failure->message, testing::HasSubstr("is stopped before its first node"));
  }
}

TEST(SharedHeap, GivesOutEachByteOnceAndJoinsWhatComesBack) {
  alignas(64) static std::byte memory[1 << 14];
  for (unsigned seed = 0; seed < 20; ++seed) {
    RandomCase random(seed);
    SharedHeap heap;
    heap.Initialise(memory);
    std::vector<std::pair<std::byte*, size_t>> pieces;
    for (int step = 0; step < 500; ++step) {
      if (random.Below(2) == 0 && !pieces.empty()) {
        const auto at = pieces.begin() + random.Below(static_cast<int>(pieces.size()));
        heap.Free(at->first);
        pieces.erase(at);
        continue;
      }
      const auto size = static_cast<size_t>(random.Below(900));
      std::byte* data = heap.Allocate(size);
      if (data == nullptr) continue;
      ASSERT_GE(data, memory);
      ASSERT_LE(data + size, memory + sizeof(memory));
      for (const auto& [other, length] : pieces) {
        ASSERT_TRUE(data + size <= other || other + length <= data) << "seed " << seed;
      }
      pieces.emplace_back(data, size);
    }
    for (const auto& [data, size] : pieces) heap.Free(data);
    EXPECT_NE(heap.Allocate(sizeof(memory) - 64), nullptr) << "all of it as one piece again";
  }
}

}  // namespace
}  // namespace spiritlevel
