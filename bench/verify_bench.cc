// What the runtime adds to an op, and how near emulated passes come to what is predicted.
//
//   verify_bench                                       all
//   verify_bench --benchmark_filter=EmptyOps/threads   what an op costs where it does nothing
//
// ns_per_op: how long a rank takes for an op, waiting for its neighbour's message included; with
// ops that do nothing that is the runtime alone. off_by: measured over predicted makespan, less
// one.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/cores.h"
#include "sim/costs.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/schedules/catalog.h"
#include "verify/emulated_work.h"
#include "verify/run.h"

namespace spiritlevel {
namespace {

Program Lowered(const char* name, int ranks, int micro_batches, TimeNs unit, int iterations,
                Posting posting = Posting::kIdeal) {
  const Schedule schedule = FindSchedule(name).Make(
      {.ranks = ranks, .micro_batches = micro_batches, .stages_per_rank = 2});
  const StageCost cost{.forward = unit,
                       .input_grad = unit,
                       .weight_grad = unit,
                       .fused_backward = 2 * unit,
                       .overlapped = 3 * unit};
  const Costs costs = Costs::Uniform(schedule.num_stages(), micro_batches, cost,
                                     {.hop = {.latency = unit / 10}, .optimizer = unit});
  return Lower(schedule, costs, {.posting = posting, .iterations = iterations});
}

std::vector<int> CoresFor(int ranks) {
  const std::vector<int> usable = cpu::UsableCores();
  if (static_cast<int>(usable.size()) < ranks) return {};
  return {usable.begin(), usable.begin() + ranks};
}

TimeNs Makespan(const Program& program, const Timeline& timeline) {
  TimeNs end = 0;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    end = std::max(end, timeline.nodes[static_cast<size_t>(program.rank_end(rank)) - 1].end);
  }
  return end;
}

RunReport Play(const Program& program, const RunOptions& options) {
  RunReport report = RunProgram(
      program, [](const RankContext& context) { return std::make_shared<EmulatedWork>(context); },
      options);
  if (report.failure) throw std::runtime_error(report.failure->message);
  return report;
}

// The median and the least of what each repetition took.
void Count(benchmark::State& state, const char* name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  state.counters[name] = values[values.size() / 2];
  state.counters[std::string("least_") + name] = values.front();
}

void EmptyOps(benchmark::State& state, const char* name, Transport transport, Posting posting) {
  constexpr int kRanks = 2;
  const Program program = Lowered(name, kRanks, 64, 0, 20, posting);
  const RunOptions options{
      .transport = transport, .cores = CoresFor(kRanks), .shared_payload_bytes = size_t{1} << 22};
  std::vector<double> times;
  for (auto _ : state) {
    const RunReport report = Play(program, options);
    times.push_back(static_cast<double>(Makespan(program, report.timelines[0])) * kRanks /
                    program.num_lane_nodes());
  }
  Count(state, "ns_per_op", times);
}

void Emulated(benchmark::State& state, const char* name, int ranks, TimeNs unit) {
  const Program program = Lowered(name, ranks, 2 * ranks, unit, 2);
  const auto predicted = static_cast<double>(Makespan(program, SimulateInOrder(program)));
  std::vector<double> off_by;
  for (auto _ : state) {
    const RunReport report = Play(program, {.emulate_delays = true});
    off_by.push_back(static_cast<double>(Makespan(program, report.timelines[0])) / predicted - 1);
  }
  Count(state, "off_by", off_by);
}

void Register() {
  const auto add = [](const char* name, auto run) {
    benchmark::RegisterBenchmark(name, run)->UseRealTime()->Unit(benchmark::kMillisecond);
  };
  add("EmptyOps/threads/zb-h1/ideal",
      [](benchmark::State& s) { EmptyOps(s, "zb-h1", Transport::kThreads, Posting::kIdeal); });
  add("EmptyOps/threads/1f1b/nccl-fifo",
      [](benchmark::State& s) { EmptyOps(s, "1f1b", Transport::kThreads, Posting::kNcclFifo); });
  add("EmptyOps/threads/dualpipe-v/batched", [](benchmark::State& s) {
    EmptyOps(s, "dualpipe-v", Transport::kThreads, Posting::kBatched);
  });
  add("EmptyOps/processes/zb-h1/ideal",
      [](benchmark::State& s) { EmptyOps(s, "zb-h1", Transport::kProcesses, Posting::kIdeal); });
  add("Emulated/zb-h1/2_ranks/1_ms",
      [](benchmark::State& s) { Emulated(s, "zb-h1", 2, 1'000'000); });
  for (const char* const name : {"1f1b", "zb-h1", "zb-v", "dualpipe"}) {
    add((std::string("Emulated/") + name + "/8_ranks/5_ms").c_str(),
        [name](benchmark::State& s) { Emulated(s, name, 8, 5'000'000); });
  }
}

}  // namespace
}  // namespace spiritlevel

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  spiritlevel::Register();
  benchmark::RunSpecifiedBenchmarks();
}
