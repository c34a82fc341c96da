// What one op costs in each step from a schedule's name to its verdict.
//
// An item is an op: one F, B, W or BW of one stage for one micro-batch. Every benchmark first
// plays its schedule and refuses to run if the makespan is not the golden one, which
// bench/python_loop.py finds too.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <array>
#include <string>
#include <utility>

#include "sim/analysis/check_schedule.h"
#include "sim/analysis/check_timeline.h"
#include "sim/analysis/stalls.h"
#include "sim/analysis/summary.h"
#include "sim/engine.h"
#include "sim/evaluate.h"
#include "sim/event.h"
#include "sim/schedules/generators.h"

namespace spiritlevel {
namespace {

struct Case {
  const char* schedule;
  Orders (*generate)(int ranks, int micro_batches);
  int ranks;
  int micro_batches;
  TimeNs makespan;  // golden
};

constexpr std::array<Case, 6> kCases = {{
    {"1f1b", OneFOneB, 8, 64, 219'200'000},
    {"1f1b", OneFOneB, 64, 256, 988'400'000},
    {"1f1b", OneFOneB, 64, 1024, 3'368'000'000},
    {"zb-h1", ZbH1, 8, 64, 200'400'000},
    {"zb-h1", ZbH1, 64, 256, 843'600'000},
    {"zb-h1", ZbH1, 64, 1024, 3'147'600'000},
}};

// The memory is made up, but none is zero: no account may be had for nothing.
Costs CostsOf(const Case& c) {
  constexpr StageCost kStage = {.forward = 1'000'000,
                                .input_grad = 1'000'000,
                                .weight_grad = 1'000'000,
                                .fused_backward = 2'000'000,
                                .overlapped = 3'000'000,
                                .activation = 1000,
                                .weight_state = 366};
  constexpr Costs::Common kCommon = {.hop = {.latency = 10'000, .busy = 40'000, .bytes = 1 << 20},
                                     .static_bytes = 1 << 30};
  return Costs::Uniform(c.ranks, c.micro_batches, kStage, kCommon);
}

// All that the steps start from; each benchmark times one step.
class Played {
 public:
  Played(const Case& c, int iterations)
      : costs(CostsOf(c)),
        orders(c.generate(c.ranks, c.micro_batches)),
        schedule(orders),
        program(Lower(schedule, costs, {.iterations = iterations})),
        timeline(SimulateInOrder(program)) {}

  TimeNs makespan() const { return AccountForStalls(program, costs, timeline).makespan; }

  Costs costs;
  Orders orders;
  Schedule schedule;
  Program program;
  Timeline timeline;
};

using Step = void (*)(benchmark::State&, const Case&, const Played&);

void Generate(benchmark::State& state, const Case& c, const Played&) {
  for (auto _ : state) benchmark::DoNotOptimize(c.generate(c.ranks, c.micro_batches));
}

void BuildSchedule(benchmark::State& state, const Case&, const Played& p) {
  for (auto _ : state) benchmark::DoNotOptimize(Schedule(p.orders));
}

void Evaluate(benchmark::State& state, const Case& c, const Played& p) {
  Evaluator evaluator(p.costs);
  if (evaluator.Evaluate(p.schedule, Tail::kBarrier).makespan != c.makespan) {
    state.SkipWithError("the evaluator's makespan is not the golden one");
  }
  for (auto _ : state) benchmark::DoNotOptimize(&evaluator.Evaluate(p.schedule, Tail::kBarrier));
}

void EvaluatePeriod(benchmark::State& state, const Case&, const Played& p) {
  Evaluator evaluator(p.costs);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        evaluator.Evaluate(p.schedule, Tail::kBarrier, kPeriodIterations).period);
  }
}

void LowerOnce(benchmark::State& state, const Case&, const Played& p) {
  for (auto _ : state) benchmark::DoNotOptimize(Lower(p.schedule, p.costs, {.iterations = 1}));
}

void LowerForPeriod(benchmark::State& state, const Case&, const Played& p) {
  const LoweringOptions options = {.iterations = kPeriodIterations};
  for (auto _ : state) benchmark::DoNotOptimize(Lower(p.schedule, p.costs, options));
}

void PlayInOrder(benchmark::State& state, const Case&, const Played& p) {
  for (auto _ : state) benchmark::DoNotOptimize(SimulateInOrder(p.program));
}

void PlayInOrderWithStalls(benchmark::State& state, const Case&, const Played& p) {
  for (auto _ : state) {
    const Timeline timeline = SimulateInOrder(p.program);
    benchmark::DoNotOptimize(AccountForStalls(p.program, p.costs, timeline));
  }
}

void PlayByQueue(benchmark::State& state, const Case&, const Played& p) {
  if (SimulateByQueue(p.program) != p.timeline) {
    state.SkipWithError("the two engines disagree");
  }
  for (auto _ : state) benchmark::DoNotOptimize(SimulateByQueue(p.program));
}

void PlayByQueueWithStalls(benchmark::State& state, const Case&, const Played& p) {
  for (auto _ : state) {
    const Timeline timeline = SimulateByQueue(p.program);
    benchmark::DoNotOptimize(AccountForStalls(p.program, p.costs, timeline));
  }
}

void AccountStalls(benchmark::State& state, const Case&, const Played& p) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(AccountForStalls(p.program, p.costs, p.timeline));
  }
}

void SumUp(benchmark::State& state, const Case&, const Played& p) {
  Evaluator evaluator(p.costs);
  const TimeNs period = evaluator.Evaluate(p.schedule, Tail::kBarrier, kPeriodIterations).period;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Summarize(p.program, p.costs, p.timeline, period));
  }
}

void CheckOrders(benchmark::State& state, const Case&, const Played& p) {
  if (!CheckSchedule(p.orders).legal()) state.SkipWithError("the checker refuses the schedule");
  for (auto _ : state) benchmark::DoNotOptimize(CheckSchedule(p.orders));
}

size_t CountEvents(const Played& p) {
  size_t events = 0;
  ForEachEvent(p.program, p.timeline, 1, [&](const Event&) { ++events; });
  return events;
}

void ReadEvents(benchmark::State& state, const Case&, const Played& p) {
  for (auto _ : state) benchmark::DoNotOptimize(CountEvents(p));
}

size_t FindingsOf(const Played& p) {
  TimelineChecker checker(std::nullopt);
  ForEachEvent(p.program, p.timeline, 1, [&](const Event& event) { checker.Add(event); });
  return checker.Finish().size();
}

void CheckEvents(benchmark::State& state, const Case&, const Played& p) {
  if (FindingsOf(p) != 0) state.SkipWithError("the checker refuses the timeline");
  for (auto _ : state) benchmark::DoNotOptimize(FindingsOf(p));
}

void Run(benchmark::State& state, const Case& c, Step step) {
  const Played played(c, 1);
  if (played.makespan() != c.makespan) {
    state.SkipWithError("the makespan is not the golden one");
    return;
  }
  state.counters["makespan_ns"] = static_cast<double>(c.makespan);
  step(state, c, played);
  state.SetItemsProcessed(state.iterations() *
                          static_cast<int64_t>(played.schedule.all_ops().size()));
}

// In the order in which a run takes them.
constexpr std::array<std::pair<const char*, Step>, 15> kSteps = {{
    {"generate", Generate},
    {"schedule", BuildSchedule},
    {"evaluate", Evaluate},
    {"evaluate_4_iterations", EvaluatePeriod},
    {"lower", LowerOnce},
    {"lower_4_iterations", LowerForPeriod},
    {"in_order", PlayInOrder},
    {"in_order_and_stalls", PlayInOrderWithStalls},
    {"by_queue", PlayByQueue},
    {"by_queue_and_stalls", PlayByQueueWithStalls},
    {"stalls", AccountStalls},
    {"summarize", SumUp},
    {"check_schedule", CheckOrders},
    {"events", ReadEvents},
    {"check_timeline", CheckEvents},
}};

// "in_order/zb-h1/64x1024"
std::string NameOf(const char* step, const Case& c) {
  return std::string(step) + "/" + c.schedule + "/" + std::to_string(c.ranks) + "x" +
         std::to_string(c.micro_batches);
}

void RegisterAll() {
  for (const auto& [name, step] : kSteps) {
    for (const Case& c : kCases) {
      benchmark::RegisterBenchmark(NameOf(name, c).c_str(), [&c, step = step](auto& state) {
        Run(state, c, step);
      })->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace spiritlevel

int main(int argc, char** argv) {
  // As cli/main.cc does. Without it, arrays of megabytes go back to the system after each use, and
  // clearing their pages anew takes longer than most of what is measured here.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  spiritlevel::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
