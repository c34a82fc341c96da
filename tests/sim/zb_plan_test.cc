// The plan that the zero-bubble heuristics write on: times as the evaluator has them, and memory
// that never leaves a rank stuck.
#include "sim/search/zb_plan.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/sim/zb_random.h"

namespace spiritlevel {
namespace {

// Any op that the plan allows, by chance.
Orders PutByChance(RandomZbProblem& random, ZbPlan& plan) {
  const Placement& placement = random.problem().placement;
  const auto is_done = [&] {
    for (int stage = 0; stage < placement.num_stages(); ++stage) {
      if (!plan.is_done(stage, Pass::kB)) return false;
    }
    return true;
  };
  while (!is_done()) {
    std::vector<std::pair<int, Pass>> possible;
    for (int stage = 0; stage < placement.num_stages(); ++stage) {
      if (plan.IsReady(stage, Pass::kF) && plan.CanFit(stage))
        possible.emplace_back(stage, Pass::kF);
      if (plan.IsReady(stage, Pass::kB)) possible.emplace_back(stage, Pass::kB);
    }
    if (possible.empty()) return {};
    const auto [stage, pass] =
        possible[static_cast<size_t>(random.Below(static_cast<int>(possible.size())))];
    const int rank = placement.rank_of(stage);
    if (random.Below(3) == 0 && plan.has_waiting_w(rank)) plan.PutW(rank);
    plan.MakeRoom(stage, pass);
    plan.Put(stage, pass);
  }
  for (int rank = 0; rank < placement.ranks; ++rank) plan.PutAllW(rank);
  return plan.TakeOrders();
}

TEST(ZbPlan, NeverGetsStuckWhateverIsPutInWhicheverOrder) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    RandomZbProblem random(seed);
    random.SetLimits(1 + static_cast<int>(seed % 16));
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ZbPlan plan(random.problem());
    const Orders orders = PutByChance(random, plan);
    ASSERT_FALSE(orders.empty()) << "nothing more fits";
    ASSERT_NO_FATAL_FAILURE(ExpectGood(orders, random.problem()));
    ASSERT_FALSE(HasFailure());
  }
}

// Where messages do not queue for links, the plan's times are the evaluator's.
TEST(ZbPlan, TimesAreThoseOfTheEvaluator) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    RandomZbProblem random(seed);
    if (random.costs().common().hop.busy > 0) continue;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ZbPlan plan(random.problem());
    const Orders orders = PutByChance(random, plan);
    Evaluator evaluator(random.costs());
    const Evaluator::Result& result = evaluator.Evaluate(Schedule(orders), Tail::kNoTail);
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const size_t r = static_cast<size_t>(rank);
      TimeNs work = 0;
      for (const Op& op : orders[r]) {
        work += random.costs().common().launch + random.costs().duration(op);
      }
      const TimeNs begin = result.first_start[r] - random.costs().common().launch;
      EXPECT_EQ(plan.end(rank), result.last_end[r]);
      EXPECT_EQ(plan.bubble(rank), result.last_end[r] - begin - work);
      ASSERT_FALSE(HasFailure());
    }
  }
}

// A V on one rank, of two micro-batches. The lower stage keeps 5 and 1, the upper 1 and 5. With
// room for 7 both lower F may be put: the upper F of the first fits beside them (6 + 1), that of
// the second once the first is done (1 + 5).
TEST(ZbPlan, AnFMayBePutThatWaitsForTheMicroBatchesBeforeIt) {
  const StageCost small = SumOfParts(1, 1, 1, 1, 0);
  const StageCost large = SumOfParts(1, 1, 1, 5, 0);
  const Costs costs(2, 2, {large, small, small, large}, {});
  for (const Bytes limit : {6, 7}) {
    ZbPlan plan(Problem({PlacementForm::kV, 1, 2}, costs, limit));
    plan.Put(0, Pass::kF);
    EXPECT_EQ(plan.CanFit(0), limit == 7);
  }
}

// One micro-batch after the other, each pass as soon as it can.
Orders OneByOne(const Placement& placement, int micro_batches) {
  Orders orders;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    std::vector<Op>& ops = orders.emplace_back();
    const auto put = [&](int chunk, Pass pass, int micro_batch) {
      const int stage = placement.stage_of(rank, chunk);
      ops.push_back({micro_batch, static_cast<uint16_t>(stage), pass, false});
    };
    for (int i = 0; i < micro_batches; ++i) {
      for (int chunk = 0; chunk < placement.stages_per_rank; ++chunk) put(chunk, Pass::kF, i);
      for (int chunk = placement.stages_per_rank - 1; chunk >= 0; --chunk) {
        put(chunk, Pass::kB, i);
        put(chunk, Pass::kW, i);
      }
    }
  }
  return orders;
}

TEST(ZbPlan, LeastRoomIsThePeakOfOneMicroBatchAfterTheOther) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    RandomZbProblem random(seed);
    const Placement& placement = random.problem().placement;
    Evaluator evaluator(random.costs());
    const Schedule schedule(OneByOne(placement, random.costs().num_micro_batches()));
    const Evaluator::Result& result = evaluator.Evaluate(schedule, Tail::kNoTail);
    for (int rank = 0; rank < placement.ranks; ++rank) {
      EXPECT_EQ(random.Least(rank), result.peak_bytes[static_cast<size_t>(rank)])
          << "seed " << seed << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace spiritlevel
