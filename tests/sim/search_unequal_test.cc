// Where no named schedule was made for it: stages, micro-batches or ranks that differ.
//
// 4 ranks, 16 micro-batches, one stage a rank; a layer takes 500, 550 and 400 us for F, B and W and
// keeps 100 bytes, 40 from B to W; a hop takes 50 us. 8 layers a rank unless said otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "base/check.h"
#include "sim/evaluate.h"
#include "sim/schedules/catalog.h"
#include "sim/search/bound.h"
#include "sim/search/decoder.h"
#include "sim/search/search.h"
#include "sim/search/zb_heuristic.h"
#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

constexpr int kRanks = 4;
constexpr int kMicroBatches = 16;
constexpr Bytes kLayerBytes = 100;

StageCost Layers(double time, double memory) {
  const auto part = [](double layers, double one) { return static_cast<int64_t>(layers * one); };
  return SumOfParts(part(time, 500'000), part(time, 550'000), part(time, 400'000),
                    part(memory, kLayerBytes), part(memory, 0.4 * kLayerBytes));
}

// What one micro-batch of one stage is worth, in layers.
using LayersOf = double (*)(int stage, int micro_batch);

struct Unequal {
  const char* name;
  LayersOf layers;
  double head = 0;                              // in layers, on the last stage; keeps nothing
  std::array<double, kRanks> room{4, 4, 4, 4};  // by rank, in activations of 8 layers
};

constexpr int kLayersOf9986[] = {9, 9, 8, 6};
const std::array<Unequal, 6> kWorlds = {{
    {"the head worth 2.4 layers, 8 layers a rank", [](int, int) { return 8.0; }, 2.4},
    {"the head worth 2.4 layers, 9, 9, 8 and 6 layers",
     [](int stage, int) { return static_cast<double>(kLayersOf9986[stage]); },
     2.4,
     {6, 6, 6, 6}},
    {"the first micro-batch four times as long",
     [](int, int i) { return i == 0 ? 32.0 : 8.0; },
     0,
     {7, 7, 7, 7}},
    {"the middle one four times as long",
     [](int, int i) { return i == 8 ? 32.0 : 8.0; },
     0,
     {7, 7, 7, 7}},
    {"the last one four times as long",
     [](int, int i) { return i == 15 ? 32.0 : 8.0; },
     0,
     {7, 7, 7, 7}},
    {"room for 4, 3.5, 2.5 and 2 activations", [](int, int) { return 8.0; }, 0, {4, 3.5, 2.5, 2}},
}};

struct Case {
  Costs costs;
  SearchProblem problem;
};

Costs CostsOf(const Unequal& world) {
  std::vector<StageCost> table;
  for (int stage = 0; stage < kRanks; ++stage) {
    for (int i = 0; i < kMicroBatches; ++i) {
      const double layers = world.layers(stage, i);
      const double head = stage + 1 == kRanks ? world.head * layers / 8 : 0;
      table.push_back(Layers(layers + head, layers));
    }
  }
  return Costs(kRanks, kMicroBatches, std::move(table), {.hop = {.latency = 50'000}});
}

std::vector<Bytes> LimitsOf(const Unequal& world) {
  std::vector<Bytes> limits;
  for (const double room : world.room) {
    limits.push_back(static_cast<Bytes>(room * 8 * kLayerBytes));
  }
  return limits;
}

struct Named {
  std::string name;
  TimeNs span = 0;
};

// The best one that fits; and all as seeds, which may not fit.
Named BestNamed(const SearchProblem& problem, std::vector<Orders>* seeds) {
  Named best{"", Decoder::kInfeasible};
  Evaluator evaluator(*problem.costs);
  for (const ScheduleInfo& info : AllSchedules()) {
    if (info.placement != "linear") continue;
    const Schedule schedule =
        info.Make({.ranks = kRanks, .micro_batches = kMicroBatches}, *problem.costs);
    seeds->push_back(schedule.ToOrders());
    const Evaluator::Result& r = evaluator.Evaluate(schedule, Tail::kBarrier);
    bool fits = true;
    for (size_t rank = 0; rank < kRanks; ++rank) fits &= r.peak_bytes[rank] <= problem.limits[rank];
    if (fits && r.max_rank_span < best.span) best = {std::string(info.name), r.max_rank_span};
  }
  seeds->push_back(BestZbHeuristic(problem));
  return best;
}

class UnequalWorld : public testing::TestWithParam<size_t> {};

TEST_P(UnequalWorld, IsSearchedBetterThanAnyNamedScheduleOrProvedOptimal) {
  const Unequal& world = kWorlds[GetParam()];
  const Costs costs = CostsOf(world);
  const SearchProblem problem{
      .placement = {PlacementForm::kLinear, kRanks, 1}, .costs = &costs, .limits = LimitsOf(world)};
  SearchOptions options{.evaluations = 400'000};
  const Named named = BestNamed(problem, &options.seeds);
  const Bound bound = LowerBound(problem);
  options.lower_bound = bound.value;
  const SearchAnswer answer = Search(problem, options);
  const Certificate certificate = Certify(bound, answer.value);
  // The table of docs/search.md.
  printf("| %s | %.2f | %.2f, %.2f %% | %s %.2f |\n", world.name, 1e-6 * double(answer.value),
         1e-6 * double(bound.value), 100 * certificate.gap, named.name.c_str(),
         1e-6 * double(named.span));
  EXPECT_LE(certificate.lower_bound, answer.value);
  EXPECT_LE(answer.value, named.span);
  EXPECT_TRUE(answer.value < named.span || certificate.proved_optimal)
      << world.name << ": " << answer.value << ", " << named.name << " " << named.span << ", bound "
      << bound.value;
  Evaluator evaluator(costs);
  const Evaluator::Result& r = evaluator.Evaluate(Schedule(answer.orders), Tail::kBarrier);
  EXPECT_EQ(r.max_rank_span, answer.value);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_LE(r.peak_bytes[rank], problem.limits[rank]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, UnequalWorld, testing::Range<size_t>(0, kWorlds.size()));

}  // namespace
}  // namespace spiritlevel
