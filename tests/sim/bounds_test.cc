// Bounds: the table of the linear placement to four digits, and never above an order that fits.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "sim/search/bound.h"
#include "sim/search/bound_rank.h"
#include "sim/search/zb_v_heuristic.h"
#include "tests/sim/profiled_settings.h"
#include "tests/sim/random_problem.h"
#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

constexpr Bytes kActivation = 12'000'000;  // of a rank's share

// One of the profiled settings, with one stage on each rank or half of one twice.
struct Profiled {
  Profiled(const ProfiledSetting& s, int stages_per_rank, double limit_in_activations)
      : costs(Costs::Uniform(
            s.ranks * stages_per_rank, s.micro_batches,
            SumOfParts(Share(s.forward_us, stages_per_rank),
                       Share(s.input_grad_us, stages_per_rank),
                       Share(s.weight_grad_us, stages_per_rank), kActivation / stages_per_rank,
                       kActivation / 1000 * s.weight_state_permil / stages_per_rank),
            {.hop = {.latency = TimeNs{s.transfer_us} * 1000}})) {
    problem.placement = {.form = stages_per_rank == 2 ? PlacementForm::kV : PlacementForm::kLinear,
                         .ranks = s.ranks,
                         .stages_per_rank = stages_per_rank};
    problem.costs = &costs;
    problem.limits.assign(static_cast<size_t>(s.ranks),
                          std::llround(limit_in_activations * double{kActivation}));
    work = TimeNs{s.micro_batches} * 1000 * (s.forward_us + s.input_grad_us + s.weight_grad_us);
  }
  Profiled(const Profiled&) = delete;
  Profiled& operator=(const Profiled&) = delete;

  static TimeNs Share(int us, int stages) { return TimeNs{us} * 1000 / stages; }

  double BubbleRate(TimeNs span) const {
    return static_cast<double>(span - work) / static_cast<double>(span);
  }

  Costs costs;
  SearchProblem problem;
  TimeNs work = 0;
};

// Limits in shares of p activations, and the bound's bubble rate under each.
constexpr std::array<double, 7> kLimits = {0.5, 0.625, 0.75, 0.875, 1, 1.5, 2};
constexpr std::array<std::array<double, 7>, 12> kLinearBounds = {{
    {0.4491, 0.3479, 0.2510, 0.1870, 0.1585, 0.0524, 0.0433},
    {0.4401, 0.3386, 0.2310, 0.1475, 0.1242, 0.0400, 0.0000},
    {0.4286, 0.3010, 0.1788, 0.0808, 0.0674, 0.0210, 0.0000},
    {0.4143, 0.3073, 0.2084, 0.1626, 0.1323, 0.0475, 0.0000},
    {0.4067, 0.2977, 0.1837, 0.1289, 0.1045, 0.0363, 0.0000},
    {0.3905, 0.2548, 0.1249, 0.0691, 0.0554, 0.0185, 0.0000},
    {0.4102, 0.3043, 0.2078, 0.1695, 0.1397, 0.0571, 0.0000},
    {0.3977, 0.2877, 0.1736, 0.1330, 0.1088, 0.0437, 0.0000},
    {0.3774, 0.2397, 0.1082, 0.0713, 0.0576, 0.0224, 0.0000},
    {0.4064, 0.3006, 0.2054, 0.1718, 0.1421, 0.0604, 0.0030},
    {0.3924, 0.2818, 0.1675, 0.1347, 0.1106, 0.0461, 0.0024},
    {0.3732, 0.2350, 0.1032, 0.0731, 0.0594, 0.0242, 0.0018},
}};

TEST(Bounds, OfTheProfiledSettingsAgreeToFourDigits) {
  for (size_t i = 0; i < kProfiledSettings.size(); ++i) {
    for (size_t j = 0; j < kLimits.size(); ++j) {
      const ProfiledSetting& setting = kProfiledSettings[i];
      const Profiled p(setting, 1, kLimits[j] * setting.ranks);
      const Bound bound = LowerBound(p.problem);
      EXPECT_NEAR(p.BubbleRate(bound.value), kLinearBounds[i][j], 5.1e-5)
          << setting.model << " m=" << setting.micro_batches << " limit " << kLimits[j]
          << "p: " << bound.reason;
    }
  }
}

// (p - 1) (F + B - W) + 4 (p - 1) c over the work, and that is what ZB-H1 takes.
TEST(Bounds, ProveZbH1OptimalAtOneActivationPerRank) {
  for (const ProfiledSetting& setting : kProfiledSettings) {
    const Profiled p(setting, 1, setting.ranks);
    const Schedule schedule = Make("zb-h1", setting.ranks, setting.micro_batches);
    const TimeNs span = Evaluator(p.costs).Evaluate(schedule, Tail::kBarrier).max_rank_span;
    const Certificate certificate = Certify(p.problem, span);
    EXPECT_TRUE(certificate.proved_optimal) << setting.model << " m=" << setting.micro_batches;
    EXPECT_EQ(certificate.gap, 0);
  }
}

// The search's best figures for the V placement, to the digits in which they are known.
TEST(Bounds, OfTheVPlacementMeetOrdersThatAreKnown) {
  struct Known {
    size_t setting;
    double limit;  // in p activations
    double bubble_rate;
  };
  for (const Known& known :
       {Known{0, 0.75, 0.1371}, Known{0, 0.875, 0.1049}, Known{0, 1, 0.0703},
        Known{3, 0.875, 0.0772}, Known{3, 1, 0.0403}, Known{6, 1, 0.0498}, Known{9, 1, 0.0531}}) {
    const ProfiledSetting& setting = kProfiledSettings[known.setting];
    const Profiled p(setting, 2, known.limit * setting.ranks);
    EXPECT_NEAR(p.BubbleRate(LowerBound(p.problem).value), known.bubble_rate, 5.1e-5)
        << setting.model << " limit " << known.limit << "p";
  }
}

TEST(Bounds, ProveTheAutomaticZbVOptimalAtOneActivationPerRank) {
  for (const ProfiledSetting& setting : kProfiledSettings) {
    const Profiled p(setting, 2, setting.ranks);
    const TimeNs span = Evaluator(p.costs).Evaluate(ZbVAuto(p.costs), Tail::kBarrier).max_rank_span;
    EXPECT_TRUE(Certify(p.problem, span).proved_optimal)
        << setting.model << " m=" << setting.micro_batches << ": " << span;
  }
}

// Where there is no time for the thorough form.
TEST(Bounds, TheRoughFormIsNeverAboveTheThoroughOne) {
  for (unsigned seed = 1; seed <= 2000; ++seed) {
    RandomProblem random(seed);
    const OwnedProblem owned = random.MakeProblem(6, 40);
    const SearchProblem problem = owned.As(Objective::kSpan, Tail::kBarrier);
    const std::vector<Path> paths = PathsOf(problem);
    for (int rank = 0; rank < problem.placement.ranks; ++rank) {
      const RankItems items = ItemsOf(problem, paths, rank);
      const RankBound rough = BoundOf(items, /*thorough=*/false);
      const RankBound thorough = BoundOf(items, /*thorough=*/true);
      EXPECT_LE(rough.span, thorough.span) << "seed " << seed << " rank " << rank;
      EXPECT_LE(rough.to_last_backward, thorough.to_last_backward) << "seed " << seed;
      EXPECT_GE(rough.span, items.work());
    }
  }
}

// The least of five, since other programs only ever make it longer.
template <class Work>
double SecondsOf(const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// How many orders of that size can be evaluated in the time that the bound takes.
double Evaluations(const SearchProblem& problem, const char* schedule) {
  const Schedule order = Make(schedule, problem.placement.ranks, problem.micro_batches());
  Evaluator evaluator(*problem.costs);
  return SecondsOf([&] { LowerBound(problem); }) /
         SecondsOf([&] { evaluator.Evaluate(order, Tail::kBarrier); });
}

// 1 to 10 ms at 32 ranks and 256 micro-batches: a blink of what a search takes.
TEST(Bounds, TakeNoMoreThanAFewHundredEvaluationsOfAnOrder) {
  for (const int stages_per_rank : {1, 2}) {
    for (const double limit : {0.5, 2.0}) {
      const Profiled p(kProfiledSettings[11], stages_per_rank, limit * 32);
      EXPECT_LT(Evaluations(p.problem, stages_per_rank == 1 ? "zb-h1" : "zb-v"), 400)
          << stages_per_rank << " stages on each rank";
    }
  }
}

// 64 ranks, 4096 micro-batches: the rough form, which may be lower but stays above the work.
TEST(Bounds, OfAHugeProblemAreQuickAndStillSeeItsMemory) {
  const ProfiledSetting& s = kProfiledSettings[9];
  const Costs costs = Costs::Uniform(
      64, 4096, SumOfParts(s.forward_us, s.input_grad_us, s.weight_grad_us, 100, 43));
  const SearchProblem problem{.placement = {.form = PlacementForm::kLinear, .ranks = 64},
                              .costs = &costs,
                              .limits = std::vector<Bytes>(64, 32 * 100)};
  EXPECT_LT(Evaluations(problem, "zb-h1"), 400);
  const Bound bound = LowerBound(problem);
  // 64 stages' way there and back for each 32 micro-batches.
  EXPECT_GE(bound.value, TimeNs{4096 / 32 - 1} * 64 * (s.forward_us + s.input_grad_us));
}

// ---- Never above an order that fits.

struct Tally {
  int orders = 0;
  int reached = 0;
};

void ExpectBelow(const OwnedProblem& owned, const Orders& orders, const std::string& context,
                 Tally* tally) {
  Evaluator evaluator(owned.costs);
  const Schedule schedule(orders);
  for (const Tail tail : {Tail::kBarrier, Tail::kNoTail}) {
    const Evaluator::Result& result = evaluator.Evaluate(schedule, tail, /*iterations=*/4);
    for (int rank = 0; rank < owned.placement.ranks; ++rank) {
      ASSERT_LE(result.peak_bytes[static_cast<size_t>(rank)],
                owned.limits[static_cast<size_t>(rank)])
          << context << ": the order does not fit";
      ASSERT_LE(LeastFeasibleLimit(owned.As(Objective::kSpan, tail), rank),
                owned.limits[static_cast<size_t>(rank)])
          << context << " rank " << rank;
    }
    const auto expect = [&](Objective objective, TimeNs value) {
      const Bound bound = LowerBound(owned.As(objective, tail));
      EXPECT_LE(bound.value, value) << context << " " << Name(objective) << " tail "
                                    << static_cast<int>(tail) << " " << bound.reason << "\n"
                                    << Name(owned.placement.form) << "\n"
                                    << ToString(orders);
      ++tally->orders;
      if (bound.value == value) ++tally->reached;
    };
    expect(Objective::kSpan, result.max_rank_span);
    expect(Objective::kMakespan, result.makespan);
    expect(Objective::kStep, result.period);
  }
}

std::vector<Bytes> PeaksOf(const Costs& costs, const Orders& orders) {
  return Evaluator(costs).Evaluate(Schedule(orders), Tail::kNoTail).peak_bytes;
}

TEST(Bounds, AreNeverAboveWhatAListSchedulerReaches) {
  Tally tally;
  for (unsigned seed = 1; seed <= 3000 && !testing::Test::HasFailure(); ++seed) {
    RandomProblem random(seed);
    const OwnedProblem problem = random.MakeProblem(6, 10);
    for (int tries = 0; tries < 3; ++tries) {
      const auto orders = random.PolicyOrders(problem.As(Objective::kSpan, Tail::kBarrier));
      if (orders) ExpectBelow(problem, *orders, "seed " + std::to_string(seed), &tally);
    }
  }
  // Bounds that say nothing would pass, too.
  EXPECT_GT(tally.orders, 20000);
  EXPECT_GT(tally.reached, tally.orders / 15);
}

// Of any order: what it needs is its limit, and no byte more.
TEST(Bounds, AreNeverAboveAnOrderThatFillsItsLimitsToTheByte) {
  Tally tally;
  for (unsigned seed = 1; seed <= 4000 && !testing::Test::HasFailure(); ++seed) {
    RandomProblem random(seed);
    OwnedProblem problem = random.MakeProblem(6, 10);
    const Orders any = random.AnyOrders(problem.placement, problem.costs.num_micro_batches());
    const auto planned = random.PolicyOrders(problem.As(Objective::kSpan, Tail::kBarrier));
    for (const Orders& orders : {any, planned.value_or(any)}) {
      problem.limits = PeaksOf(problem.costs, orders);
      ExpectBelow(problem, orders, "seed " + std::to_string(seed), &tally);
    }
  }
  EXPECT_GT(tally.reached, tally.orders / 30);
}

TEST(Bounds, AreNeverAboveANamedSchedule) {
  Tally tally;
  for (unsigned seed = 1; seed <= 1500 && !testing::Test::HasFailure(); ++seed) {
    RandomProblem random(seed);
    const Shape shape{.ranks = 1 + random.Below(6),
                      .micro_batches = 1 + random.Below(10),
                      .stages_per_rank = 2 + random.Below(2)};
    for (const ScheduleInfo& info : AllSchedules()) {
      if (info.placement == "bidirectional" || info.Refusal(shape)) continue;
      const int each = info.stages_per_rank(shape);
      const Schedule schedule = info.Make(shape);
      if (schedule.num_micro_batches() != shape.micro_batches) continue;
      OwnedProblem problem{
          .costs = random.MakeCosts(shape.ranks * each, shape.micro_batches),
          .placement = {.form = info.placement == "V"        ? PlacementForm::kV
                                : info.placement == "looped" ? PlacementForm::kLooped
                                                             : PlacementForm::kLinear,
                        .ranks = shape.ranks,
                        .stages_per_rank = each},
          .limits = {}};
      const Orders orders = schedule.ToOrders();
      // F&B pairs are no choice of a search's.
      const bool pairs = std::any_of(schedule.all_ops().begin(), schedule.all_ops().end(),
                                     [](const Op& op) { return op.overlaps_next; });
      if (pairs) continue;
      problem.limits = PeaksOf(problem.costs, orders);
      ExpectBelow(problem, orders, std::string(info.name) + " seed " + std::to_string(seed),
                  &tally);
    }
  }
  EXPECT_GT(tally.orders, 20000);
}

// ---- The least feasible limit.

// One micro-batch, by hand: two chunks of 3 and 5, of which W keeps 2 and 7.
TEST(LeastFeasibleLimit, IsThatOfOneMicroBatchAtATime) {
  StageCost first = SumOfParts(1, 1, 1, 3, 2);
  StageCost second = SumOfParts(1, 1, 1, 5, 7);
  const auto least = [&] {
    const Costs costs(2, 3, {first, second}, {.static_bytes = 100});
    SearchProblem problem{.placement = {PlacementForm::kV, 1, 2}, .costs = &costs, .limits = {0}};
    return LeastFeasibleLimit(problem, 0);
  };
  EXPECT_EQ(least(), 108);  // both, and BW grows nothing
  second.transient[static_cast<size_t>(Pass::kBW)] = 4;
  EXPECT_EQ(least(), 110);  // B then W: 3 + 7
  second.transient[static_cast<size_t>(Pass::kW)] = 2;
  EXPECT_EQ(least(), 110);  // W waits until the first chunk's 3 are gone
  second.transient[static_cast<size_t>(Pass::kW)] = 8;
  EXPECT_EQ(least(), 112);  // BW again
}

TEST(LeastFeasibleLimit, OneByteLessIsRefusedWithIt) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    RandomProblem random(seed);
    OwnedProblem owned = random.MakeProblem(4, 4);
    SearchProblem problem = owned.As(Objective::kSpan, Tail::kBarrier);
    for (int rank = 0; rank < problem.placement.ranks; ++rank) {
      problem.limits[static_cast<size_t>(rank)] = LeastFeasibleLimit(problem, rank);
    }
    EXPECT_NO_THROW(LowerBound(problem)) << "seed " << seed;
    const Bytes least = --problem.limits.back() + 1;
    try {
      LowerBound(problem);
      FAIL() << "seed " << seed;
    } catch (const InputError& error) {
      EXPECT_NE(error.way_out().find(std::to_string(least) + " bytes"), std::string::npos)
          << error.what();
    }
  }
}

// ---- Degenerate problems.

TEST(Bounds, OfNoTimeAtAllIsZeroAndItsGapNoDivisionByZero) {
  const Costs costs = Costs::Uniform(3, 4, StageCost{.activation = 1});
  const SearchProblem problem{.placement = {.form = PlacementForm::kLinear, .ranks = 3},
                              .costs = &costs,
                              .limits = std::vector<Bytes>(3, 1)};
  EXPECT_EQ(LowerBound(problem).value, 0);
  EXPECT_TRUE(Certify(problem, 0).proved_optimal);
  EXPECT_EQ(Certify(problem, 7).gap, 1);
  EXPECT_FALSE(Certify(problem, 7).proved_optimal);
}

TEST(Bounds, AValueBelowTheBoundIsOurBug) {
  const Profiled p(kProfiledSettings[0], 1, 8);
  EXPECT_THROW(Certify(p.problem, p.work), InvariantError);
}

// A fused backward that saves half of B + W: the work is the cheaper form's.
TEST(Bounds, CountACheaperFusedBackwardAsWork) {
  StageCost cost = SumOfParts(2, 3, 4, 1, 1);
  cost.fused_backward = 5;
  const Costs costs = Costs::Uniform(1, 6, cost, {.launch = 1});
  const SearchProblem problem{
      .placement = {.form = PlacementForm::kLinear}, .costs = &costs, .limits = {1}};
  // A span begins when its first op's launch is over.
  EXPECT_EQ(LowerBound(problem).value, 6 * (2 + 5 + 2 * 1) - 1);
}

}  // namespace
}  // namespace spiritlevel
