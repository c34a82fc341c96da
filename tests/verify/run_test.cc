// Programs of all kinds, run on real ranks.
#include "verify/run.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "sim/analysis/deadlock.h"
#include "tests/sim/random_case.h"
#include "tests/verify/traced_run.h"

namespace spiritlevel {
namespace {

const LoweringOptions kPostings[] = {
    {.posting = Posting::kIdeal},
    {.posting = Posting::kNcclFifo, .receives = Receives::kEarly},
    {.posting = Posting::kNcclFifo, .receives = Receives::kDeferred},
    {.posting = Posting::kNcclFifo, .channels = Channels::kDirected},
    {.posting = Posting::kBatched},
};
constexpr Tail kTails[] = {Tail::kNoTail, Tail::kBarrier, Tail::kStrictValidation,
                           Tail::kSpeculativeValidation};

std::string Words(const ScheduleInfo& info, const Shape& shape, const LoweringOptions& options) {
  return std::string(info.name) + " on " + std::to_string(shape.ranks) + " ranks, " +
         std::string(Name(options.posting)) + ", " + std::string(Name(options.receives)) + ", " +
         std::string(Name(options.tail));
}

std::optional<Schedule> MakeIfPossible(const ScheduleInfo& info, const Shape& shape) {
  if (info.Refusal(shape)) return std::nullopt;
  return info.Make(shape);
}

class EverySchedule : public testing::TestWithParam<int> {};

TEST_P(EverySchedule, ComputesWhatAWalkInOrderDoesUnderEveryPostingAndTail) {
  const Shape shape{.ranks = GetParam(), .micro_batches = 2 * GetParam() + 2};
  int schedules = 0;
  for (const ScheduleInfo& info : AllSchedules()) {
    const std::optional<Schedule> schedule = MakeIfPossible(info, shape);
    if (!schedule) continue;
    ++schedules;
    const Costs costs = UniformFor(*schedule, kUnit);
    for (LoweringOptions options : kPostings) {
      for (const Tail tail : kTails) {
        options.tail = tail;
        options.iterations = 2;
        SCOPED_TRACE(Words(info, shape, options));
        ASSERT_FALSE(FindDeadlock(Lower(*schedule, costs, options)));
        ExpectRunsRight(*schedule, costs, options);
      }
    }
  }
  EXPECT_GE(schedules, GetParam() == 1 ? 3 : 8);
}

INSTANTIATE_TEST_SUITE_P(Ranks, EverySchedule, testing::Values(1, 2, 4, 8));

TEST(Rejection, DropsWhatWasMadeFromTheRejectedVersionAndRunsItAgain) {
  for (const char* const name : {"zb-h1", "zb-h2", "1f1b", "zb-v"}) {
    const Schedule schedule = Make(name, 4, 8);
    const Costs costs = UniformFor(schedule, kUnit);
    for (const std::vector<int>& rejected : {std::vector<int>{0}, {1}, {0, 1}, {0, 2}}) {
      SCOPED_TRACE(name);
      ExpectRunsRight(
          schedule, costs,
          {.tail = Tail::kSpeculativeValidation, .iterations = 4, .rejected = rejected});
    }
  }
}

// Legal orders that no generator writes, costs, sums of gradients by bucket, twins and tied
// embeddings, all postings and tails.
TEST(RandomSchedule, ComputesWhatAWalkInOrderDoes) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    Costs costs = random.MakeCosts(schedule);
    if (random.Below(2) == 0) costs = random.WithSums(costs, random.Below(2) == 0);
    LoweringOptions options = kPostings[random.Below(5)];
    options.tail = kTails[random.Below(4)];
    options.iterations = 1 + random.Below(3);
    options.weight_grads =
        random.Below(2) == 0 ? WeightGrads::kByMicroBatch : WeightGrads::kByBucket;
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + Describe(schedule, costs));
    ASSERT_FALSE(FindDeadlock(Lower(schedule, costs, options)));
    ExpectRunsRight(schedule, costs, options,
                    {.replicas = costs.common().gradients.buckets.empty() ? 1 : 1 + random.Below(2),
                     .emulate_delays = random.Below(3) == 0});
  }
}

TEST(Replicas, SumTheirGradientsAndAgreeOnTheNorm) {
  for (const Tail tail : kTails) {
    const Schedule schedule = Make("zb-h1", 2, 4);
    RandomCase random(7);
    const Costs costs = random.WithBuckets(UniformFor(schedule, kUnit));
    SCOPED_TRACE(Name(tail));
    ExpectRunsRight(schedule, costs, {.tail = tail, .iterations = 3}, {.replicas = 2});
  }
}

TEST(SameWorks, AreRunAgainAndGoOnWhereTheyWere) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  const Costs costs = UniformFor(schedule, kUnit);
  const Program program = Lower(schedule, costs, {.iterations = 1});
  std::vector<std::shared_ptr<RankWork>> works(2);
  const WorkFactory once = [&](const RankContext& context) {
    auto& work = works[static_cast<size_t>(context.rank)];
    if (work == nullptr) work = Tracing(costs)(context);
    return work;
  };
  const RunReport first = RunProgram(program, once);
  const RunReport second = RunProgram(program, once);
  ASSERT_FALSE(first.failure);
  ASSERT_FALSE(second.failure);
  EXPECT_NE(ResultsOf(first), ResultsOf(second));
}

TEST(Delays, AreEmulatedAtLeastAsLongAsTheCostsSay) {
  const Schedule schedule = Make("1f1b", 2, 3);
  constexpr TimeNs kLatency = 3'000'000;
  const Costs costs = UniformFor(schedule, kUnit, {.hop = {.latency = kLatency, .busy = 7}});
  const Program program = Lower(schedule, costs, {});
  const RunReport report = RunProgram(program, Tracing(costs), {.emulate_delays = true});
  ASSERT_FALSE(report.failure);
  for (size_t m = 0; m < program.messages().size(); ++m) {
    const MessageTimes& times = report.timelines[0].messages[m];
    EXPECT_EQ(times.arrival - times.start, kLatency + 7);
    const auto reader = static_cast<size_t>(program.messages()[m].to);
    EXPECT_GE(report.timelines[0].nodes[reader].start, times.arrival);
  }
}

TEST(Cores, AreRefusedUnlessThereIsOneForEachRank) {
  const Schedule schedule = Make("1f1b", 2, 3);
  const Costs costs = UniformFor(schedule, kUnit);
  EXPECT_THROW(RunProgram(Lower(schedule, costs, {}), Tracing(costs), {.cores = {0}}), InputError);
}

}  // namespace
}  // namespace spiritlevel
