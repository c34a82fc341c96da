// Run under mpirun, one rank a process: a real transformer, whose bits are those of a plain loop on
// one rank, and whose live bytes are the ledger's. What each rank has comes to the first by MPI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/verify/model_run.h"
#include "tests/verify/mpi_world.h"
#include "verify/transaction_tail.h"

namespace spiritlevel {
namespace {

constexpr const char* kSchedules[] = {"1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"};

struct Kind {
  std::string name;
  std::function<void(cpu::ModelShape&)> change;
};

const std::vector<Kind>& Kinds() {
  static const auto* const kinds = new std::vector<Kind>{
      {"fp32", [](auto&) {}},
      {"bf16", [](auto& s) { s.storage = cpu::DType::kBFloat16; }},
      {"tied embeddings", [](auto& s) { s.tied_embeddings = true; }},
      {"recomputation and dropout",
       [](auto& s) {
         s.recompute = true;
         s.dropout = 0.2;
       }},
  };
  return *kinds;
}

// As ExpectModelRunsRight(), of which the last half is for the first process alone.
void ExpectRightUnderMpi(const TrainingTask& task, const Schedule& schedule,
                         const LoweringOptions& lowering) {
  const Program program = Lower(schedule, UnitCosts(task), lowering);
  const RunReport report = RunProgram(program, ModelWorks(task, {.record = true}),
                                      {.transport = Transport::kMpi, .replicas = task.replicas});
  ASSERT_FALSE(report.failure) << report.failure->message;
  if (World().rank != 0) return;
  const TrainingRecord expected =
      ReferenceSteps(task, GradientOrder::Of(schedule),
                     {.steps = lowering.iterations, .has_norm = lowering.tail == Tail::kBarrier});
  EXPECT_EQ(Difference(task, RecordOf(task, report.results), expected), "");
  for (int replica = 0; replica < task.replicas; ++replica) {
    const Costs costs = ModelCosts(task, UnitTimes(task.num_stages()), {.replica = replica});
    ExpectReplicaIsLegal(Lower(schedule, costs, lowering), costs,
                         report.timelines[static_cast<size_t>(replica)]);
  }
}

TEST(ModelUnderMpi, HasTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  for (const char* const name : kSchedules) {
    const Schedule schedule = Make(name, World().size, 2 * World().size);
    for (const Kind& kind : Kinds()) {
      for (const Tail tail : {Tail::kNoTail, Tail::kBarrier}) {
        SCOPED_TRACE(std::string(name) + ", " + kind.name + ", " + std::string(Name(tail)));
        TrainingTask task = TinyTask(schedule);
        kind.change(task.shape);
        ExpectRightUnderMpi(task, schedule, {.tail = tail, .iterations = 2});
      }
    }
  }
}

TEST(ModelUnderMpi, HasThemUnderEveryPosting) {
  for (const Posting posting : {Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched}) {
    for (const char* const name : {"1f1b", "zb-v"}) {
      SCOPED_TRACE(std::string(name) + ", " + std::string(Name(posting)));
      const Schedule schedule = Make(name, World().size, 2 * World().size);
      ExpectRightUnderMpi(TinyTask(schedule), schedule,
                          {.posting = posting, .tail = Tail::kBarrier, .iterations = 2});
    }
  }
}

// Two replicas of so many ranks as there are processes for.
TEST(ReplicasUnderMpi, HaveTheBitsOfTheReference) {
  for (const char* const name : {"1f1b", "zb-h1", "interleaved"}) {
    const Schedule schedule = Make(name, World().size / 2, World().size);
    for (const bool sharded : {false, true}) {
      for (const Tail tail : {Tail::kNoTail, Tail::kBarrier}) {
        for (const Bytes bucket : {Bytes{0}, Bytes{7000}}) {
          SCOPED_TRACE(std::string(name) + (sharded ? ", sharded, " : ", ") +
                       std::string(Name(tail)) + ", buckets of " + std::to_string(bucket));
          TrainingTask task = TinyTask(schedule);
          task.shape.tied_embeddings = true;
          task.shape.storage = sharded ? cpu::DType::kBFloat16 : cpu::DType::kFloat32;
          task.replicas = 2;
          task.sharded_optimizer = sharded;
          task.bucket_bytes = bucket;
          ExpectRightUnderMpi(task, schedule, {.tail = tail, .iterations = 3});
        }
      }
    }
  }
}

// As many replicas as there are processes, and rendezvous: whoever gathers parameters has sends in
// its queues that others want.
TEST(ReplicasUnderMpi, ShardTheOptimizerOverAllProcesses) {
  const Schedule whole = Make("1f1b", 1, 4);
  TrainingTask task = TinyTask(whole);
  task.replicas = World().size;
  task.sharded_optimizer = true;
  ExpectRightUnderMpi(task, whole, {.tail = Tail::kBarrier, .iterations = 3});
  const Schedule half = Make("zb-h1", World().size / 2, World().size);
  task = TinyTask(half);
  task.replicas = 2;
  task.sharded_optimizer = true;
  for (const Posting posting : {Posting::kNcclFifo, Posting::kBatched}) {
    SCOPED_TRACE(Name(posting));
    ExpectRightUnderMpi(task, half, {.posting = posting, .tail = Tail::kNoTail, .iterations = 3});
  }
}

// Processes of a job outlive its runs, and so can their works.
TEST(KeptWorksUnderMpi, GoOnWhereTheyWere) {
  const Schedule schedule = Make("zb-h1", World().size / 2, World().size);
  TrainingTask task = TinyTask(schedule);
  task.replicas = 2;
  task.sharded_optimizer = true;
  const auto kept = std::make_shared<KeptWorks>();
  const WorkFactory works = ModelWorks(task, {.record = true, .kept = kept});
  TrainingRecord all;
  for (const int iterations : {2, 1, 1}) {
    const Program program =
        Lower(schedule, UnitCosts(task), {.tail = Tail::kBarrier, .iterations = iterations});
    const RunReport report =
        RunProgram(program, works, {.transport = Transport::kMpi, .replicas = 2});
    ASSERT_FALSE(report.failure) << report.failure->message;
    EXPECT_EQ(kept->works.size(), 1u) << "each process has its own rank's";
    if (World().rank != 0) continue;
    for (StepRecord& step : RecordOf(task, report.results)) all.push_back(std::move(step));
  }
  if (World().rank != 0) return;
  EXPECT_EQ(Difference(task, all, ReferenceSteps(task, GradientOrder::Of(schedule), {.steps = 4})),
            "");
}

// One Program, lowered for what its norms will be judged as.
void ExpectTransactionUnderMpi(const TrainingTask& task, const Schedule& schedule,
                               const LoweringOptions& lowering) {
  const Costs costs = ModelCosts(task, UnitTimes(task.num_stages()), {.keeps_snapshot = true});
  const Program program = Lower(schedule, costs, lowering);
  const ModelWorkOptions options{.record = true,
                                 .make_tail = TransactionalTails(task, {}, MakePrefixTable(task))};
  const RunReport report = RunProgram(program, ModelWorks(task, options),
                                      {.transport = Transport::kMpi, .replicas = task.replicas});
  ASSERT_FALSE(report.failure) << report.failure->message;
  if (World().rank != 0) return;
  const TrainingRecord expected =
      ReferenceSteps(task, GradientOrder::Of(schedule), {.steps = lowering.iterations});
  EXPECT_EQ(Difference(task, RecordOf(task, report.results), expected), "");
  if (task.replicas == 1) ExpectReplicaIsLegal(program, costs, report.timelines[0]);
}

TEST(TransactionUnderMpi, HasTheBitsOfABarrierUnderEveryTail) {
  for (const char* const name : kSchedules) {
    const Schedule schedule = Make(name, World().size, 2 * World().size);
    TrainingTask task = TinyTask(schedule);
    task.clip_norm = 1e3;
    for (const Tail tail :
         {Tail::kBarrier, Tail::kStrictValidation, Tail::kSpeculativeValidation}) {
      SCOPED_TRACE(std::string(name) + ", " + std::string(Name(tail)));
      ExpectTransactionUnderMpi(task, schedule, {.tail = tail, .iterations = 3});
    }
  }
}

// The norm is just above the threshold: whatever is not last has stepped by then.
TEST(TransactionUnderMpi, HasThemWhereStepsAreTakenBack) {
  for (const char* const name : kSchedules) {
    SCOPED_TRACE(name);
    const Schedule schedule = Make(name, World().size, 2 * World().size);
    TrainingTask task = TinyTask(schedule);
    task.clip_norm = 0;
    const double norm = ReferenceSteps(task, GradientOrder::Of(schedule)).at(0).norm;
    task.clip_norm = norm * (1 - 1e-9);
    ExpectTransactionUnderMpi(
        task, schedule, {.tail = Tail::kSpeculativeValidation, .iterations = 2, .rejected = {0}});
    ExpectTransactionUnderMpi(task, schedule, {.tail = Tail::kStrictValidation, .iterations = 2});
  }
}

TEST(TransactionUnderMpi, HasThemWithReplicas) {
  const Schedule schedule = Make("zb-h1", World().size / 2, World().size);
  TrainingTask task = TinyTask(schedule);
  task.replicas = 2;
  for (const double clip_norm : {1e3, 1e-3}) {
    task.clip_norm = clip_norm;
    LoweringOptions lowering{.tail = Tail::kSpeculativeValidation, .iterations = 3};
    if (clip_norm < 1) lowering.rejected = {0, 1};
    ExpectTransactionUnderMpi(task, schedule, lowering);
  }
}

TEST(VerdictUnderMpi, OtherThanTheProgramsEndsTheRunOnAllProcesses) {
  const Schedule schedule = Make("zb-h2", World().size, 2 * World().size);
  for (const bool is_clipped : {false, true}) {
    TrainingTask task = TinyTask(schedule);
    task.clip_norm = is_clipped ? 1e-3 : 1e3;
    LoweringOptions lowering{.tail = Tail::kSpeculativeValidation, .iterations = 3};
    if (!is_clipped) lowering.rejected = {0};
    const Program program =
        Lower(schedule, ModelCosts(task, UnitTimes(task.num_stages()), {.keeps_snapshot = true}),
              lowering);
    const ModelWorkOptions options{.make_tail =
                                       TransactionalTails(task, {}, MakePrefixTable(task))};
    const RunReport report =
        RunProgram(program, ModelWorks(task, options), {.transport = Transport::kMpi});
    ASSERT_TRUE(report.failure);
    EXPECT_EQ(report.failure->kind, FailureKind::kVerdict) << report.failure->message;
    EXPECT_EQ(program.nodes()[report.failure->node].iteration, 1);
  }
}

}  // namespace
}  // namespace spiritlevel

int main(int argc, char** argv) { return spiritlevel::RunTestsUnderMpi(&argc, argv); }
