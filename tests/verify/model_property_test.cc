// No schedule that the checker accepts, found or random, gives other bits or other bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "sim/analysis/check_schedule.h"
#include "sim/analysis/deadlock.h"
#include "sim/search/bound.h"
#include "sim/search/search.h"
#include "tests/sim/random_case.h"
#include "tests/verify/model_run.h"

namespace spiritlevel {
namespace {

cpu::ModelShape RandomShape(RandomCase& random, int layers) {
  cpu::ModelShape shape = TinyShape(layers);
  shape.norm = random.Below(2) == 0 ? cpu::NormKind::kRms : cpu::NormKind::kLayer;
  switch (random.Below(3)) {
    case 0:
      shape.mlp = cpu::MlpKind::kGelu;
      shape.biases = random.Below(2) == 0;
      break;
    case 1:
      shape.mlp = cpu::MlpKind::kMixtureOfExperts;
      shape.experts = 2 + random.Below(2);
      shape.top_k = 1 + random.Below(2);
      break;
    default:
      break;
  }
  shape.storage = random.Below(3) == 0 ? cpu::DType::kBFloat16 : cpu::DType::kFloat32;
  shape.dropout = random.Below(3) == 0 ? 0.1 : 0;
  shape.tied_embeddings = random.Below(2) == 0;
  shape.recompute = random.Below(4) == 0;
  shape.seed = static_cast<uint64_t>(1 + random.Below(1000));
  return shape;
}

// Post-validations accept where nothing is clipped; a sharded optimizer has none.
void UseTail(Tail tail, TrainingTask* task) {
  if (!IsPostValidation(tail)) return;
  task->clip_norm = 1e3;
  task->sharded_optimizer = false;
}

TEST(RandomSchedule, HasTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  constexpr Posting kPostings[] = {Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched};
  constexpr Tail kTails[] = {Tail::kNoTail,
                             Tail::kBarrier,
                             Tail::kBarrier,
                             Tail::kStrictValidation,
                             Tail::kSpeculativeValidation,
                             Tail::kSpeculativeValidation};
  std::map<Tail, int> runs;
  for (unsigned seed = 0; seed < 200; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    TrainingTask task = TinyTask(RandomShape(random, schedule.num_stages()), schedule.num_stages(),
                                 schedule.num_micro_batches());
    task.replicas = 1 + (random.Below(4) == 0);
    task.sharded_optimizer = random.Below(2) == 0;
    task.bucket_bytes = random.Below(20'000);
    LoweringOptions options{.posting = kPostings[random.Below(3)],
                            .tail = kTails[random.Below(6)],
                            .iterations = 1 + random.Below(3)};
    options.weight_grads =
        random.Below(2) == 0 ? WeightGrads::kByMicroBatch : WeightGrads::kByBucket;
    UseTail(options.tail, &task);
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + std::string(Name(options.tail)) + " " +
                 schedule.ToString());
    ASSERT_TRUE(CheckSchedule(schedule.ToOrders()).legal());
    if (FindDeadlock(Lower(schedule, UnitCosts(task), options))) continue;
    ExpectModelRunsRight(task, schedule, options, {.replicas = task.replicas});
    ++runs[options.tail];
  }
  EXPECT_GE(runs[Tail::kBarrier], 40);
  EXPECT_GE(runs[Tail::kStrictValidation], 20);
  EXPECT_GE(runs[Tail::kSpeculativeValidation], 40);
}

constexpr Placement kPlacements[] = {
    {PlacementForm::kLinear, 4, 1}, {PlacementForm::kV, 2, 2}, {PlacementForm::kLooped, 2, 3}};

Schedule Found(const SearchProblem& problem, uint64_t seed) {
  const SearchAnswer answer =
      Search(problem, {.evaluations = 2000, .islands = 1, .seed = seed, .threads = 1});
  return Schedule(answer.orders);
}

void ExpectFoundRunsRight(TrainingTask task, const Schedule& schedule) {
  for (const Tail tail : {Tail::kBarrier, Tail::kStrictValidation, Tail::kSpeculativeValidation}) {
    SCOPED_TRACE(Name(tail));
    UseTail(tail, &task);
    ExpectModelRunsRight(task, schedule, {.tail = tail, .iterations = 2});
  }
}

TEST(SearchedSchedule, HasTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  for (const Placement& placement : kPlacements) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const TrainingTask task =
          TinyTask(TinyShape(placement.num_stages()), placement.num_stages(), 6);
      const Costs costs = UnitCosts(task);
      const SearchProblem problem{
          .placement = placement,
          .costs = &costs,
          .limits = std::vector<Bytes>(static_cast<size_t>(placement.ranks), kNoLimit)};
      SCOPED_TRACE(std::string(Name(placement.form)) + ", seed " + std::to_string(seed));
      ExpectFoundRunsRight(task, Found(problem, seed));
    }
  }
}

// The most that lay on a rank, by a measured timeline.
Bytes PeakOf(const RunOfModel& run, int rank) {
  Bytes peak = 0;
  for (NodeId id = run.program.rank_begin(rank); id < run.program.rank_end(rank); ++id) {
    peak = std::max(peak, run.report.timelines[0].nodes[static_cast<size_t>(id)].live);
  }
  return peak;
}

std::vector<Bytes> PeaksOf(const TrainingTask& task, const Schedule& schedule) {
  const RunOfModel run = RunModel(task, schedule, {.tail = Tail::kBarrier, .iterations = 2});
  std::vector<Bytes> peaks;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) peaks.push_back(PeakOf(run, rank));
  return peaks;
}

// Between what one micro-batch needs and what an order takes that may have all: so it must be
// another order, with the same bits, and what is measured stays within the limit.
TEST(SearchedSchedule, UnderAMemoryLimitKeepsItAndHasTheSameBits) {
  for (const Placement& placement : kPlacements) {
    const TrainingTask task =
        TinyTask(TinyShape(placement.num_stages()), placement.num_stages(), 6);
    const Costs costs = UnitCosts(task);
    SearchProblem problem{
        .placement = placement,
        .costs = &costs,
        .limits = std::vector<Bytes>(static_cast<size_t>(placement.ranks), kNoLimit)};
    const std::vector<Bytes> free = PeaksOf(task, Found(problem, 1));
    for (int quarters = 1; quarters <= 3; ++quarters) {
      SCOPED_TRACE(std::string(Name(placement.form)) + ", " + std::to_string(quarters) +
                   " quarters of the way to what the search takes");
      bool is_tight = false;
      for (int rank = 0; rank < placement.ranks; ++rank) {
        const auto at = static_cast<size_t>(rank);
        const Bytes least = LeastFeasibleLimit(problem, rank);
        problem.limits[at] = least + (free[at] - least) * quarters / 4;
        is_tight = is_tight || problem.limits[at] < free[at];
      }
      ASSERT_TRUE(is_tight) << "a limit that all keep by themselves shows nothing";
      for (uint64_t seed = 1; seed <= 2; ++seed) {
        const Schedule schedule = Found(problem, seed);
        const std::vector<Bytes> peaks = PeaksOf(task, schedule);
        for (int rank = 0; rank < placement.ranks; ++rank) {
          EXPECT_LE(peaks[static_cast<size_t>(rank)], problem.limits[static_cast<size_t>(rank)]);
        }
        ExpectFoundRunsRight(task, schedule);
      }
      problem.limits.assign(problem.limits.size(), kNoLimit);
    }
  }
}

}  // namespace
}  // namespace spiritlevel
