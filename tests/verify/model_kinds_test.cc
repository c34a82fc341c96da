// Every kind of model, of data parallelism and of transport, on a few schedules each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/verify/model_run.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

constexpr LoweringOptions kBarrier{.tail = Tail::kBarrier, .iterations = 3};

struct Kind {
  std::string name;
  std::function<void(cpu::ModelShape&)> change;
};

const std::vector<Kind>& Kinds() {
  static const auto* const kinds =
      new std::vector<Kind>{{"tied embeddings", [](auto& s) { s.tied_embeddings = true; }},
                            {"bf16", [](auto& s) { s.storage = cpu::DType::kBFloat16; }},
                            {"dropout", [](auto& s) { s.dropout = 0.2; }},
                            {"mixture of experts",
                             [](auto& s) {
                               s.mlp = cpu::MlpKind::kMixtureOfExperts;
                               s.experts = 3;
                               s.top_k = 2;
                             }},
                            {"recomputation", [](auto& s) { s.recompute = true; }},
                            {"plain MLP, layer norm and biases",
                             [](auto& s) {
                               s.mlp = cpu::MlpKind::kGelu;
                               s.norm = cpu::NormKind::kLayer;
                               s.biases = true;
                               s.sequences = 2;
                             }},
                            {"nearly all of it at once", [](auto& s) {
                               s.mlp = cpu::MlpKind::kGelu;
                               s.norm = cpu::NormKind::kLayer;
                               s.biases = true;
                               s.tied_embeddings = true;
                               s.storage = cpu::DType::kBFloat16;
                               s.dropout = 0.1;
                               s.recompute = true;
                             }}};
  return *kinds;
}

struct Choice {
  const char* name;
  int ranks;
};
constexpr Choice kChoices[] = {{"1f1b", 2},  {"zb-h1", 4},    {"interleaved", 2}, {"zb-v", 2},
                               {"zb-h2", 1}, {"dualpipe", 4}, {"dualpipe-v", 2}};

Schedule MakeChoice(const Choice& choice) {
  return Make(choice.name, choice.ranks, 2 * choice.ranks + 2);
}

std::string Words(const Choice& choice) {
  return std::string(choice.name) + " on " + std::to_string(choice.ranks) + " ranks";
}

TEST(EveryKindOfModel, HasTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  for (const Kind& kind : Kinds()) {
    for (const Choice& choice : kChoices) {
      const Schedule schedule = MakeChoice(choice);
      TrainingTask task = TinyTask(schedule);
      kind.change(task.shape);
      SCOPED_TRACE(kind.name + ", " + Words(choice));
      ExpectModelRunsRight(task, schedule, kBarrier);
    }
  }
}

TEST(UnevenStages, HaveTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  const Schedule schedule = Make("zb-h1", 3, 5);
  TrainingTask task = TinyTask(TinyShape(5), 3, 5);
  task.stages = {{.first_layer = 0, .layers = 0, .embedding = true},
                 {.first_layer = 0, .layers = 4},
                 {.first_layer = 4, .layers = 1, .head = true}};
  ExpectModelRunsRight(task, schedule, kBarrier);
}

TEST(Pairs, HoldWhatTwoOverlappedOpsDoWhicheverComesFirst) {
  for (const char* const orders :
       {"0F0 1F0 (1BW0;0F1) 1F1 0BW0 1BW1 0BW1\n", "0F0 1F0 (0F1;1BW0) 1F1 0BW0 1BW1 0BW1\n",
        "0F0 0F1 (0F2;0BW0) (0BW1;0F3) 0BW2 0BW3\n"
        "1F0 1BW0 1F1 1BW1 1F2 1BW2 1F3 1BW3\n"}) {
    SCOPED_TRACE(orders);
    const Schedule schedule = Schedule::Parse(orders);
    ExpectModelRunsRight(TinyTask(schedule), schedule, kBarrier);
  }
}

TEST(WithoutATail, NothingIsClipped) {
  for (const Choice& choice : kChoices) {
    SCOPED_TRACE(Words(choice));
    const Schedule schedule = MakeChoice(choice);
    ExpectModelRunsRight(TinyTask(schedule), schedule, {.tail = Tail::kNoTail, .iterations = 3});
  }
}

TEST(EveryPosting, HasTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  for (const Posting posting : {Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched}) {
    for (const Choice& choice : kChoices) {
      SCOPED_TRACE(std::string(Name(posting)) + ", " + Words(choice));
      const Schedule schedule = MakeChoice(choice);
      LoweringOptions options = kBarrier;
      options.posting = posting;
      ExpectModelRunsRight(TinyTask(schedule), schedule, options);
    }
  }
}

TEST(Replicas, HaveTheBitsOfTheReference) {
  for (const Choice& choice : kChoices) {
    for (const bool sharded : {false, true}) {
      for (const WeightGrads order : {WeightGrads::kByMicroBatch, WeightGrads::kByBucket}) {
        SCOPED_TRACE(Words(choice) + (sharded ? ", sharded, " : ", ") + std::string(Name(order)));
        const Schedule schedule = MakeChoice(choice);
        TrainingTask task = TinyTask(schedule);
        task.shape.tied_embeddings = true;
        task.replicas = 2;
        task.sharded_optimizer = sharded;
        task.bucket_bytes = sharded ? 0 : 7000;
        LoweringOptions options = kBarrier;
        options.weight_grads = order;
        ExpectModelRunsRight(task, schedule, options, {.replicas = 2});
      }
    }
  }
}

TEST(Replicas, ThreeOfThemShardAbf16Model) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  TrainingTask task = TinyTask(schedule);
  task.shape.storage = cpu::DType::kBFloat16;
  task.replicas = 3;
  task.sharded_optimizer = true;
  ExpectModelRunsRight(task, schedule, kBarrier, {.replicas = 3});
}

TEST(Replicas, OwnEachParameterOnce) {
  TrainingTask task = TinyTask(TinyShape(4), 2, 4);
  task.replicas = 3;
  task.sharded_optimizer = true;
  for (int stage = 0; stage < task.num_stages(); ++stage) {
    std::vector<int> owners(
        cpu::ParametersOf(task.shape, task.stages[static_cast<size_t>(stage)]).size(), 0);
    for (int replica = 0; replica < task.replicas; ++replica) {
      for (const int i : OwnedBy(task, stage, replica)) ++owners[static_cast<size_t>(i)];
    }
    EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
  }
}

TEST(Processes, HaveTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  const RunOptions options{.transport = Transport::kProcesses,
                           .shared_payload_bytes = size_t{1} << 26};
  for (const Choice& choice : {kChoices[1], kChoices[3], kChoices[5]}) {
    SCOPED_TRACE(Words(choice));
    const Schedule schedule = MakeChoice(choice);
    ExpectModelRunsRight(TinyTask(schedule), schedule, kBarrier, options);
  }
}

TEST(Processes, OfReplicasGatherShardedParameters) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  TrainingTask task = TinyTask(schedule);
  task.replicas = 2;
  task.sharded_optimizer = true;
  ExpectModelRunsRight(
      task, schedule, kBarrier,
      {.transport = Transport::kProcesses, .replicas = 2, .shared_payload_bytes = size_t{1} << 26});
}

TEST(KeptWorks, GoOnWhereTheyWere) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  TrainingTask task = TinyTask(schedule);
  task.replicas = 2;
  task.sharded_optimizer = true;
  const auto kept = std::make_shared<KeptWorks>();
  const WorkFactory works = ModelWorks(task, {.record = true, .kept = kept});
  TrainingRecord all;
  for (const int iterations : {2, 1, 1}) {
    const Program program =
        Lower(schedule, UnitCosts(task), {.tail = Tail::kBarrier, .iterations = iterations});
    const RunReport report = RunProgram(program, works, {.replicas = 2});
    ASSERT_FALSE(report.failure) << report.failure->message;
    for (StepRecord& step : RecordOf(task, report.results)) all.push_back(std::move(step));
  }
  EXPECT_EQ(kept->works.size(), 4u);
  EXPECT_EQ(Difference(task, all, ReferenceSteps(task, GradientOrder::Of(schedule), {.steps = 4})),
            "");
}

// Wherever W come in the order of micro-batches, schedules agree with 1F1B, and with each other,
// and with the model on one rank in one piece.
TEST(OrderOfMicroBatches, GivesTheBitsOfOneFOneBOnAnyNumberOfRanks) {
  constexpr int kMicroBatches = 10;
  const TrainingTask whole = TinyTask(TinyShape(8), 1, kMicroBatches);
  const RunOfModel one_rank = RunModel(whole, Make("1f1b", 1, kMicroBatches), kBarrier);
  EXPECT_EQ(Difference(whole, one_rank.record,
                       ReferenceSteps(whole, GradientOrder::InOrder(whole), {.steps = 3})),
            "");
  int schedules = 0;
  for (const ScheduleInfo& info : AllSchedules()) {
    for (const int ranks : {2, 4, 8}) {
      const auto schedule = ScheduleFor(info, {.ranks = ranks, .micro_batches = kMicroBatches});
      if (!schedule || schedule->num_stages() > 8) continue;
      const TrainingTask task = TinyTask(TinyShape(8), schedule->num_stages(), kMicroBatches);
      if (GradientOrder::Of(*schedule) != GradientOrder::InOrder(task)) continue;
      ++schedules;
      SCOPED_TRACE(std::string(info.name) + " on " + std::to_string(ranks) + " ranks");
      EXPECT_EQ(Difference(task, RunModel(task, *schedule, kBarrier).record, one_rank.record), "");
    }
  }
  EXPECT_GE(schedules, 12);
}

// The comparisons above can fail: another order has other bits, and they say where.
TEST(Difference, NamesTheParameterWhoseGradientWasAddedUpInAnotherOrder) {
  const TrainingTask task = TinyTask(TinyShape(2), 2, 4);
  const GradientOrder in_order = GradientOrder::InOrder(task);
  GradientOrder other = in_order;
  std::swap(other.stages[1][0][1], other.stages[1][0][3]);
  const TrainingRecord a = ReferenceSteps(task, in_order);
  EXPECT_THAT(Difference(task, a, ReferenceSteps(task, other)),
              HasSubstr("step 0: gradient of layers.1.attention.norm.weight differs in"));
  TrainingRecord changed = a;
  changed[0].losses[2].sum += 1e-9;
  EXPECT_THAT(Difference(task, a, changed), HasSubstr("step 0: loss of micro-batch 2 differs"));
  changed = a;
  changed[0].parameters[3].second_moment[5] = -1;
  EXPECT_THAT(Difference(task, a, changed), HasSubstr("second moment of layers.0."));
  changed = a;
  changed[0].clip *= 0.5f;
  EXPECT_THAT(Difference(task, a, changed), HasSubstr("clip coefficient"));
  EXPECT_EQ(Difference(task, a, a), "");
}

TEST(Record, OfRanksThatDoNotAgreeIsRefused) {
  const Schedule schedule = Make("dualpipe", 2, 4);
  const TrainingTask task = TinyTask(schedule);
  RunOfModel run = RunModel(task, schedule, kBarrier);
  RankRecord record = ParseRankRecord(run.report.results[1].bytes());
  ASSERT_FALSE(record.steps.empty());
  record.steps[1].parameters[4].value[3] += 1;
  run.report.results[1] = Serialize(record);
  EXPECT_THROW(RecordOf(task, run.report.results), std::runtime_error);
}

// The first steps of the run are clipped, and the loss falls: it is training that is compared.
TEST(TinyTask, Learns) {
  const Schedule schedule = Make("zb-h1", 2, 8);
  TrainingTask task = TinyTask(schedule);
  const TrainingRecord record =
      RunModel(task, schedule, {.tail = Tail::kBarrier, .iterations = 25}).record;
  ASSERT_EQ(record.size(), 25u);
  EXPECT_LT(record[0].clip, 1);
  EXPECT_GT(record[0].norm, task.clip_norm);
  EXPECT_LT(record[0].rate, record[10].rate);
  EXPECT_EQ(record[24].consumed_samples, 25 * 8);
  const auto loss = [](const StepRecord& step) {
    double sum = 0;
    for (const LossRecord& l : step.losses) sum += l.sum;
    return sum;
  };
  EXPECT_LT(loss(record[24]), 0.95 * loss(record[0]));
}

TEST(Data, GoesOnInOneStreamHoweverItIsCut) {
  TrainingTask a = TinyTask(TinyShape(2), 1, 6);
  TrainingTask b = a;
  b.micro_batches = 3;
  b.first_sample = 6;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(DataOf(a, 1, i).tokens, DataOf(b, 0, i).tokens);
    EXPECT_EQ(DataOf(a, 1, 3 + i).targets, DataOf(b, 1, i).targets);
  }
  EXPECT_EQ(SamplesAfter(a, 1), SamplesAfter(b, 1));
  EXPECT_NE(DataOf(a, 0, 0).tokens, DataOf(a, 0, 1).tokens);
}

TEST(LearningRate, RisesInEqualStepsAndStays) {
  TrainingTask task;
  task.adamw.rate = 0.5f;
  task.warmup_steps = 4;
  EXPECT_EQ(RateOf(task, 0), 0.125f);
  EXPECT_EQ(RateOf(task, 2), 0.375f);
  EXPECT_EQ(RateOf(task, 3), 0.5f);
  EXPECT_EQ(RateOf(task, 100), 0.5f);
}

// A work by itself, whose ops and sums the test calls.
struct SingleWork {
  explicit SingleWork(TrainingTask the_task)
      : task(std::move(the_task)),
        schedule(Schedule::Parse("0F0 0F1 0B0 0B1 0W0 0W1\n")),
        program(Lower(schedule, UnitCosts(task), kBarrier)),
        work(ModelWorks(task)(
            {.program = program, .rank = 0, .replica = 0, .replicas = 2, .stopping = stopping})) {}

  void Run(Pass pass, int micro_batch, Part part = {}) {
    OpCall call{.op = {.micro_batch = micro_batch, .pass = pass}, .part = part};
    work->RunOp(call);
  }

  TrainingTask task;
  Schedule schedule;
  std::atomic<bool> stopping{false};
  Program program;
  std::shared_ptr<RankWork> work;
};

TEST(WeightGrad, IsRefusedOnceTheSumOfItsBucketHasBegun) {
  TrainingTask task = TinyTask(TinyShape(2), 1, 2);
  task.replicas = 2;
  SingleWork single(task);
  const int count = static_cast<int>(BucketsOf(task, 0).size());
  ASSERT_EQ(count, 4);
  for (const Pass pass : {Pass::kF, Pass::kB}) {
    for (const int i : {0, 1}) single.Run(pass, i);
  }
  single.Run(Pass::kW, 0);
  single.Run(Pass::kW, 1, {.index = 0, .count = count});
  single.work->Contribute({.kind = NodeKind::kBucketSum, .stage = 0, .bucket = 0});
  single.Run(Pass::kW, 1, {.index = 1, .count = count});
  EXPECT_THROW(single.Run(Pass::kW, 1, {.index = 0, .count = count}), InvariantError);
  single.work->Contribute({.kind = NodeKind::kBucketSum, .stage = 0, .bucket = 2});
  EXPECT_THROW(single.Run(Pass::kW, 1, {.index = 2, .count = count}), InvariantError);
  single.work->Abandon();
}

TEST(WeightGrad, HasAllToBeDoneBeforeTheStep) {
  TrainingTask task = TinyTask(TinyShape(2), 1, 2);
  task.replicas = 2;
  SingleWork single(task);
  single.Run(Pass::kF, 0);
  single.Run(Pass::kB, 0);
  EXPECT_THROW(single.work->StepOptimizer({}), InvariantError);
  single.work->Abandon();
}

TEST(Costs, ThatLeaveASumOutAreRefused) {
  const Schedule schedule = Make("dualpipe", 2, 4);
  const TrainingTask task = TinyTask(schedule);
  const Program program = Lower(schedule, UniformFor(schedule, kUnit), kBarrier);
  const RunReport report = RunProgram(program, ModelWorks(task));
  ASSERT_TRUE(report.failure);
  EXPECT_EQ(report.failure->kind, FailureKind::kInternal);
  EXPECT_THAT(report.failure->message, HasSubstr("a stage on two ranks has a sum of gradients"));
}

TEST(PostValidation, NeedsATailOfItsOwn) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  const TrainingTask task = TinyTask(schedule);
  const Program program = Lower(schedule, UnitCosts(task), {.tail = Tail::kStrictValidation});
  const RunReport report = RunProgram(program, ModelWorks(task));
  ASSERT_TRUE(report.failure);
  EXPECT_THAT(report.failure->message, HasSubstr("use a barrier, or none"));
}

// What is handed over is counted apart, and everything else by its use.
TEST(MemoryRecord, HasThePeakOfTheLedger) {
  for (const Choice& choice : kChoices) {
    SCOPED_TRACE(Words(choice));
    const Schedule schedule = MakeChoice(choice);
    const TrainingTask task = TinyTask(schedule);
    const RunOfModel run = RunModel(task, schedule, kBarrier);
    const std::vector<Event> events =
        CollectEvents(run.program, SimulateInOrder(run.program), run.program.num_iterations());
    for (int rank = 0; rank < run.program.num_ranks(); ++rank) {
      const MemoryRecord memory =
          ParseRankRecord(run.report.results[static_cast<size_t>(rank)].bytes()).memory;
      Bytes peak = 0;
      MemoryByCategory peaks{};
      for (const Event& event : events) {
        if (event.rank != rank || event.kind == NodeKind::kSend ||
            event.kind == NodeKind::kReceive || SumsGradients(event.kind)) {
          continue;
        }
        peak = std::max(peak, event.live);
        for (size_t i = 0; i < peaks.size(); ++i) peaks[i] = std::max(peaks[i], event.after[i]);
      }
      EXPECT_EQ(memory.peak, peak);
      for (size_t use = 0; use < memory.peak_by_use.size(); ++use) {
        EXPECT_EQ(memory.peak_by_use[use], peaks[use]) << Name(static_cast<MemoryCategory>(use));
      }
      EXPECT_EQ(memory.most_handed_over > 0, schedule.num_stages() > 1);
    }
  }
}

TEST(TrainingTask, IsRefusedWithTheFieldThatIsWrong) {
  const TrainingTask good = TinyTask(TinyShape(4), 2, 4);
  const auto refusal = [](TrainingTask task) -> std::string {
    try {
      CheckTrainingTask(task);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(good), "");
  TrainingTask task = good;
  task.stages.pop_back();
  EXPECT_THAT(refusal(task), HasSubstr("the head in the last"));
  task = good;
  task.stages[1].first_layer = 3;
  task.stages[1].layers = 1;
  EXPECT_THAT(refusal(task), HasSubstr("does not begin where the one before ends"));
  task = good;
  task.micro_batches = 0;
  EXPECT_THAT(refusal(task), HasSubstr("micro_batches"));
  task = good;
  task.clip_norm = -1;
  EXPECT_THAT(refusal(task), HasSubstr("clip_norm"));
}

}  // namespace
}  // namespace spiritlevel
