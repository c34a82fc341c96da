#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/analysis/check_timeline.h"
#include "tests/sim/played_events.h"

namespace spiritlevel {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Events = std::vector<Event>;

bool IsTail(const Event& e) {
  return e.kind == NodeKind::kOptimizer || e.kind == NodeKind::kCollective;
}

bool IsLaneNode(const Event& e) {
  return e.kind != NodeKind::kSend && e.kind != NodeKind::kReceive;
}

void EraseKind(Events& events, NodeKind kind, int iteration) {
  std::erase_if(events, [&](const Event& e) { return e.kind == kind && e.iteration == iteration; });
}

void EraseTails(Events& events, int iteration) {
  std::erase_if(events, [&](const Event& e) { return IsTail(e) && e.iteration == iteration; });
}

// Behind an event of the same rank, at an instant at which the rank is idle.
void InsertBehind(Events& events, const Event& place, Event added) {
  added.rank = place.rank;
  added.before = added.during = added.after = place.after;
  added.live = Total(place.after);
  events.insert(events.begin() + (&place - events.data()) + 1, added);
}

// --- planted faults in two iterations

struct Fault {
  std::string name;
  std::vector<std::string> rules;
  std::string words;
  std::function<void(Events&)> plant;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class CheckTailsFaults : public testing::TestWithParam<Fault> {};

TEST_P(CheckTailsFaults, NamesTheRightRules) {
  const Fault& fault = GetParam();
  Events events = Play(kZb, 2);
  ForgetMemory(events);
  ASSERT_THAT(Judge(events), IsEmpty());
  fault.plant(events);
  const std::vector<Finding> findings = Judge(events);
  EXPECT_THAT(Rules(findings), ElementsAreArray(fault.rules)) << Words(findings);
  EXPECT_THAT(Words(findings), HasSubstr(fault.words));
  EXPECT_LE(findings.size(), 12u) << "few enough to read\n" << Words(findings);
}

constexpr NodeKind kStep = NodeKind::kOptimizer;
constexpr NodeKind kBarrier = NodeKind::kCollective;

void SetVersions(Events& events, int iteration, int32_t version) {
  for (Event& e : events) {
    if (e.iteration == iteration && e.kind != kStep) e.parameter_version = version;
  }
}

const std::vector<Fault> kFaults = {
    {"OneRankNeverSteps",
     {"optimizer_count"},
     "rank 1 has no optimizer step in iteration 1",
     [](Events& e) { Remove(e, FindTail(e, kStep, 1, 1)); }},
    {"OneRankOmitsAStepAndGoesOn",
     {"optimizer_count", "version"},
     "rank 1: 1F0 of iteration 1 reads parameter version 1 after the collective of iteration 0, "
     "which read version 0",
     [](Events& e) { Remove(e, FindTail(e, kStep, 1, 0)); }},
    {"NobodyEverSteps",
     {"optimizer_count", "version"},
     "rank 0 has no optimizer step in iteration 0",
     [](Events& e) { std::erase_if(e, [](const Event& x) { return x.kind == kStep; }); }},
    {"NobodyStepsAndVersionsStandStill",
     {"optimizer_count"},
     "rank 1 has no optimizer step in iteration 0",
     [](Events& e) {
       std::erase_if(e, [](const Event& x) { return x.kind == kStep; });
       SetVersions(e, 1, 0);
     }},
    {"OneRankStepsTwice",
     {"optimizer_count"},
     "rank 0 has 2 optimizer steps in iteration 1",
     [](Events& e) {
       Event again = FindTail(e, kStep, 0, 1);
       again.start = again.end;
       ++again.parameter_version;
       InsertBehind(e, FindTail(e, kStep, 0, 1), again);
     }},
    {"AStepOfAnIterationThatNeverRan",
     {"optimizer_count"},
     "rank 0 has an optimizer step in iteration 2, but no op in it",
     [](Events& e) {
       Event again = FindTail(e, kStep, 0, 1);
       again.start = again.end;
       ++again.parameter_version;
       ++again.iteration;
       InsertBehind(e, FindTail(e, kStep, 0, 1), again);
     }},
    {"StepBeforeTheLastOp",
     {"collective", "early_optimizer", "version"},
     "rank 1: the optimizer step of iteration 0 starts at",
     [](Events& e) {
       // Before the last W on the lane, in a gap of no length: nothing overlaps.
       Event step = FindTail(e, kStep, 1);
       Remove(e, FindTail(e, kStep, 1));
       Event& last = FindNode(e, "1W2");
       step.start = step.end = last.start;
       e.insert(e.begin() + (&last - e.data()), step);
     }},
    {"TheNextIterationStartsBeforeTheStepThatMakesItsVersion",
     {"late_optimizer", "version"},
     "rank 0: the optimizer step of iteration 0 starts at",
     [](Events& e) {
       // Its first F takes the place of the step in time, so that nothing overlaps.
       Event& step = FindTail(e, kStep, 0);
       Event& op = *(&step + 1);
       op.start = op.issue = step.start;
       op.end = op.start + 5;
       step.start = step.issue = op.end;
       step.end = step.start + 9;
       std::swap(step, op);
     }},
    {"TheNextIterationStartsBeforeTheStepWithTheOldVersion",
     {"late_optimizer"},
     "after 0F0 of iteration 1 has run",
     [](Events& e) {
       // All of it: each rank's step goes behind the whole of iteration 1, before the next step.
       for (const int rank : {0, 1}) {
         Event step = FindTail(e, kStep, rank);
         Remove(e, FindTail(e, kStep, rank));
         FindTail(e, kBarrier, rank, 1).end = FindTail(e, kStep, rank, 1).start;
         step.start = step.end = FindTail(e, kStep, rank, 1).start;
         InsertBehind(e, FindTail(e, kBarrier, rank, 1), step);
       }
       SetVersions(e, 1, 0);
     }},
    {"AStepSkipsVersions",
     {"version"},
     "rank 0: the optimizer step of iteration 0 leaves parameter version 7 after the collective of "
     "iteration 0, which read version 0",
     [](Events& e) { FindTail(e, kStep, 0).parameter_version = 7; }},
    {"AllStepsSkipVersionsAndAllFollow",
     {"version"},
     "leaves parameter version 7",
     [](Events& e) {
       for (const int rank : {0, 1}) {
         FindTail(e, kStep, rank).parameter_version = 7;
         FindTail(e, kStep, rank, 1).parameter_version = 8;
       }
       SetVersions(e, 1, 7);
     }},
    {"TheNextIterationReadsTheOldVersion",
     {"version"},
     "rank 1: 1F0 of iteration 1 reads parameter version 0 after the optimizer step of iteration "
     "0, which left version 1",
     [](Events& e) { SetVersions(e, 1, 0); }},
    {"AMessageOfAnotherVersion",
     {"version"},
     "rank 1: the receive of 0F1 of iteration 0 names parameter version 1, but 0F1 reads 0",
     [](Events& e) { FindEnd(e, NodeKind::kReceive, "0F1").parameter_version = 1; }},
    {"OneRankSkipsTheBarrier",
     {"collective"},
     "iteration 0: collective 0, after the last op of rank 0, is not joined by rank 1",
     [](Events& e) { Remove(e, FindTail(e, kBarrier, 1)); }},
    {"OneIterationIsWithoutABarrier",
     {"collective"},
     "iteration 0 has 1 collectives after its last ops, iteration 1 has 0",
     [](Events& e) { EraseKind(e, kBarrier, 1); }},
    {"ABarrierWithoutAnId",
     {"collective"},
     "iteration 1: rank 1 has a collective without an id",
     [](Events& e) { FindTail(e, kBarrier, 1, 1).collective = kNone; }},
    {"TwoRanksInDifferentBarriers",
     {"collective"},
     "iteration 1: collective 1, after the last op of rank 0, is not joined by rank 1",
     [](Events& e) { FindTail(e, kBarrier, 1, 1).collective = 5; }},
    {"ARankJoinsABarrierTwice",
     {"collective"},
     "iteration 1: collective 1 has rank 0 twice",
     [](Events& e) {
       Event again = FindTail(e, kBarrier, 0, 1);
       again.start = again.end;
       InsertBehind(e, FindTail(e, kBarrier, 0, 1), again);
     }},
    {"ABarrierOfAnIterationThatNeverRan",
     {"collective"},
     "iteration 2: collective 9 has rank 0, which runs no op in this iteration",
     [](Events& e) {
       Event barrier = FindTail(e, kStep, 0, 1);
       barrier.kind = kBarrier;
       barrier.start = barrier.end;
       barrier.collective = 9;
       barrier.iteration = 2;
       InsertBehind(e, FindTail(e, kStep, 0, 1), barrier);
     }},
    {"OneRankJoinsBeforeItsLastOp",
     {"collective"},
     "ranks 0 and 1 join it after and before their last ops",
     [](Events& e) {
       // The last W comes between the barrier and the step, and both ends agree.
       Event& barrier = FindTail(e, kBarrier, 1);
       Event& op = FindNode(e, "1W2");
       op.start = op.end = barrier.end;
       std::swap(barrier, op);
     }},
    {"OneRankJoinsAfterItsStep",
     {"collective", "version"},
     "ranks 0 and 1 join it before and after their optimizer steps",
     [](Events& e) {
       Event& barrier = FindTail(e, kBarrier, 1);
       Event& step = FindTail(e, kStep, 1);
       step.start = step.end = barrier.start;
       std::swap(barrier, step);
       FindTail(e, kBarrier, 0).end = FindTail(e, kBarrier, 1).end;
     }},
    {"TwoBarriersInTwoOrders",
     {"collective"},
     "ranks 0 and 1 join it in different places among those after their last ops",
     [](Events& e) {
       for (const int iteration : {0, 1}) {
         for (const int rank : {0, 1}) {
           Event& barrier = FindTail(e, kBarrier, rank, iteration);
           Event second = barrier;
           second.start = second.end;
           second.collective = 10 + iteration;
           if (rank == 1 && iteration == 1) std::swap(barrier.collective, second.collective);
           InsertBehind(e, barrier, second);
         }
       }
     }},
};

std::string FaultName(const testing::TestParamInfo<Fault>& fault) { return fault.param.name; }

INSTANTIATE_TEST_SUITE_P(Planted, CheckTailsFaults, testing::ValuesIn(kFaults), FaultName);

// --- sweeps

// Each rank's barrier is one of three, and the second is behind the step: all forms of a tail.
Events PlayLongTails(std::string_view orders, int iterations) {
  Events events = Play(orders, iterations);
  for (size_t i = 0; i < events.size(); ++i) {
    const bool step = events[i].kind == kStep;
    if (!IsTail(events[i]) || (!step && events[i].collective >= iterations)) continue;
    Event added = events[i];
    added.kind = kBarrier;
    added.collective = added.iteration + (step ? 2 : 1) * iterations;
    added.start = added.issue = added.end;
    InsertBehind(events, events[i], added);
    ++i;
  }
  return events;
}

struct World {
  std::string name;
  Events events;
};

std::vector<World> Worlds() {
  std::vector<World> worlds;
  for (const std::string_view orders : kWorlds) {
    for (const int iterations : {1, 2, 3}) {
      const std::string name =
          std::to_string(iterations) + " iterations of\n" + std::string(orders);
      worlds.push_back({name, Play(orders, iterations)});
      worlds.push_back({"long tails, " + name, PlayLongTails(orders, iterations)});
    }
  }
  return worlds;
}

const char* RuleOf(const Event& tail) {
  return tail.kind == kStep ? "optimizer_count" : "collective";
}

TEST(CheckTailsSweep, EveryWorldIsPassedBeforeItIsDamaged) {
  for (const World& world : Worlds()) {
    EXPECT_THAT(Judge(world.events), IsEmpty()) << world.name << Words(Judge(world.events));
  }
}

TEST(CheckTailsSweep, AnyStepOrCollectiveThatIsLeftOutIsMissed) {
  for (const World& world : Worlds()) {
    for (size_t i = 0; i < world.events.size(); ++i) {
      if (!IsTail(world.events[i])) continue;
      for (const LastTail last_tail : {LastTail::kRequired, LastTail::kMayBeCut}) {
        Events events = world.events;
        events.erase(events.begin() + static_cast<int64_t>(i));
        EXPECT_THAT(Rules(CheckTimeline(events, std::nullopt, last_tail)),
                    Contains(RuleOf(world.events[i])))
            << world.name << i;
      }
    }
  }
}

TEST(CheckTailsSweep, AnyStepOrCollectiveThatComesTwiceIsFound) {
  for (const World& world : Worlds()) {
    for (size_t i = 0; i < world.events.size(); ++i) {
      if (!IsTail(world.events[i])) continue;
      Events events = world.events;
      Event again = events[i];
      again.start = again.issue = again.end;
      InsertBehind(events, events[i], again);
      EXPECT_THAT(Rules(Judge(events)), Contains(RuleOf(again))) << world.name << i;
    }
  }
}

TEST(CheckTailsSweep, AnyStepOrCollectiveOfAnotherIterationIsFound) {
  for (const World& world : Worlds()) {
    for (size_t i = 0; i < world.events.size(); ++i) {
      if (!IsTail(world.events[i])) continue;
      for (const int by : {-1, 1}) {
        if (world.events[i].iteration + by < 0) continue;
        Events events = world.events;
        events[i].iteration += by;
        EXPECT_THAT(Rules(Judge(events)), Contains(RuleOf(events[i]))) << world.name << i;
      }
    }
  }
}

// Times and versions are made to fit, so that nothing but the order is wrong.
TEST(CheckTailsSweep, AStepAnywhereElseInItsLaneIsFound) {
  for (const std::string_view orders : kWorlds) {
    Events honest = Play(orders, 2);
    std::erase_if(honest, [](const Event& e) { return !IsLaneNode(e); });
    ASSERT_THAT(Rules(Judge(honest)), ElementsAre("message")) << "they are left out";
    for (const Event& step : honest) {
      if (step.kind != kStep) continue;
      const auto at = &step - honest.data();
      for (size_t to = 0; to < honest.size(); ++to) {
        if (honest[to].rank != step.rank || honest[to].kind == kStep) continue;
        Events events = honest;
        const Event moved = events[static_cast<size_t>(at)];
        events.erase(events.begin() + at);
        events.insert(events.begin() + static_cast<int64_t>(to), moved);
        ForgetMemory(events);
        int32_t version = 0;
        for (Event& e : events) {
          if (&e == events.data() || e.rank != (&e - 1)->rank) version = 0;
          e.start = e.end = e.issue = 0;
          e.parameter_version = e.kind == kStep ? ++version : version;
        }
        EXPECT_THAT(Rules(Judge(events)),
                    Contains(AnyOf("early_optimizer", "late_optimizer", "collective")))
            << orders << at << " to " << to;
      }
    }
  }
}

TEST(CheckTailsSweep, AnyVersionOffByOneIsFound) {
  for (const World& world : Worlds()) {
    for (size_t i = 0; i < world.events.size(); ++i) {
      for (const int by : {-1, 1}) {
        Events events = world.events;
        events[i].parameter_version += by;
        EXPECT_THAT(Rules(Judge(events)), ElementsAre("version")) << world.name << i;
      }
    }
  }
}

TEST(CheckTailsSweep, AllVersionsOfARankOrAnIterationOffByOneAreFound) {
  for (const std::string_view orders : kWorlds) {
    const Events honest = Play(orders, 2);
    for (const Event& chosen : honest) {
      Events events = honest;
      for (Event& e : events) e.parameter_version += e.rank == chosen.rank ? 1 : 0;
      EXPECT_THAT(Rules(Judge(events)), ElementsAre("version")) << orders;
      events = honest;
      for (Event& e : events) e.parameter_version += e.iteration == chosen.iteration ? 1 : 0;
      EXPECT_THAT(Rules(Judge(events)), ElementsAre("version")) << orders;
    }
  }
}

// --- what is allowed

TEST(CheckTails, ARangeMayStartAtAnyVersion) {
  Events events = Play(kV, 2);
  for (Event& e : events) e.parameter_version += 41;
  EXPECT_THAT(Judge(events), IsEmpty());
}

TEST(CheckTails, CollectivesMayBeNumberedAnewInEachIteration) {
  Events events = PlayLongTails(kV, 3);
  for (Event& e : events) {
    if (e.kind == kBarrier) e.collective /= 3;
  }
  EXPECT_THAT(Judge(events), IsEmpty()) << Words(Judge(events));
}

TEST(CheckTails, RanksMayStepOnTheirOwn) {
  for (const std::string_view orders : kWorlds) {
    Events events = Play(orders, 3);
    std::erase_if(events, [](const Event& e) { return e.kind == kBarrier; });
    EXPECT_THAT(Judge(events), IsEmpty()) << Words(Judge(events));
  }
}

TEST(CheckTails, OnlyTheLastTailMayBeCutAndOnlyIfTheCallerSaysSo) {
  const auto rules = [](const Events& events) {
    return Rules(CheckTimeline(events, std::nullopt, LastTail::kMayBeCut));
  };
  for (const int iterations : {1, 3}) {
    const Events honest = Play(kZb, iterations);
    EXPECT_THAT(rules(honest), IsEmpty()) << "it need not be cut";
    Events events = honest;
    EraseKind(events, kStep, iterations - 1);
    EXPECT_THAT(rules(events), IsEmpty()) << "between barrier and step";
    EXPECT_THAT(Rules(Judge(events)), ElementsAre("optimizer_count"));
    EraseTails(events, iterations - 1);
    EXPECT_THAT(rules(events), IsEmpty()) << "before the barrier";
    events = honest;
    Remove(events, FindTail(events, kStep, 0, iterations - 1));
    EXPECT_THAT(rules(events), ElementsAre("optimizer_count")) << "on one rank only";
  }
  Events events = Play(kZb, 3);
  SetVersions(events, 1, 0);
  SetVersions(events, 2, 0);
  for (int iteration = 0; iteration < 3; ++iteration) EraseTails(events, iteration);
  EXPECT_THAT(rules(events), ElementsAre("optimizer_count")) << "three iterations in a row";
}

// Ranks 1 and 2 are both idle at 30 ns, between their last F and their first BW.
Events PlayWithACollectiveOfTwo() {
  Events events = Play(kFourRanks);
  for (const std::string_view op : {"1F1", "2F1"}) {
    Event collective = {.kind = kBarrier};
    collective.collective = 50;
    collective.issue = collective.start = collective.end = 30;
    InsertBehind(events, FindNode(events, op), collective);
  }
  return events;
}

TEST(CheckTails, SomeRanksMayJoinACollectiveBetweenOpsButNotOneAlone) {
  Events events = PlayWithACollectiveOfTwo();
  EXPECT_THAT(Judge(events), IsEmpty()) << Words(Judge(events));
  ASSERT_EQ(FindTail(events, kBarrier, 2).collective, 50);
  Remove(events, FindTail(events, kBarrier, 2));
  EXPECT_THAT(Rules(Judge(events)), ElementsAre("collective"));
  EXPECT_THAT(Words(Judge(events)), HasSubstr("collective 50 has no member but rank 1"));
}

TEST(CheckTails, MembersOfACollectiveBetweenOpsEndTogether) {
  Events events = PlayWithACollectiveOfTwo();
  ++FindTail(events, kBarrier, 1).end;
  EXPECT_THAT(Words(Judge(events)),
              HasSubstr("collective 50 ends on rank 1 at 31 ns and on rank 2 at 30 ns"));
}

TEST(CheckTails, ASingleRankNeedsNobodyElse) {
  const Events events = Play("0F0 0BW0 0F1 0BW1\n", 2);
  EXPECT_THAT(Judge(events), IsEmpty()) << Words(Judge(events));
}

}  // namespace
}  // namespace spiritlevel
