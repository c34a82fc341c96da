// Post-validation in its two forms: what it costs, what waits for what, what is dropped and done
// again. And the engines for communication lanes, which play it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "sim/analysis/check_timeline.h"
#include "sim/analysis/deadlock.h"
#include "sim/engine_lanes.h"
#include "sim/event.h"
#include "tests/sim/random_case.h"
#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Events = std::vector<Event>;

constexpr Tail kStrict = Tail::kStrictValidation;
constexpr Tail kSpeculative = Tail::kSpeculativeValidation;
constexpr unsigned kCases = 1000;

struct Played {
  Program program;
  Timeline timeline;

  Events events() const { return CollectEvents(program, timeline, program.num_iterations()); }
};

void ExpectNoFindings(const std::vector<Finding>& findings) {
  for (const Finding& f : findings) ADD_FAILURE() << f.rule << ": " << f.what;
}

// On both engines, and checked.
Played Play(const Schedule& schedule, const Costs& costs, const LoweringOptions& options) {
  Played played{.program = Lower(schedule, costs, options), .timeline = {}};
  EXPECT_FALSE(FindDeadlock(played.program));
  played.timeline = SimulateInOrder(played.program);
  EXPECT_EQ(played.timeline, SimulateByQueue(played.program));
  ExpectNoFindings(CheckTimeline(played.events(), {}));
  ExpectNoFindings(
      CheckAccounts(played.events(), AccountForStalls(played.program, costs, played.timeline)));
  return played;
}

TimeNs PeriodUnder(Tail tail, const Schedule& schedule, const Costs& costs,
                   std::vector<int> rejected = {}) {
  const Played played =
      Play(schedule, costs, {.tail = tail, .iterations = 6, .rejected = std::move(rejected)});
  return PeriodOf(played.program, played.timeline);
}

Schedule ZbH2() { return Make("zb-h2", 8, 16); }

// --- what it costs

// C31. Each rank works 16 (F + B + W) = 48; the parallelogram leans by 7. Only where nothing holds
// a rank's next forwards back do iterations interlock.
TEST(PostValidation, OnlyTheSpeculativeFormKeepsTheZeroBubble) {
  const Costs costs = UniformFor(ZbH2(), kUnit);
  EXPECT_EQ(PeriodUnder(Tail::kNoTail, ZbH2(), costs), 48);
  EXPECT_EQ(PeriodUnder(kSpeculative, ZbH2(), costs), 48);
  EXPECT_EQ(PeriodUnder(Tail::kBarrier, ZbH2(), costs), 55);
  EXPECT_EQ(PeriodUnder(kStrict, ZbH2(), costs), 55);
}

// The last rank has one forward before its first backward and starts its iteration 7 after the
// first, whose last op has then ended 7 before: a reduction of up to 1 is hidden.
TEST(PostValidation, AReductionIsHiddenAsLongAsTheShortestWarmUp) {
  for (TimeNs reduction = 0; reduction <= 5; ++reduction) {
    const Costs costs = UniformFor(ZbH2(), kUnit, {.barrier = reduction});
    EXPECT_EQ(PeriodUnder(kSpeculative, ZbH2(), costs), 48 + std::max<TimeNs>(0, reduction - 1));
    EXPECT_EQ(PeriodUnder(kStrict, ZbH2(), costs), 55 + reduction);
    EXPECT_EQ(PeriodUnder(Tail::kBarrier, ZbH2(), costs), 55 + reduction);
  }
}

TEST(PostValidation, TheReductionRunsBesideTheStep) {
  const Costs costs = UniformFor(ZbH2(), kUnit, {.optimizer = 5, .barrier = 5});
  EXPECT_EQ(PeriodUnder(Tail::kBarrier, ZbH2(), costs), 55 + 10);
  EXPECT_EQ(PeriodUnder(kStrict, ZbH2(), costs), 55 + 5);
}

TEST(PostValidation, TheReductionIsPartOfTheMakespanAndItsRestIsOptimizerTime) {
  const Schedule schedule = Make("1f1b", 2, 2);
  const Costs costs = UniformFor(schedule, kUnit, {.optimizer = 2, .barrier = 10});
  const Summary barrier = SumUp(schedule, costs);
  const Summary strict = SumUp(schedule, costs, kStrict);
  EXPECT_EQ(barrier.makespan, 9 + 10 + 2);
  EXPECT_EQ(strict.makespan, 9 + 10);
  const auto optimizer = [&](size_t rank) {
    return strict.stalls.stalls[rank][static_cast<size_t>(StallCategory::kOptimizer)];
  };
  EXPECT_EQ(optimizer(0), 10);
  EXPECT_EQ(optimizer(1), 10 + 2);  // it has stepped before rank 0's last op ends
}

// --- engines

TEST(LaneEngines, EqualTheSimpleOnesUnderIdealPosting) {
  for (unsigned seed = 0; seed < kCases; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs costs = random.MakeCosts(schedule);
    const Tail tail = random.Below(2) == 0 ? Tail::kNoTail : Tail::kBarrier;
    SCOPED_TRACE(testing::Message() << "seed " << seed << " " << Describe(schedule, costs));
    const Program program = Lower(schedule, costs, {.tail = tail, .iterations = 3});
    const Timeline simple = SimulateInOrder(program);
    ASSERT_EQ(simple, SimulateLanesInOrder(program));
    ASSERT_EQ(simple, SimulateLanesByQueue(program));
  }
}

TEST(LaneEngines, AgreeUnderBothFormsAndEveryPostingAndTheCheckerPasses) {
  for (unsigned seed = 0; seed < kCases; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs costs = random.MakeCosts(schedule);
    for (const Tail tail : {kStrict, kSpeculative}) {
      for (const LoweringOptions& posting :
           {LoweringOptions{.posting = Posting::kIdeal},
            LoweringOptions{.posting = Posting::kNcclFifo},
            LoweringOptions{.posting = Posting::kNcclFifo, .receives = Receives::kDeferred}}) {
        LoweringOptions options = posting;
        options.tail = tail;
        options.iterations = 4;
        SCOPED_TRACE(testing::Message()
                     << "seed " << seed << " " << Name(tail) << " " << Name(posting.posting) << " "
                     << Name(posting.receives) << " " << Describe(schedule, costs));
        Play(schedule, costs, options);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// The first iteration has nothing to wait for; a strict one with a free step is a barrier; and a
// speculative one lies between no tail and that.
TEST(LaneEngines, BothFormsOnRandomSchedulesCostWhatTheyWaitFor) {
  for (unsigned seed = 0; seed < kCases; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs some = random.MakeCosts(schedule);
    std::vector<StageCost> table;
    for (int stage = 0; stage < some.num_stages(); ++stage) table.push_back(some.of(stage, 0));
    Costs::Common common = some.common();
    common.optimizer = 0;
    const Costs costs(some.num_stages(), some.num_micro_batches(), table, common);
    SCOPED_TRACE(testing::Message() << "seed " << seed << " " << Describe(schedule, costs));
    const Summary none = SumUp(schedule, costs, Tail::kNoTail);
    const Summary speculative = SumUp(schedule, costs, kSpeculative);
    const Summary strict = SumUp(schedule, costs, kStrict);
    const Summary barrier = SumUp(schedule, costs, Tail::kBarrier);
    ASSERT_EQ(strict.period, barrier.period);
    ASSERT_LE(none.period, speculative.period);
    ASSERT_LE(speculative.period, strict.period);
    ASSERT_EQ(strict.max_rank_span, none.max_rank_span);
    ASSERT_EQ(speculative.max_rank_span, none.max_rank_span);
    ASSERT_EQ(strict.makespan, barrier.makespan);
    ASSERT_EQ(strict.peak_bytes, none.peak_bytes);
  }
}

// --- which parameters are read

std::vector<std::string> ProvisionalOps(const Events& events, int rank, int iteration) {
  std::vector<std::string> ops;
  for (const Event& e : events) {
    const bool op = e.kind == NodeKind::kOp || e.kind == NodeKind::kDroppedOp;
    if (!op || e.rank != rank || e.iteration != iteration || !e.provisional) continue;
    EXPECT_EQ(e.parameter_version, iteration);
    ops.push_back(ToString(e.op));
  }
  return ops;
}

TEST(PostValidation, WarmUpForwardsReadProvisionalParametersAndTheirMessagesSaySo) {
  const Schedule schedule = Make("zb-h1", 3, 4);
  const Costs costs = UniformFor(schedule, kUnit);
  const Events events = Play(schedule, costs, {.tail = kSpeculative, .iterations = 2}).events();
  EXPECT_THAT(ProvisionalOps(events, 0, 1), ElementsAre("0F0", "0F1", "0F2"));
  EXPECT_THAT(ProvisionalOps(events, 1, 1), ElementsAre("1F0", "1F1"));
  EXPECT_THAT(ProvisionalOps(events, 2, 1), ElementsAre("2F0"));
  int messages = 0;
  for (const Event& e : events) {
    EXPECT_FALSE(e.iteration == 0 && e.provisional) << "what a run begins with";
    if (e.kind != NodeKind::kReceive || e.iteration != 1 || e.rank != 1) continue;
    EXPECT_EQ(e.provisional, e.op.pass == Pass::kF && e.op.micro_batch < 3) << ToString(e.op);
    ++messages;
  }
  EXPECT_EQ(messages, 8);
  for (const Event& e : Play(schedule, costs, {.tail = kStrict, .iterations = 2}).events()) {
    EXPECT_FALSE(e.provisional);
  }
}

// --- rejection

std::string NameOf(const Event& e) {
  switch (e.kind) {
    case NodeKind::kDroppedOp:
      return "dropped " + ToString(e.op) + (e.provisional ? "?" : "");
    case NodeKind::kValidation:
      return "validation";
    case NodeKind::kRollback:
      return "rollback";
    case NodeKind::kOptimizer:
      return "step";
    default:
      return ToString(e.op) + (e.provisional ? "?" : "");
  }
}

bool IsLaneNode(const Event& e) {
  return e.kind != NodeKind::kSend && e.kind != NodeKind::kReceive &&
         e.kind != NodeKind::kReduction;
}

std::vector<std::string> LaneOf(const Events& events, int rank, int iteration) {
  std::vector<std::string> lane;
  for (const Event& e : events) {
    if (e.rank == rank && e.iteration == iteration && IsLaneNode(e)) lane.push_back(NameOf(e));
  }
  return lane;
}

Schedule ThreeRanks() { return Make("zb-h1", 3, 3); }

Costs ThreeRankCosts() {
  return UniformFor(
      ThreeRanks(), SumOfParts(10, 10, 10, 100, 40),
      {.hop = {.latency = 2, .busy = 1}, .optimizer = 5, .barrier = 4, .static_bytes = 1000});
}

constexpr int kReplayed = 2;

Played ThreeRanksRejected() {
  return Play(ThreeRanks(), ThreeRankCosts(),
              {.tail = kSpeculative, .iterations = 4, .rejected = {kReplayed - 1}});
}

// The version that iteration 1 leaves is rejected. By then the first micro-batch of iteration 2 has
// gone through all three ranks.
TEST(Rejection, WhatIsTwoRanksAwayIsDroppedAndRunAgain) {
  const Played played = ThreeRanksRejected();
  const Events events = played.events();
  EXPECT_THAT(
      LaneOf(events, 0, kReplayed),
      ElementsAre("dropped 0F0?", "dropped 0F1?", "dropped 0F2?", "validation", "rollback", "0F0",
                  "0F1", "0F2", "validation", "0B0", "0W0", "0B1", "0W1", "0B2", "0W2", "step"));
  EXPECT_THAT(LaneOf(events, 1, kReplayed),
              ElementsAre("dropped 1F0?", "dropped 1F1?", "validation", "rollback", "1F0", "1F1",
                          "validation", "1B0", "1F2", "1B1", "1W0", "1B2", "1W1", "1W2", "step"));
  EXPECT_THAT(LaneOf(events, 2, kReplayed),
              ElementsAre("dropped 2F0?", "validation", "rollback", "2F0", "validation", "2B0",
                          "2F1", "2B1", "2F2", "2B2", "2W0", "2W1", "2W2", "step"));
  EXPECT_THAT(LaneOf(events, 0, kReplayed + 1), Contains("0F2?"));
}

TEST(Rejection, MemoryReturnsToWhatItWasAndTheRollbackTakesAStepsTime) {
  const Events events = ThreeRanksRejected().events();
  int rollbacks = 0;
  for (const Event& e : events) {
    if (e.kind != NodeKind::kRollback) continue;
    ++rollbacks;
    EXPECT_EQ(Total(e.before), 1000) << e.rank;
    EXPECT_EQ(e.live, 1000) << e.rank;
    EXPECT_EQ(e.end - e.start, 5);
    EXPECT_EQ(e.parameter_version, kReplayed);
    // Rank 0 had three activations, rank 1 two, rank 2 one.
    const Event& validation = *(&e - 1);
    EXPECT_EQ(validation.kind, NodeKind::kValidation);
    EXPECT_EQ(validation.live, 1000 + 100 * (3 - e.rank));
  }
  EXPECT_EQ(rollbacks, 3);
}

// Rank 0 sends what rank 1 will not run before it learns of the rejection.
TEST(Rejection, MessagesOnTheirWayAreTakenBeforeTheRollback) {
  const Events events = ThreeRanksRejected().events();
  int dropped = 0;
  TimeNs last_arrival = 0;
  for (const Event& e : events) {
    if (e.kind != NodeKind::kReceive || !e.dropped || e.rank != 1) continue;
    ++dropped;
    last_arrival = std::max(last_arrival, e.end);
  }
  EXPECT_EQ(dropped, 3);
  for (const Event& e : events) {
    if (e.kind != NodeKind::kRollback || e.rank != 1) continue;
    EXPECT_GE(e.start, last_arrival);
  }
}

// Rank 0 of ZB-H2 has 15 forwards before its first backward; it drops them and starts anew, so an
// iteration takes 15 more than 48, and the step that is done again.
TEST(Rejection, CostsTheFirstRanksWarmUpAndTheStep) {
  for (const TimeNs step : {0, 3}) {
    const Costs costs = UniformFor(ZbH2(), kUnit, {.optimizer = step});
    EXPECT_EQ(PeriodUnder(kSpeculative, ZbH2(), costs), 48 + step);
    EXPECT_EQ(PeriodUnder(kSpeculative, ZbH2(), costs, {3}), 48 + step + 15 + step);
  }
}

TEST(Rejection, TheExpectedPeriodIsTheMeanOfBoth) {
  EXPECT_EQ(ExpectedPeriod(48000, 63000, 0), 48000);
  EXPECT_EQ(ExpectedPeriod(48000, 63000, 1), 63000);
  EXPECT_EQ(ExpectedPeriod(48000, 63000, 0.01), 48150);
  EXPECT_EQ(ExpectedPeriod(10, 11, 0.5), 11);  // halves go up
  EXPECT_EQ(ExpectedPeriod(10, 11, 0.49), 10);
}

// One after the other, the first iteration's included, on any schedule.
TEST(Rejection, OnRandomSchedulesEnginesAgreeAndTheCheckerPasses) {
  for (unsigned seed = 0; seed < kCases; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs costs = random.MakeCosts(schedule);
    std::vector<int> rejected;
    for (int i = 0; i < 4; ++i) {
      if (random.Below(2) == 0) rejected.push_back(i);
    }
    SCOPED_TRACE(testing::Message()
                 << "seed " << seed << " rejected " << testing::PrintToString(rejected) << " "
                 << Describe(schedule, costs));
    Play(schedule, costs, {.tail = kSpeculative, .iterations = 5, .rejected = rejected});
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Rejection, IsRefusedWhereNothingIsSpeculativeOrNothingFollows) {
  const Schedule schedule = ThreeRanks();
  const Costs costs = ThreeRankCosts();
  const LoweringOptions refused[] = {
      {.tail = kStrict, .iterations = 4, .rejected = {1}},
      {.tail = Tail::kBarrier, .iterations = 4, .rejected = {1}},
      {.posting = Posting::kNcclFifo, .tail = kSpeculative, .iterations = 4, .rejected = {1}},
      {.tail = kSpeculative, .iterations = 4, .rejected = {3}},
      {.tail = kSpeculative, .iterations = 4, .rejected = {-1}}};
  for (const LoweringOptions& options : refused) {
    EXPECT_THROW(Lower(schedule, costs, options), InputError);
  }
}

// --- planted faults

struct Fault {
  std::string name;
  Tail tail = kSpeculative;
  std::vector<std::string> rules;  // one of them
  std::string words;
  std::function<void(Events&)> plant;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

Event& Find(Events& events, NodeKind kind, int rank, int iteration) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Event& e) {
    return e.kind == kind && e.rank == rank && e.iteration == iteration;
  });
  EXPECT_NE(found, events.end());
  return *found;
}

// Puts the validation behind the op that it stands before, as if the op had not waited.
void MoveBehindNextOp(Events& events, int rank, int iteration) {
  Event& place = Find(events, NodeKind::kValidation, rank, iteration);
  Event moved = place;
  const auto at = events.erase(events.begin() + (&place - events.data()));
  const auto op = std::find_if(at, events.end(), IsLaneNode);
  moved.start = moved.end = op->end;
  moved.before = moved.during = moved.after = op->after;
  moved.live = Total(moved.after);
  events.insert(op + 1, moved);
}

void Erase(Events& events, const std::function<bool(const Event&)>& is) {
  ASSERT_GT(std::erase_if(events, is), 0u);
}

class TailFaults : public testing::TestWithParam<Fault> {};

TEST_P(TailFaults, AreFound) {
  const Fault& fault = GetParam();
  Events events = Play(ThreeRanks(), ThreeRankCosts(),
                       {.tail = fault.tail,
                        .iterations = 4,
                        .rejected = fault.tail == kSpeculative ? std::vector<int>{kReplayed - 1}
                                                               : std::vector<int>{}})
                      .events();
  fault.plant(events);
  const std::vector<Finding> findings = CheckTimeline(events, {});
  std::string words;
  for (const Finding& f : findings) {
    EXPECT_THAT(fault.rules, Contains(f.rule)) << f.what;
    words += f.rule + ": " + f.what + "\n";
  }
  EXPECT_THAT(words, HasSubstr(fault.words));
}

INSTANTIATE_TEST_SUITE_P(
    Checker, TailFaults,
    testing::Values(
        Fault{"ValidationBeforeTheReductionsEnd",
              kSpeculative,
              {"validation"},
              "before the reduction that it waits for ends",
              [](Events& e) {
                for (int rank = 0; rank < 3; ++rank) {
                  Find(e, NodeKind::kReduction, rank, 0).end += 1000;
                }
              }},
        Fault{"StrictValidationBeforeTheReductionsEnd",
              kStrict,
              {"validation", "overlap"},
              "before the reduction that it waits for ends",
              [](Events& e) {
                Event& validation = Find(e, NodeKind::kValidation, 1, 1);
                validation.start = validation.end = validation.start - 1;
              }},
        Fault{"AnOpOfTheNextIterationBeforeAStrictValidation",
              kStrict,
              {"validation"},
              "0F0 runs before the validation of its parameters, and is not marked provisional",
              [](Events& e) { MoveBehindNextOp(e, 0, 1); }},
        Fault{"ABackwardBeforeASpeculativeValidation",
              kSpeculative,
              {"validation"},
              "rank 2: 2B0 of iteration 1 reads provisional parameters and is no forward",
              [](Events& e) {
                Event& validation = Find(e, NodeKind::kValidation, 2, 1);
                const auto next =
                    std::find_if(e.begin() + (&validation - e.data()) + 1, e.end(), IsLaneNode);
                next->provisional = true;
              }},
        Fault{"AForwardThatDoesNotSayItIsProvisional",
              kSpeculative,
              {"validation"},
              "is not marked provisional",
              [](Events& e) {
                for (Event& event : e) {
                  if (event.kind == NodeKind::kOp && event.iteration == 1) {
                    event.provisional = false;
                  }
                }
              }},
        Fault{"NoValidation",
              kStrict,
              {"validation"},
              "rank 1, iteration 2: 0 validations",
              [](Events& e) {
                Erase(e, [](const Event& event) {
                  return event.kind == NodeKind::kValidation && event.rank == 1 &&
                         event.iteration == 2;
                });
              }},
        Fault{"AReductionBeforeTheLastOp",
              kStrict,
              {"reduction"},
              "before the last op has ended",
              [](Events& e) {
                for (int rank = 0; rank < 3; ++rank) {
                  Find(e, NodeKind::kReduction, rank, 1).start -= 5;
                }
              }},
        Fault{"ARankThatTakesNoPartInTheReduction",
              kStrict,
              {"reduction"},
              "rank 2 takes no part in the reduction of iteration 1",
              [](Events& e) {
                Erase(e, [](const Event& event) {
                  return event.kind == NodeKind::kReduction && event.rank == 2 &&
                         event.iteration == 1;
                });
              }},
        Fault{"ARankThatDoesNotRollBack",
              kSpeculative,
              {"rejection", "validation", "ledger"},
              "there is no rollback",
              [](Events& e) {
                Erase(e, [](const Event& event) {
                  return event.kind == NodeKind::kRollback && event.rank == 1;
                });
              }},
        Fault{"DroppedActivationsThatStay",
              kSpeculative,
              {"rejection", "ledger"},
              "leaves memory of what is dropped",
              [](Events& e) {
                Event& rollback = Find(e, NodeKind::kRollback, 1, kReplayed);
                rollback.before = rollback.during = rollback.after = (&rollback - 1)->before;
                (&rollback - 1)->after = (&rollback - 1)->before;
                rollback.live = Total(rollback.before);
              }},
        Fault{"ADroppedOpWhoseInputNeverRan",
              kSpeculative,
              {"rejection"},
              "2F0 of iteration 2, to be dropped, needs 1F0, which did not run",
              [](Events& e) {
                Erase(e, [](const Event& event) {
                  return event.kind == NodeKind::kDroppedOp && ToString(event.op) == "1F0";
                });
                for (Event& event : e) {  // what it left out of the ledger is not the point here
                  event.before = event.during = event.after = {};
                  event.live = 0;
                }
              }},
        Fault{"ADroppedMessageWithoutReceive",
              kSpeculative,
              {"rejection"},
              "has no receive",
              [](Events& e) {
                Erase(e, [](const Event& event) {
                  return event.dropped && event.kind == NodeKind::kReceive && event.rank == 1 &&
                         event.op.micro_batch == 2;
                });
              }},
        Fault{"ADroppedOpThatStartsBeforeItsInput",
              kSpeculative,
              {"rejection", "overlap"},
              "before 0F0 is there",
              [](Events& e) {
                Event& op = Find(e, NodeKind::kDroppedOp, 1, kReplayed);
                op.start -= 100;
              }}),
    [](const auto& parameters) { return parameters.param.name; });

}  // namespace
}  // namespace spiritlevel
