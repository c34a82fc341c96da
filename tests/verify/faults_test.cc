// Faults at random places: each ends the run, on all ranks, under its right name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sim/analysis/deadlock.h"
#include "tests/sim/random_case.h"
#include "tests/verify/traced_run.h"
#include "verify/clock.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

// Far longer than a pass of these works, which compute a few hashes.
constexpr TimeNs kStallLimit = 200'000'000;

// Says when it is told that the run is over, and what it then still keeps.
class AbandonedWork : public TracingWork {
 public:
  AbandonedWork(const RankContext& context, const std::vector<int>& buckets,
                std::atomic<int>& abandoned)
      : TracingWork(context, buckets), abandoned_(abandoned) {}
  void Abandon() noexcept override {
    TracingWork::Abandon();
    abandoned_.fetch_add(1);
  }

 private:
  std::atomic<int>& abandoned_;
};

struct Case {
  Schedule schedule;
  Costs costs;
  LoweringOptions options;
  Program program;
};

Case MakeCase(RandomCase& random) {
  while (true) {
    const Schedule schedule = random.MakeSchedule();
    if (schedule.num_ranks() < 2) continue;
    Costs costs = random.MakeCosts(schedule);
    if (random.Below(3) == 0) costs = random.WithSums(costs, random.Below(2) == 0);
    const LoweringOptions options{.posting = static_cast<Posting>(random.Below(3)),
                                  .tail = static_cast<Tail>(random.Below(4)),
                                  .iterations = 2};
    Program program = Lower(schedule, costs, options);
    if (program.messages().empty()) continue;
    return {schedule, costs, options, std::move(program)};
  }
}

bool IsOfMessage(FaultKind kind) { return kind <= FaultKind::kWrongMessage; }

Fault PlaceFault(const Program& program, FaultKind kind, RandomCase& random) {
  Fault fault{.kind = kind, .delay = 1'000'000};
  if (IsOfMessage(kind)) {
    fault.node = program.messages()[random.Below(static_cast<int>(program.messages().size()))].from;
  } else {
    fault.node = random.Below(program.num_lane_nodes());
  }
  return fault;
}

FailureKind FailureOf(FaultKind fault) {
  switch (fault) {
    case FaultKind::kLoseMessage:
      return FailureKind::kLostMessage;
    case FaultKind::kDoubleMessage:
    case FaultKind::kWrongMessage:
      return FailureKind::kWrongMessage;
    case FaultKind::kKillRank:
      return FailureKind::kDied;
    case FaultKind::kStallRank:
      return FailureKind::kStalled;
    default:
      return FailureKind::kWork;
  }
}

void ExpectNamed(const Case& c, const Fault& fault, const RunReport& report) {
  ASSERT_TRUE(report.failure) << "the run went on as if nothing had happened";
  const Failure& failure = *report.failure;
  EXPECT_EQ(Name(failure.kind), Name(FailureOf(fault.kind))) << failure.message;
  const int rank = c.program.rank_of(fault.node);
  if (IsOfMessage(fault.kind)) {
    EXPECT_EQ(failure.peer, rank) << "who sent it\n" << failure.message;
    EXPECT_NE(failure.rank, rank);
  } else {
    EXPECT_EQ(failure.rank, rank) << failure.message;
    EXPECT_EQ(failure.node, fault.node) << failure.message;
    EXPECT_NE(failure.peer, rank);
  }
  EXPECT_GE(failure.peer, 0);
  EXPECT_NE(failure.op, "");
  EXPECT_THAT(failure.message, HasSubstr(failure.op));
  EXPECT_THAT(failure.message, HasSubstr("rank " + std::to_string(failure.rank)));
  EXPECT_THAT(failure.message, HasSubstr("rank " + std::to_string(failure.peer)));
}

void InjectOne(unsigned seed, FaultKind kind, Transport transport) {
  RandomCase random(seed);
  const Case c = MakeCase(random);
  const Fault fault = PlaceFault(c.program, kind, random);
  SCOPED_TRACE(std::string(Name(kind)) + ", seed " + std::to_string(seed) + ", " +
               Describe(c.schedule, c.costs));
  std::atomic<int> abandoned{0};
  std::vector<Failure> told;
  const WorkFactory work = [&](const RankContext& context) {
    return std::make_shared<AbandonedWork>(context, BucketsOf(c.costs), abandoned);
  };
  const RunReport report =
      RunProgram(c.program, work,
                 {.transport = transport,
                  .stall_limit = kStallLimit,
                  .shared_payload_bytes = size_t{1} << 22,
                  .faults = {fault},
                  .on_failure = [&](const Failure& failure) { told.push_back(failure); }});
  if (kind == FaultKind::kDelayMessage) {
    ASSERT_FALSE(report.failure) << report.failure->message;
    EXPECT_EQ(ResultsOf(report), ReferenceWalk(c.schedule, c.costs, c.options).Run());
    ExpectLegal(c.program, c.costs, report.timelines[0]);
    return;
  }
  ExpectNamed(c, fault, report);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].message, report.failure->message);
  if (transport != Transport::kThreads) return;
  const int killed = kind == FaultKind::kKillRank ? 1 : 0;
  EXPECT_EQ(abandoned.load(), c.program.num_ranks() - killed) << "nobody is left behind";
}

// Twice as many, where there is time.
unsigned Cases(unsigned usual) {
  return std::getenv("SPIRITLEVEL_LONG_TESTS") == nullptr ? usual : 2 * usual;
}

class EveryFault : public testing::TestWithParam<FaultKind> {};

TEST_P(EveryFault, EndsARunOfThreadsUnderItsName) {
  // A stall costs its limit.
  const unsigned cases = Cases(GetParam() == FaultKind::kStallRank ? 12 : 80);
  for (unsigned seed = 0; seed < cases; ++seed) {
    InjectOne(1000 + seed, GetParam(), Transport::kThreads);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryFault, EndsARunOfProcessesUnderItsName) {
  // A process that is stopped is given a second before it is killed.
  const unsigned cases = Cases(GetParam() == FaultKind::kStallRank ? 2 : 12);
  for (unsigned seed = 0; seed < cases; ++seed) {
    InjectOne(2000 + seed, GetParam(), Transport::kProcesses);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryFault,
                         testing::Values(FaultKind::kLoseMessage, FaultKind::kDelayMessage,
                                         FaultKind::kDoubleMessage, FaultKind::kWrongMessage,
                                         FaultKind::kKillRank, FaultKind::kStallRank,
                                         FaultKind::kFailWork),
                         [](const auto& test) {
                           std::string name(Name(test.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A rank that goes no further would do so for ever. A minute is far more than the default limit,
// so a machine that is busy has no part in it.
TEST(DefaultStallLimit, EndsARunThatWouldHangAndNamesRankOpAndPeer) {
  constexpr TimeNs kMinute = 60'000'000'000;
  const Schedule schedule = Make("zb-h1", 3, 4);
  const Costs costs = UniformFor(schedule, kUnit);
  const Program program = Lower(schedule, costs, {.tail = Tail::kBarrier, .iterations = 2});
  const NodeId node = program.rank_begin(1) + 3;
  for (const Transport transport : {Transport::kThreads, Transport::kProcesses}) {
    const TimeNs begin = Now();
    const RunReport report =
        RunProgram(program, Tracing(costs),
                   {.transport = transport,
                    .shared_payload_bytes = size_t{1} << 22,
                    .faults = {{.kind = FaultKind::kStallRank, .node = node}}});
    EXPECT_LT(Now() - begin, kMinute);
    ASSERT_TRUE(report.failure);
    const Failure& failure = *report.failure;
    EXPECT_EQ(Name(failure.kind), Name(FailureKind::kStalled)) << failure.message;
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.node, node);
    EXPECT_NE(failure.peer, 1);
    EXPECT_EQ(failure.op, ToString(program.nodes()[static_cast<size_t>(node)].op));
    EXPECT_THAT(failure.message, HasSubstr("rank 1"));
    EXPECT_THAT(failure.message, HasSubstr(failure.op));
    EXPECT_THAT(failure.message, HasSubstr("rank " + std::to_string(failure.peer)));
  }
}

// What the graph of waits says before anything runs is what ranks come to.
TEST(NaiveReceives, DeadlockExactlyWhereTheGraphSaysSo) {
  int deadlocks = 0;
  int runs = 0;
  for (const Posting posting : {Posting::kNcclFifo, Posting::kBatched}) {
    for (const ScheduleInfo& info : AllSchedules()) {
      const Shape shape{.ranks = 4, .micro_batches = 8};
      if (info.Refusal(shape)) continue;
      const Schedule schedule = info.Make(shape);
      const Costs costs = UniformFor(schedule, kUnit);
      const Program program =
          Lower(schedule, costs, {.posting = posting, .receives = Receives::kNaive});
      SCOPED_TRACE(std::string(info.name) + " " + std::string(Name(posting)));
      const RunReport report = RunProgram(program, Tracing(costs));
      ++runs;
      if (!FindDeadlock(program)) {
        EXPECT_FALSE(report.failure) << report.failure->message;
        continue;
      }
      ++deadlocks;
      ASSERT_TRUE(report.failure);
      EXPECT_EQ(report.failure->kind, FailureKind::kDeadlock) << report.failure->message;
      EXPECT_THAT(report.failure->message, HasSubstr("no rank can go on"));
      EXPECT_THAT(report.failure->message, HasSubstr(report.failure->op));
      EXPECT_GE(report.failure->peer, 0);
    }
  }
  EXPECT_GT(deadlocks, 0);
  EXPECT_LT(deadlocks, runs);
}

class Judge : public TracingWork {
 public:
  using TracingWork::TracingWork;
  bool Validate(const ValidationCall& call) override {
    TracingWork::Validate(call);
    return !(call.judges && call.iteration == 2);
  }
};

TEST(Verdict, OtherThanTheProgramsEndsTheRunOnAllRanks) {
  const Schedule schedule = Make("zb-h2", 4, 8);
  const Costs costs = UniformFor(schedule, kUnit);
  const Program program =
      Lower(schedule, costs, {.tail = Tail::kSpeculativeValidation, .iterations = 4});
  const RunReport report = RunProgram(program, [&](const RankContext& context) {
    return std::make_shared<Judge>(context, BucketsOf(costs));
  });
  ASSERT_TRUE(report.failure);
  EXPECT_EQ(report.failure->kind, FailureKind::kVerdict);
  EXPECT_THAT(report.failure->message, HasSubstr("rejected"));
  EXPECT_THAT(report.failure->op, HasSubstr("validation"));
}

TEST(Work, ThatCannotBeMadeEndsTheRun) {
  const Schedule schedule = Make("1f1b", 2, 4);
  const Costs costs = UniformFor(schedule, kUnit);
  for (const Transport transport : {Transport::kThreads, Transport::kProcesses}) {
    const RunReport report =
        RunProgram(Lower(schedule, costs, {}),
                   [&](const RankContext& context) {
                     if (context.rank == 1) throw std::runtime_error("no memory for the model");
                     return Tracing(costs)(context);
                   },
                   {.transport = transport, .shared_payload_bytes = size_t{1} << 20});
    ASSERT_TRUE(report.failure);
    EXPECT_EQ(report.failure->kind, FailureKind::kWork);
    EXPECT_EQ(report.failure->rank, 1);
    EXPECT_THAT(report.failure->message, HasSubstr("no memory for the model"));
  }
}

}  // namespace
}  // namespace spiritlevel
