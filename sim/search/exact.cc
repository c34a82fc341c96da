#include "sim/search/exact.h"

#include <fmt/core.h>

#include <chrono>
#include <optional>
#include <utility>

#include "base/check.h"
#include "sim/evaluate.h"
#include "sim/schedule.h"
#include "sim/search/exact_model.h"

namespace spiritlevel {
namespace {

// Nothing where it does not fit.
std::optional<TimeNs> ValueOf(const SearchProblem& problem, const Orders& orders) {
  Evaluator evaluator(*problem.costs);
  const Evaluator::Result& result = evaluator.Evaluate(Schedule(orders), problem.tail);
  for (int rank = 0; rank < problem.placement.ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (result.peak_bytes[r] > problem.limits[r]) return std::nullopt;
  }
  return problem.objective == Objective::kSpan ? result.max_rank_span : result.makespan;
}

// Keeps what the solver found where it is better. What rounding spoilt is no order, or does not
// fit.
void Keep(const SearchProblem& problem, const Orders& found, ExactAnswer* answer) {
  try {
    const std::optional<TimeNs> value = ValueOf(problem, found);
    if (!value || *value >= answer->value) return;
    answer->value = *value;
    answer->orders = found;
  } catch (const InputError&) {
  }
}

}  // namespace

ExactAnswer SolveExactly(const SearchProblem& problem, double seconds, const Orders& start) {
  const auto began = std::chrono::steady_clock::now();
  if (problem.objective == Objective::kStep) {
    throw InputError("the exact search has no step", "use the objective span or makespan");
  }
  if (!ExactIsAvailable()) SolveWithCbc({}, {}, 0);  // says so
  ExactAnswer answer{.orders = start, .bound = LowerBound(problem)};
  const std::optional<TimeNs> value = ValueOf(problem, start);
  SPIRITLEVEL_CHECK(value.has_value(), "an exact search starts with an order that fits");
  answer.value = *value;
  if (answer.value > answer.bound.value) {
    const ExactModel model(problem, start, answer.value, answer.bound.value);
    if (model.num_choices() > kMostExactChoices) {
      throw InputError(
          fmt::format("the exact search is for at most {} choices of which op comes first",
                      kMostExactChoices),
          "use fewer micro-batches or ranks, or search without proof");
    }
    const ProgramAnswer found = SolveWithCbc(model.program(), model.start(), seconds);
    if (found.solution) Keep(problem, model.OrdersOf(*found.solution), &answer);
    // A solver that errs by more than its tolerance is not to make a bound out of nothing.
    const TimeNs bound = found.bound ? model.BoundOf(*found.bound) : 0;
    if (bound > answer.bound.value && bound <= answer.value) {
      answer.bound = {.value = bound, .reason = "integer program", .rank = answer.bound.rank};
    }
  }
  answer.proved = answer.value == answer.bound.value;
  answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return answer;
}

}  // namespace spiritlevel
