// The exact solver in a process of its own says what it says in this one, and leaves nothing
// behind.
#include "cli/exact_apart.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <vector>

#include "cli/searching.h"
#include "scenarios/scenario.h"
#include "sim/search/search.h"

namespace spiritlevel {
namespace {

class ExactApart : public testing::Test {
 protected:
  void SetUp() override {
    if (!ExactIsAvailable()) GTEST_SKIP() << "built without CBC";
  }

  // With room for two activations on each rank.
  static ScenarioProblem Problem(int ranks, int micro_batches) {
    const Scenario scenario = ParseScenario(
        "ranks: " + std::to_string(ranks) + " micro_batches: " + std::to_string(micro_batches) +
            " costs { uniform { forward_us: 70 input_grad_us: 150 weight_grad_us: 80 "
            "transfer_us: 2 activation_bytes: 1000 weight_state_bytes: 400 } }",
        ScenarioFormat::kText, "small");
    return ProblemOf(scenario, {PlacementForm::kLinear, ranks, 1},
                     std::vector<Bytes>(static_cast<size_t>(ranks), 2000));
  }

  static Orders AnyOrder(const SearchProblem& problem) {
    return Search(problem, {.evaluations = 4, .threads = 1}).orders;
  }

  static bool HasChildren() { return ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }
};

TEST_F(ExactApart, SaysWhatTheSolverSays) {
  const ScenarioProblem made = Problem(3, 4);
  const Orders start = AnyOrder(made.problem);
  const ExactAnswer here = SolveExactly(made.problem, 60, start);
  const std::optional<ExactAnswer> apart = SolveExactlyApart(made.problem, 60, start, nullptr);
  ASSERT_TRUE(apart.has_value());
  EXPECT_TRUE(here.proved);
  EXPECT_TRUE(apart->proved);
  EXPECT_EQ(apart->value, here.value);
  EXPECT_EQ(apart->bound.value, here.bound.value);
  EXPECT_EQ(apart->bound.reason, here.bound.reason);
  EXPECT_EQ(apart->orders, here.orders);
  EXPECT_FALSE(HasChildren());
}

TEST_F(ExactApart, IsOverWhenItIsToldToStop) {
  const ScenarioProblem made = Problem(4, 14);
  const std::atomic<bool> stop = true;
  EXPECT_FALSE(SolveExactlyApart(made.problem, 3600, AnyOrder(made.problem), &stop).has_value());
  EXPECT_FALSE(HasChildren());
}

TEST_F(ExactApart, IsOverWhenItsTimeIs) {
  const ScenarioProblem made = Problem(4, 14);
  EXPECT_FALSE(SolveExactlyApart(made.problem, 1e-6, AnyOrder(made.problem), nullptr).has_value());
  EXPECT_FALSE(HasChildren());
}

}  // namespace
}  // namespace spiritlevel
