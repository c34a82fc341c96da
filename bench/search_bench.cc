// How fast a search goes: orders evaluated a second, and when it has its first answer.
//
// An item is one order. The costs are those of GPT 1.5B on 8 ranks (arXiv 2401.10241, table 6),
// with memory in thousandths of an activation.
#include <benchmark/benchmark.h>

#include <array>
#include <string>

#include "cli/searching.h"
#include "scenarios/scenario.h"
#include "sim/evaluate.h"
#include "sim/schedules/generators.h"
#include "sim/search/bound.h"
#include "sim/search/decoder.h"
#include "sim/search/plan.h"
#include "sim/search/search.h"

namespace spiritlevel {
namespace {

struct Case {
  const char* name;
  PlacementForm form;
  Orders (*generate)(int ranks, int micro_batches);
  int ranks;
  int micro_batches;
};

constexpr std::array<Case, 4> kCases = {{
    {"zb-h1/8x24", PlacementForm::kLinear, ZbH1, 8, 24},
    {"zb-h1/8x64", PlacementForm::kLinear, ZbH1, 8, 64},
    {"zb-h1/32x256", PlacementForm::kLinear, ZbH1, 32, 256},
    {"zb-v/8x64", PlacementForm::kV, ZbV, 8, 64},
}};

Scenario ScenarioOf(int ranks, int micro_batches) {
  return ParseScenario("ranks: " + std::to_string(ranks) +
                           " micro_batches: " + std::to_string(micro_batches) +
                           " costs { uniform { forward_us: 18522 input_grad_us: 18086 "
                           "weight_grad_us: 9337 transfer_us: 601 activation_bytes: 1000 "
                           "weight_state_bytes: 366 } }",
                       ScenarioFormat::kText, "benchmark");
}

// A problem whose limit is what 1F1B needs: as many activations as there are ranks.
ScenarioProblem ProblemOf(const Scenario& scenario, PlacementForm form, Bytes limit) {
  const Placement placement{form, scenario.ranks, form == PlacementForm::kV ? 2 : 1};
  return spiritlevel::ProblemOf(scenario, placement,
                                std::vector<Bytes>(static_cast<size_t>(scenario.ranks), limit));
}

void CountOrders(benchmark::State& state, const Orders& orders) {
  size_t ops = 0;
  for (const auto& rank : orders) ops += rank.size();
  state.counters["ops"] = static_cast<double>(ops);
  state.SetItemsProcessed(state.iterations());
}

void EvaluateOrder(benchmark::State& state, const Case& c) {
  const Scenario scenario = ScenarioOf(c.ranks, c.micro_batches);
  const ScenarioProblem made = ProblemOf(scenario, c.form, 1000 * c.ranks);
  const Orders orders = c.generate(c.ranks, c.micro_batches);
  const Schedule schedule(orders);
  Evaluator evaluator(*made.costs);
  if (evaluator.Evaluate(schedule, Tail::kBarrier).max_rank_span < LowerBound(made.problem).value) {
    state.SkipWithError("the order is faster than its bound");
  }
  for (auto _ : state) benchmark::DoNotOptimize(&evaluator.Evaluate(schedule, Tail::kBarrier));
  CountOrders(state, orders);
}

void DecodePlan(benchmark::State& state, const Case& c) {
  const Scenario scenario = ScenarioOf(c.ranks, c.micro_batches);
  const ScenarioProblem made = ProblemOf(scenario, c.form, 1000 * c.ranks);
  const Orders orders = c.generate(c.ranks, c.micro_batches);
  Plan plan;
  Decoder decoder(made.problem);
  if (!ReadPlan(made.problem, orders, &plan)) {
    state.SkipWithError("the order is no plan");
    return;
  }
  const TimeNs value = decoder.Decode(plan);
  if (value == Decoder::kInfeasible || value < LowerBound(made.problem).value) {
    state.SkipWithError("the plan does not fit, or is faster than its bound");
  }
  for (auto _ : state) benchmark::DoNotOptimize(decoder.Decode(plan));
  CountOrders(state, orders);
}

// From a scenario to an order that fits: bound, seeds, the least search there is, on one core.
void FirstAnswer(benchmark::State& state, Bytes limit) {
  const Scenario scenario = ScenarioOf(8, 64);
  TimeNs value = 0;
  for (auto _ : state) {
    const ScenarioProblem made = ProblemOf(scenario, PlacementForm::kLinear, limit);
    SearchOptions options{.evaluations = 1, .islands = 1, .threads = 1};
    options.lower_bound = LowerBound(made.problem).value;
    options.seeds = SeedsFor(scenario, made.problem);
    value = Search(made.problem, options).value;
  }
  if (value <= 0) state.SkipWithError("there is no answer");
  state.SetItemsProcessed(state.iterations());
}

void RegisterAll() {
  for (const Case& c : kCases) {
    const std::string name = c.name;
    benchmark::RegisterBenchmark(("flat_evaluator/" + name).c_str(),
                                 [&c](auto& state) { EvaluateOrder(state, c); });
    benchmark::RegisterBenchmark(("decoder/" + name).c_str(),
                                 [&c](auto& state) { DecodePlan(state, c); });
  }
  // 0.75, 1 and 2 times as many activations as ranks.
  for (const Bytes limit : {6000, 8000, 16000}) {
    benchmark::RegisterBenchmark(("first_answer/8x64/" + std::to_string(limit)).c_str(),
                                 [limit](auto& state) { FirstAnswer(state, limit); });
  }
}

}  // namespace
}  // namespace spiritlevel

int main(int argc, char** argv) {
  spiritlevel::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
