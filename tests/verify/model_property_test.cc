// No schedule that the checker accepts, found or random, gives other bits or other bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/analysis/check_schedule.h"
#include "sim/analysis/deadlock.h"
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

TEST(RandomSchedule, HasTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  constexpr Posting kPostings[] = {Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched};
  for (unsigned seed = 0; seed < 150; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    TrainingTask task = TinyTask(RandomShape(random, schedule.num_stages()), schedule.num_stages(),
                                 schedule.num_micro_batches());
    task.replicas = 1 + (random.Below(4) == 0);
    task.sharded_optimizer = random.Below(2) == 0;
    task.bucket_bytes = random.Below(20'000);
    LoweringOptions options{.posting = kPostings[random.Below(3)],
                            .tail = random.Below(4) == 0 ? Tail::kNoTail : Tail::kBarrier,
                            .iterations = 1 + random.Below(3)};
    options.weight_grads =
        random.Below(2) == 0 ? WeightGrads::kByMicroBatch : WeightGrads::kByBucket;
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + schedule.ToString());
    ASSERT_TRUE(CheckSchedule(schedule.ToOrders()).legal());
    if (FindDeadlock(Lower(schedule, UnitCosts(task), options))) continue;
    ExpectModelRunsRight(task, schedule, options, {.replicas = task.replicas});
  }
}

TEST(SearchedSchedule, HasTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  for (const Placement& placement :
       {Placement{PlacementForm::kLinear, 4, 1}, Placement{PlacementForm::kV, 2, 2},
        Placement{PlacementForm::kLooped, 2, 3}}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const TrainingTask task =
          TinyTask(TinyShape(placement.num_stages()), placement.num_stages(), 6);
      const Costs costs = UnitCosts(task);
      const SearchProblem problem{
          .placement = placement,
          .costs = &costs,
          .limits = std::vector<Bytes>(static_cast<size_t>(placement.ranks), kNoLimit)};
      const SearchAnswer answer =
          Search(problem, {.evaluations = 2000, .islands = 1, .seed = seed, .threads = 1});
      SCOPED_TRACE(std::string(Name(placement.form)) + ", seed " + std::to_string(seed));
      ExpectModelRunsRight(task, Schedule(answer.orders),
                           {.tail = Tail::kBarrier, .iterations = 2});
    }
  }
}

}  // namespace
}  // namespace spiritlevel
