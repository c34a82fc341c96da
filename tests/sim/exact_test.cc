// The integer program holds every order and nothing better than the best; the stored optima are.
#include "sim/search/exact.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/check.h"
#include "sim/search/exact_model.h"
#include "tests/sim/brute_force.h"
#include "tests/sim/random_problem.h"
#include "tests/sim/run.h"
#include "tests/sim/tiny_optima.h"

namespace spiritlevel {
namespace {

constexpr const char* kNoCbc = "built without CBC (package coinor-libcbc-dev)";

TimeNs ValueOf(const SearchProblem& problem, const Orders& orders) {
  Evaluator evaluator(*problem.costs);
  const Evaluator::Result& result = evaluator.Evaluate(Schedule(orders), problem.tail);
  return problem.objective == Objective::kSpan ? result.max_rank_span : result.makespan;
}

bool Fits(const SearchProblem& problem, const Orders& orders) {
  const std::vector<Bytes> peaks =
      Evaluator(*problem.costs).Evaluate(Schedule(orders), problem.tail).peak_bytes;
  for (size_t r = 0; r < peaks.size(); ++r) {
    if (peaks[r] > problem.limits[r]) return false;
  }
  return true;
}

std::optional<Orders> AnyThatFits(RandomProblem* random, const SearchProblem& problem) {
  for (int tries = 0; tries < 5; ++tries) {
    if (auto orders = random->PolicyOrders(problem)) return orders;
  }
  return std::nullopt;
}

std::vector<Objective> TwoObjectives() { return {Objective::kSpan, Objective::kMakespan}; }

// The first row that `solution` violates, or nothing.
std::string Violated(const IntegerProgram& program, const std::vector<double>& solution) {
  for (size_t i = 0; i < program.columns.size(); ++i) {
    const IntegerProgram::Column& c = program.columns[i];
    if (solution[i] < c.lower - 1e-9 || solution[i] > c.upper + 1e-9) {
      return "column " + std::to_string(i);
    }
  }
  for (size_t i = 0; i < program.rows.size(); ++i) {
    double sum = 0;
    for (const IntegerProgram::Term& term : program.rows[i].terms) {
      sum += term.factor * solution[static_cast<size_t>(term.column)];
    }
    if (sum < program.rows[i].at_least - 1e-6) return "row " + std::to_string(i);
  }
  return "";
}

// If an order that fits were no solution, the program's optimum would be no bound.
TEST(IntegerProgramOfAProblem, HoldsEveryOrderThatFits) {
  int held = 0;
  for (unsigned seed = 1; seed <= 600; ++seed) {
    RandomProblem random(seed);
    const OwnedProblem owned = random.MakeProblem(4, 5);
    for (const Tail tail : {Tail::kBarrier, Tail::kNoTail}) {
      for (const Objective objective : TwoObjectives()) {
        const SearchProblem problem = owned.As(objective, tail);
        const auto orders = AnyThatFits(&random, problem);
        if (!orders) continue;
        const TimeNs value = ValueOf(problem, *orders);
        const ExactModel model(problem, *orders, value, LowerBound(problem).value);
        ASSERT_EQ(Violated(model.program(), model.start()), "")
            << "seed " << seed << " " << Name(objective) << "\n"
            << ToString(*orders);
        const double least = model.start()[static_cast<size_t>(model.program().objective)];
        EXPECT_LE(model.BoundOf(least), value) << "seed " << seed;
        ++held;
      }
    }
  }
  EXPECT_GT(held, 1200);
}

TEST(IntegerProgramOfAProblem, GivesTheOrderBackThatASolutionSays) {
  int compared = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    RandomProblem random(seed);
    const OwnedProblem owned = random.MakeProblem(4, 5);
    const SearchProblem problem = owned.As(Objective::kSpan, Tail::kBarrier);
    const auto orders = AnyThatFits(&random, problem);
    if (!orders) continue;
    const TimeNs value = ValueOf(problem, *orders);
    const ExactModel model(problem, *orders, value, LowerBound(problem).value);
    const Orders again = model.OrdersOf(model.start());
    EXPECT_TRUE(Fits(problem, again)) << "seed " << seed;
    // A BW that saves nothing comes back as B and W, which may be sooner.
    EXPECT_LE(ValueOf(problem, again), value) << "seed " << seed;
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

// ---- Brute force, the integer program and the bounds: three opinions.

TEST(BruteForce, FindsNoLessWhenAlikeMicroBatchesMayOvertake) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    RandomProblem random(seed);
    OwnedProblem owned = random.MakeProblem(2, 3);
    if (owned.costs.varies_by_micro_batch() || owned.placement.num_stages() > 2) continue;
    for (const Objective objective : TwoObjectives()) {
      const SearchProblem problem = owned.As(objective, Tail::kBarrier);
      EXPECT_EQ(BruteForce(problem, true).Solve(), BruteForce(problem, false).Solve())
          << "seed " << seed;
    }
  }
}

// What takes it more than a moment.
bool IsLargeForBruteForce(const OwnedProblem& owned) {
  const int passes = owned.placement.num_stages() * owned.costs.num_micro_batches();
  return passes > (owned.costs.varies_by_micro_batch() ? 6 : 8);
}

TEST(BruteForce, IsNeverAboveAnOrderThatFitsAndNeverBelowTheBound) {
  int exact = 0;
  int all = 0;
  for (unsigned seed = 1; seed <= 250; ++seed) {
    RandomProblem random(seed);
    const OwnedProblem owned = random.MakeProblem(3, 3);
    if (IsLargeForBruteForce(owned)) continue;
    for (const Tail tail : {Tail::kBarrier, Tail::kNoTail}) {
      for (const Objective objective : TwoObjectives()) {
        const SearchProblem problem = owned.As(objective, tail);
        const TimeNs best = BruteForce(problem, !owned.costs.varies_by_micro_batch()).Solve();
        const Bound bound = LowerBound(problem);
        EXPECT_LE(bound.value, best) << "seed " << seed << " " << bound.reason;
        ++all;
        exact += bound.value == best;
        if (const auto orders = AnyThatFits(&random, problem)) {
          EXPECT_LE(best, ValueOf(problem, *orders)) << "seed " << seed;
        }
      }
    }
  }
  EXPECT_GT(exact, all / 2) << "of " << all;
}

TEST(SolveExactly, AgreesWithBruteForce) {
  if (!ExactIsAvailable()) GTEST_SKIP() << kNoCbc;
  int proved = 0;
  int all = 0;
  for (unsigned seed = 1; seed <= 80; ++seed) {
    RandomProblem random(seed);
    const OwnedProblem owned = random.MakeProblem(3, 3);
    if (IsLargeForBruteForce(owned)) continue;
    for (const Objective objective : TwoObjectives()) {
      const SearchProblem problem = owned.As(objective, Tail::kNoTail);
      const auto start = AnyThatFits(&random, problem);
      if (!start) continue;
      const TimeNs best = BruteForce(problem, !owned.costs.varies_by_micro_batch()).Solve();
      const ExactAnswer answer = SolveExactly(problem, 2, *start);
      EXPECT_TRUE(Fits(problem, answer.orders)) << "seed " << seed;
      EXPECT_EQ(ValueOf(problem, answer.orders), answer.value) << "seed " << seed;
      EXPECT_LE(answer.bound.value, best) << "seed " << seed << " " << Name(objective);
      EXPECT_GE(answer.value, best) << "seed " << seed << " " << Name(objective);
      ++all;
      proved += answer.proved;
    }
  }
  // What is not proved: first ops that start later than they could, messages that queue, and what
  // two seconds of a busy machine are not enough for.
  EXPECT_GT(proved, all / 2) << "of " << all;
}

TEST(SolveExactly, RefusesTheStepAndProblemsOutOfReach) {
  if (!ExactIsAvailable()) GTEST_SKIP() << kNoCbc;
  const Costs costs = Costs::Uniform(8, 64, SumOfParts(3, 4, 2, 3, 1));
  SearchProblem problem{.placement = {.form = PlacementForm::kLinear, .ranks = 8},
                        .costs = &costs,
                        .limits = std::vector<Bytes>(8, 24)};
  const Orders slow = Make("1f1b", 8, 64).ToOrders();
  EXPECT_THROW(SolveExactly(problem, 1, slow), InputError);
  problem.objective = Objective::kStep;
  EXPECT_THROW(SolveExactly(problem, 1, slow), InputError);
}

TEST(SolveExactly, WithoutCbcSaysWhichPackageIsMissing) {
  if (ExactIsAvailable()) GTEST_SKIP() << "built with CBC";
  const Costs costs = Costs::Uniform(2, 2, SumOfParts(1, 1, 1, 1, 1));
  const SearchProblem problem{
      .placement = {.form = PlacementForm::kLinear, .ranks = 2}, .costs = &costs, .limits = {2, 2}};
  try {
    SolveExactly(problem, 1, Make("zb-h1", 2, 2).ToOrders());
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(error.way_out().find("coinor-libcbc-dev"), std::string::npos);
  }
}

// ---- The stored optima.

std::vector<TinyOptimum> Stored() { return ReadTinyOptima("tests/data/search_optima.txt"); }

void ExpectProved(const TinyOptimum& stored) {
  const SearchProblem problem = stored.problem();
  const bool in_turn = !stored.costs.varies_by_micro_batch();
  BruteForce all(problem, in_turn);
  EXPECT_EQ(all.Solve(stored.span + 1), stored.span) << stored.line;
  EXPECT_FALSE(all.gave_up()) << stored.line;
}

TEST(StoredOptima, AreAHundredAndNoBoundIsAboveThem) {
  const std::vector<TinyOptimum> optima = Stored();
  ASSERT_EQ(optima.size(), 100U);
  int reached = 0;
  for (const TinyOptimum& stored : optima) {
    const Certificate certificate = Certify(stored.problem(), stored.span);
    reached += certificate.proved_optimal;
  }
  EXPECT_GE(reached, 50);
}

TEST(StoredOptima, FiveAreOptimal) {
  const std::vector<TinyOptimum> optima = Stored();
  ASSERT_EQ(optima.size(), 100U);
  for (size_t i = 0; i < 5; ++i) ExpectProved(optima[i]);
}

TEST(StoredOptima, AllAreOptimal) {
  if (std::getenv("SPIRITLEVEL_LONG_TESTS") == nullptr) {
    GTEST_SKIP() << "a long test: ./run_tests --long";
  }
  for (const TinyOptimum& stored : Stored()) ExpectProved(stored);
}

}  // namespace
}  // namespace spiritlevel
