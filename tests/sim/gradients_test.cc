// Sums of gradients behind the last W's: by bucket over replicas, and between ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/analysis/check_schedule.h"
#include "sim/analysis/check_timeline.h"
#include "sim/event.h"
#include "tests/sim/played_events.h"
#include "tests/sim/random_case.h"
#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Tail kTails[] = {Tail::kNoTail, Tail::kBarrier, Tail::kStrictValidation,
                           Tail::kSpeculativeValidation};

Costs WithSums(const Schedule& schedule, const StageCost& cost, const GradientSums& sums,
               Costs::Common common = {}) {
  common.gradients = sums;
  return UniformFor(schedule, cost, common);
}

GradientSums Buckets(int stages, const std::vector<GradientBucket>& each) {
  return {.buckets = std::vector<std::vector<GradientBucket>>(static_cast<size_t>(stages), each)};
}

std::vector<Event> EventsOf(const Schedule& schedule, const Costs& costs,
                            const LoweringOptions& options) {
  const Program program = Lower(schedule, costs, options);
  const Timeline timeline = SimulateInOrder(program);
  EXPECT_EQ(timeline, SimulateByQueue(program));
  return CollectEvents(program, timeline, options.iterations);
}

// "start-end" of all events of a kind, in the order of the rank's lanes.
std::vector<std::string> TimesOf(const std::vector<Event>& events, NodeKind kind) {
  std::vector<std::string> times;
  for (const Event& e : events) {
    if (e.kind == kind) times.push_back(std::to_string(e.start) + "-" + std::to_string(e.end));
  }
  return times;
}

const std::vector<GradientBucket> kThree = {{.share = 1, .sum = {.bytes = 10, .duration = 5}},
                                            {.share = 1, .sum = {.bytes = 10, .duration = 5}},
                                            {.share = 2, .sum = {.bytes = 20, .duration = 5}}};

// F and B 10, W 12: the last W is from 52 to 64.
const Schedule& TwoMicroBatches() {
  static const Schedule kSchedule = Schedule::Parse("0F0 0F1 0B0 0B1 0W0 0W1\n");
  return kSchedule;
}

TEST(Buckets, AreSummedAsTheLastWFillsThem) {
  const Costs costs = WithSums(TwoMicroBatches(), SumOfParts(10, 10, 12), Buckets(1, kThree));
  const auto events = EventsOf(TwoMicroBatches(), costs, {.tail = Tail::kNoTail});
  EXPECT_THAT(TimesOf(events, NodeKind::kPart), ElementsAre("52-55", "55-58", "58-64"));
  EXPECT_THAT(TimesOf(events, NodeKind::kBucketSum), ElementsAre("55-60", "60-65", "65-70"));
  EXPECT_THAT(TimesOf(events, NodeKind::kOptimizer), ElementsAre("70-70"));
}

TEST(Buckets, AreFullSoonerWhereWsAreGroupedByBucket) {
  const Costs costs = WithSums(TwoMicroBatches(), SumOfParts(10, 10, 12), Buckets(1, kThree));
  const auto events = EventsOf(TwoMicroBatches(), costs,
                               {.tail = Tail::kNoTail, .weight_grads = WeightGrads::kByBucket});
  EXPECT_THAT(TimesOf(events, NodeKind::kPart),
              ElementsAre("40-43", "43-46", "46-49", "49-52", "52-58", "58-64"));
  EXPECT_THAT(TimesOf(events, NodeKind::kBucketSum), ElementsAre("46-51", "52-57", "64-69"));
  EXPECT_THAT(TimesOf(events, NodeKind::kOptimizer), ElementsAre("69-69"));
  EXPECT_EQ(Words(CheckTimeline(events, std::nullopt)), "");
}

// C31: the sum of delayed W's cannot start before the last W. Under 1F1B the last ranks are done
// early and hide their sums behind the first; under ZB-H1 W's end everywhere at the very end.
TEST(Buckets, C31OfDelayedWsAreSummedBehindTheLastW) {
  const StageCost cost = SumOfParts(10, 10, 10);
  const GradientSums sums = Buckets(4, {{.share = 1, .sum = {.duration = 30}}});
  for (const char* name : {"1f1b", "zb-h1"}) {
    const Schedule schedule = Make(name, 4, 8);
    const auto events = EventsOf(schedule, WithSums(schedule, cost, sums), {.tail = Tail::kNoTail});
    std::map<int, TimeNs> last_op;
    for (const Event& e : events) {
      if (RunsOps(e.kind)) last_op[e.rank] = std::max(last_op[e.rank], e.end);
    }
    for (const Event& e : events) {
      if (e.kind == NodeKind::kBucketSum) {
        EXPECT_EQ(e.start, last_op[e.rank]) << name;
      }
    }
    EXPECT_EQ(last_op[3], 270) << name;
    EXPECT_EQ(last_op[0], std::string_view(name) == "1f1b" ? 330 : 270) << name;
  }
}

TEST(Buckets, OfAFusedBackwardAreFilledAsItRuns) {
  const Schedule schedule = Schedule::Parse("0F0 0BW0\n");
  const Costs costs = WithSums(schedule, SumOfParts(10, 12, 12), Buckets(1, kThree));
  const auto events = EventsOf(schedule, costs, {.tail = Tail::kNoTail});
  EXPECT_THAT(TimesOf(events, NodeKind::kBucketSum), ElementsAre("16-21", "22-27", "34-39"));
}

TEST(Buckets, HoldBackTheBarrier) {
  const Schedule schedule = Make("zb-h1", 4, 8);
  const GradientSums sums =
      Buckets(4, {{.share = 1, .sum = {.duration = 7}}, {.share = 1, .sum = {.duration = 7}}});
  const StageCost cost = SumOfParts(10, 10, 10);
  const TimeNs alone = SumUp(schedule, UniformFor(schedule, cost, {.barrier = 3})).makespan;
  const Summary summed = SumUp(schedule, WithSums(schedule, cost, sums, {.barrier = 3}));
  // Rank 0 ends last: half of its last W before the end the first bucket is full, for 7 of 5.
  EXPECT_EQ(summed.makespan, alone + 2 + 7);
  EXPECT_EQ(summed.max_rank_span,
            SumUp(schedule, UniformFor(schedule, cost, {.barrier = 3})).max_rank_span);
}

TEST(Parts, SumToTheirOpInTimeAndMemory) {
  for (int total = 0; total < 40; ++total) {
    const Costs costs = WithSums(TwoMicroBatches(), SumOfParts(3, 4, total, 11, total + 3),
                                 Buckets(1, {{.share = 3}, {.share = 1}, {.share = 7}}));
    const Program program =
        Lower(TwoMicroBatches(), costs, {.weight_grads = WeightGrads::kByBucket});
    std::map<int, NodeCost> sums;  // by micro-batch
    for (const Node& node : program.nodes()) {
      if (node.kind != NodeKind::kPart) continue;
      sums[node.op.micro_batch].duration += program.costs()[node.cost].duration;
      sums[node.op.micro_batch].shrink += program.costs()[node.cost].shrink;
    }
    ASSERT_EQ(sums.size(), 2u);
    for (const auto& [micro_batch, sum] : sums) {
      EXPECT_EQ(sum.duration, total);
      EXPECT_EQ(sum.shrink, total + 3);
    }
  }
}

TEST(TwinSums, OfDualPipeAreOfTheTwoRanksThatHoldTheStage) {
  const Schedule schedule = Make("dualpipe", 4, 8);
  GradientSums sums;
  sums.twins.assign(4, {.bytes = 100, .duration = 9});
  const StageCost cost = SumOfParts(10, 10, 10);
  const Costs costs = WithSums(schedule, cost, sums);
  const auto events = EventsOf(schedule, costs, {.tail = Tail::kBarrier});
  std::map<int, std::set<int>> ranks;  // by stage
  for (const Event& e : events) {
    if (e.kind == NodeKind::kTwinSum) ranks[e.op.stage].insert(e.rank);
  }
  const std::set<int> outer = {0, 3}, inner = {1, 2};
  EXPECT_EQ(ranks, (std::map<int, std::set<int>>{{0, outer}, {1, inner}, {2, inner}, {3, outer}}));
  EXPECT_EQ(Words(CheckTimeline(events, std::nullopt)), "");
  const TimeNs alone = SumUp(schedule, UniformFor(schedule, cost)).makespan;
  EXPECT_GE(SumUp(schedule, costs).makespan, alone + 9);
  EXPECT_LE(SumUp(schedule, costs).makespan, alone + 2 * 9);
}

TEST(TwinSums, AreNoneWhereEveryStageHasOneRank) {
  const Schedule schedule = Make("1f1b", 4, 8);
  GradientSums sums;
  sums.twins.assign(4, {.bytes = 100, .duration = 9});
  const Costs costs = WithSums(schedule, kUnit, sums);
  EXPECT_FALSE(HasGradientSums(schedule, costs));
  EXPECT_EQ(SumUp(schedule, costs).makespan, SumUp(schedule, kUnit).makespan);
}

// C24, C31: a V placement has both ends on one rank, so there the embedding needs no exchange.
TEST(TiedSums, JoinTheFirstRankAndTheLastInALineAndNobodyInAV) {
  GradientSums sums;
  sums.tied = {{.bytes = 100, .duration = 9}};
  const Schedule line = Make("zb-h1", 4, 8);
  const auto events =
      EventsOf(line, WithSums(line, kUnit, sums), {.tail = Tail::kBarrier, .iterations = 2});
  std::multiset<int> ranks;
  for (const Event& e : events) {
    if (e.kind == NodeKind::kTiedSum) ranks.insert(e.rank);
  }
  EXPECT_THAT(ranks, ElementsAre(0, 0, 3, 3));
  EXPECT_EQ(SumUp(line, WithSums(line, kUnit, sums)).makespan, SumUp(line, kUnit).makespan + 9);
  const Schedule v = Make("zb-v", 4, 8);
  EXPECT_FALSE(HasGradientSums(v, WithSums(v, kUnit, sums)));
  const Schedule both = Make("dualpipe", 4, 8);
  EXPECT_FALSE(HasGradientSums(both, WithSums(both, kUnit, sums)));
}

// The tied sum needs both ranks, so without a barrier the first waits for the last all the same.
TEST(TiedSums, RestoreABubbleThatPostValidationHadRemoved) {
  const Schedule schedule = Make("zb-h2", 8, 16);
  GradientSums sums;
  sums.tied = {{.bytes = 1, .duration = 0}};
  EXPECT_EQ(SumUp(schedule, kUnit, {}, Tail::kNoTail).period, 48);
  EXPECT_EQ(SumUp(schedule, WithSums(schedule, kUnit, sums), Tail::kNoTail).period, 55);
}

// ---- Against a second way to find the same numbers.

// The end of each sum of the first iteration, from the times of the ops of the same run without any
// sums: what a rank's lanes come to by hand.
class SumsByHand {
 public:
  SumsByHand(const Schedule& schedule, const Costs& costs) : schedule_(schedule), costs_(costs) {
    Costs::Common common = costs.common();
    common.gradients = {};
    std::vector<StageCost> table;
    for (int s = 0; s < costs.num_stages(); ++s) {
      for (int i = 0; i < costs.num_micro_batches(); ++i) table.push_back(costs.of(s, i));
    }
    const Costs without(costs.num_stages(), costs.num_micro_batches(), std::move(table), common);
    const Program program = Lower(schedule, without, {.tail = Tail::kNoTail});
    const Timeline timeline = SimulateInOrder(program);
    ForEachEvent(program, timeline, 1, [&](const Event& e) {
      if (!RunsOps(e.kind)) return;
      if (e.op.pass == Pass::kW || e.op.pass == Pass::kBW) {
        last_[{e.rank, e.op.stage}] = {e.start, e.end, e.kind == NodeKind::kPair};
      }
      if (e.kind == NodeKind::kPair && e.second.pass == Pass::kBW) {
        last_[{e.rank, e.second.stage}] = {e.start, e.end, true};
      }
      end_of_ops_ = std::max(end_of_ops_, e.end);
    });
  }

  TimeNs EndOfAll() const {
    TimeNs end = end_of_ops_;
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) end = std::max(end, EndOf(rank));
    return end;
  }

 private:
  struct LastOp {
    TimeNs start = 0;
    TimeNs end = 0;
    bool pair = false;
  };

  TimeNs EndOf(int rank) const {
    std::vector<std::pair<TimeNs, TimeNs>> full;  // when, and how long its sum takes
    for (const int stage : schedule_.stages_of(rank)) {
      const LastOp& last = last_.at({rank, stage});
      const auto& buckets = costs_.common().gradients.buckets[static_cast<size_t>(stage)];
      int64_t whole = 0, so_far = 0;
      for (const GradientBucket& b : buckets) whole += b.share;
      for (const GradientBucket& b : buckets) {
        so_far += b.share;
        const TimeNs at = last.pair
                              ? last.end
                              : last.start + DivideHalfUp((last.end - last.start) * so_far, whole);
        full.emplace_back(at, b.sum.duration);
      }
    }
    std::stable_sort(full.begin(), full.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    TimeNs lane = 0;
    for (const auto& [at, duration] : full) lane = std::max(lane, at) + duration;
    return lane;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  std::map<std::pair<int, int>, LastOp> last_;
  TimeNs end_of_ops_ = 0;
};

TEST(Buckets, EndWhenALaneReckonedByHandDoesOnRandomSchedulesAndCosts) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs costs = random.WithBuckets(random.MakeCosts(schedule));
    SCOPED_TRACE(testing::Message() << "seed " << seed << " " << Describe(schedule, costs));
    const Program program = Lower(schedule, costs, {.tail = Tail::kBarrier});
    TimeNs barrier = 0;
    ForEachEvent(program, SimulateInOrder(program), 1, [&](const Event& e) {
      if (e.kind == NodeKind::kCollective) barrier = std::max(barrier, e.start);
    });
    EXPECT_EQ(barrier, SumsByHand(schedule, costs).EndOfAll());
  }
}

TEST(GradientSumsOnRandomSchedules, EnginesAgreeAndCheckersAreContentUnderEveryTailAndPosting) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs costs = random.WithSums(random.MakeCosts(schedule), random.Below(3) > 0);
    LoweringOptions options{.posting = random.Below(3) == 0 ? Posting::kBatched : Posting::kIdeal,
                            .tail = kTails[random.Below(4)],
                            .iterations = 4};
    options.weight_grads = random.Below(2) == 0 ? WeightGrads::kByBucket : options.weight_grads;
    const bool speculative = options.tail == Tail::kSpeculativeValidation;
    if (speculative && options.posting == Posting::kIdeal && random.Below(2) == 0) {
      options.rejected = {1};
    }
    SCOPED_TRACE(testing::Message() << "seed " << seed << " " << Name(options.tail) << " "
                                    << Name(options.posting) << " " << Describe(schedule, costs));
    const Program program = Lower(schedule, costs, options);
    const Timeline timeline = SimulateInOrder(program);
    ASSERT_EQ(timeline, SimulateByQueue(program));
    const auto events = CollectEvents(program, timeline, options.iterations);
    ASSERT_EQ(Words(CheckTimeline(events, std::nullopt)), "");
    const StallReport report = AccountForStalls(program, costs, timeline);
    ASSERT_EQ(Words(CheckAccounts(events, report)), "");
  }
}

// ---- Planted faults.

struct Fault {
  std::string name;
  std::string rule;
  std::string words;
  void (*plant)(std::vector<Event>&);
};

Event& FindSum(std::vector<Event>& events, NodeKind kind, int rank, int stage, int bucket) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Event& e) {
    return e.kind == kind && e.rank == rank && e.op.stage == stage && e.gradient_bucket == bucket;
  });
  EXPECT_NE(found, events.end());
  return *found;
}

const Fault kFaults[] = {
    {"ASumBeforeItsLastW", "bucket", "before its gradients are there",
     [](std::vector<Event>& events) { FindSum(events, NodeKind::kBucketSum, 1, 1, 0).start = 1; }},
    {"ASumThatIsMissing", "bucket", "gradient bucket 1 of stage 2 of iteration 0 is not summed",
     [](std::vector<Event>& events) {
       Remove(events, FindSum(events, NodeKind::kBucketSum, 2, 2, 1));
     }},
    {"ASumFormedTwice", "bucket", "is formed twice",
     [](std::vector<Event>& events) {
       events.push_back(FindSum(events, NodeKind::kBucketSum, 2, 2, 1));
     }},
    {"ASumBetweenRanksBeforeThatOverReplicas", "bucket", "summed over the replicas",
     [](std::vector<Event>& events) {
       for (const int rank : {1, 2}) --FindSum(events, NodeKind::kTwinSum, rank, 1, kNone).start;
     }},
    {"ASumBehindTheBarrier", "bucket", "after the collective has started",
     [](std::vector<Event>& events) {
       for (const int rank : {0, 3}) {
         for (const int stage : {0, 3}) {
           FindSum(events, NodeKind::kTwinSum, rank, stage, kNone).end += 100;
         }
       }
     }},
    {"ATwinWithoutTheOther", "collective_order", "has 1 members on 1 ranks",
     [](std::vector<Event>& events) {
       Remove(events, FindSum(events, NodeKind::kTwinSum, 3, 0, kNone));
     }},
    {"TwinsAtDifferentTimes", "collective_order", "is not at the same time as on rank 0",
     [](std::vector<Event>& events) {
       Event& sum = FindSum(events, NodeKind::kTwinSum, 3, 0, kNone);
       ++sum.start;
       ++sum.end;
     }},
    {"TwoOrdersOnTwoRanks", "collective_order", "in different orders",
     [](std::vector<Event>& events) {
       std::swap(FindSum(events, NodeKind::kTwinSum, 3, 0, kNone),
                 FindSum(events, NodeKind::kTwinSum, 3, 3, kNone));
     }},
    {"AMissingPart", "part", "follows part 0 of 3",
     [](std::vector<Event>& events) {
       const auto part = std::find_if(events.begin(), events.end(), [](const Event& e) {
         return e.kind == NodeKind::kPart && e.part.index == 1;
       });
       events.erase(part);
     }},
    {"AMissingLastPart", "part", "parts 2 to 2 are missing",
     [](std::vector<Event>& events) {
       const auto part = std::find_if(events.begin(), events.end(), [](const Event& e) {
         return e.kind == NodeKind::kPart && e.part.index == 2;
       });
       events.erase(part);
     }},
};

class GradientFaults : public testing::TestWithParam<Fault> {};

TEST_P(GradientFaults, NamesTheRightRule) {
  const Schedule schedule = Make("dualpipe", 4, 8);
  GradientSums sums = Buckets(4, kThree);
  sums.twins.assign(4, {.bytes = 100, .duration = 9});
  auto events =
      EventsOf(schedule, WithSums(schedule, SumOfParts(10, 10, 12), sums, {.barrier = 5}), {});
  ASSERT_EQ(Words(CheckTimeline(events, std::nullopt)), "");
  GetParam().plant(events);
  ForgetMemory(events);
  const auto findings = CheckTimeline(events, std::nullopt);
  EXPECT_THAT(Rules(findings), testing::Contains(GetParam().rule)) << Words(findings);
  EXPECT_THAT(Words(findings), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(Planted, GradientFaults, testing::ValuesIn(kFaults),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace spiritlevel
