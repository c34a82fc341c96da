// Whatever goes wrong, all ranks end on one validated version, with the bits of a run in which the
// norm was known before anybody stepped.
#include "verify/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "base/check.h"
#include "kernels/cpu/optimizer.h"
#include "tests/verify/observed_run.h"
#include "tests/verify/training_run_case.h"
#include "verify/model_costs.h"
#include "verify/reference_step.h"

namespace spiritlevel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Tail kPostValidations[] = {Tail::kStrictValidation, Tail::kSpeculativeValidation};

class EveryTrainedSchedule : public testing::TestWithParam<const char*> {};

TEST_P(EveryTrainedSchedule, EndsWithTheBarriersBitsUnderEveryTailAndTransport) {
  const Schedule schedule = Make(GetParam(), 4, 8);
  const TrainingTask task = TinyTask(schedule);
  const TrainingState expected = StateAfter(schedule, task, Barrier(), 5);
  for (const Tail tail : kPostValidations) {
    for (const Transport transport : {Transport::kThreads, Transport::kProcesses}) {
      SCOPED_TRACE(Name(tail));
      TrainingRun run(schedule, task,
                      {.tail = tail,
                       .transport = transport,
                       .iterations_per_segment = 3,
                       .shared_payload_bytes = size_t{1} << 22});
      ASSERT_FALSE(run.Run(5)) << Words(run.attempts());
      EXPECT_EQ(Differences(run.state(), expected), "");
      EXPECT_EQ(run.attempts().size(), 2u) << Words(run.attempts());
      EXPECT_EQ(Total(run).rolled_back, 0);
      EXPECT_EQ(Total(run).skipped, 0);
      EXPECT_GT(Total(run).eager, 0);
    }
  }
}

// Every step has something to clip: each version is rejected, and each step made twice by some.
TEST_P(EveryTrainedSchedule, EndsWithTheBarriersBitsWhereEveryStepIsClipped) {
  const Schedule schedule = Make(GetParam(), 4, 8);
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 1e-2;
  const TrainingState expected = StateAfter(schedule, task, Barrier(), 4);
  for (const Tail tail : kPostValidations) {
    SCOPED_TRACE(Name(tail));
    TrainingRun run(schedule, task, {.tail = tail});
    ASSERT_FALSE(run.Run(4)) << Words(run.attempts());
    EXPECT_EQ(Differences(run.state(), expected), "");
    EXPECT_EQ(run.attempts().size(), tail == Tail::kStrictValidation ? 1u : 4u)
        << Words(run.attempts());
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, EveryTrainedSchedule,
                         testing::Values("1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v",
                                         "dualpipe"),
                         [](const auto& test) {
                           std::string name(test.param);
                           std::erase(name, '-');
                           return name;
                         });

TEST(TrainingRun, OfReplicasEndsWithTheBarriersBits) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  TrainingTask task = TinyTask(schedule);
  task.replicas = 2;
  for (const double clip_norm : {1e3, 1e-2}) {
    task.clip_norm = clip_norm;
    const TrainingState expected = StateAfter(schedule, task, Barrier(), 3);
    for (const Tail tail : kPostValidations) {
      SCOPED_TRACE(Name(tail));
      EXPECT_EQ(Differences(StateAfter(schedule, task, {.tail = tail}, 3), expected), "");
    }
  }
}

// By the gradients that a barrier has recorded: squared norms, added parameter by parameter.
double PrefixNorm(const TrainingTask& task, const StepRecord& step, int stages) {
  const ParameterNumbers numbers(task);
  double sum = 0;
  for (const ParameterRecord& parameter : step.parameters) {
    if (parameter.number < numbers.first_of(stages)) sum += cpu::SumOfSquares(parameter.gradient);
  }
  return std::sqrt(sum);
}

TrainingRecord RecordOf(const Schedule& schedule, const TrainingTask& task, int64_t iterations,
                        TrainingRunOptions options = Barrier()) {
  options.record = true;
  TrainingRun run(schedule, task, options);
  EXPECT_FALSE(run.Run(iterations)) << Words(run.attempts());
  return run.record();
}

// The barrier, which all others are compared with, comes to what plain loops on one rank do.
TEST(Barrier, HasTheBitsOfTheReference) {
  for (const char* const name : {"1f1b", "zb-v", "dualpipe"}) {
    const Schedule schedule = Make(name, 4, 8);
    TrainingTask task = TinyTask(schedule);
    for (const double clip_norm : {1e3, 1e-2}) {
      task.clip_norm = clip_norm;
      SCOPED_TRACE(std::string(name) + ", clip " + std::to_string(clip_norm));
      EXPECT_EQ(Difference(task, RecordOf(schedule, task, 3),
                           ReferenceSteps(task, GradientOrder::Of(schedule), {.steps = 3})),
                "");
    }
  }
}

// Four ranks, 8 micro-batches, ZB-H2: the norm of the first three stages is under the threshold, of
// all four above it. So three ranks step, the last skips; the ranks' forwards of iteration 1 run on
// what the three have made, up to rank 2 and beyond; then all of it is dropped and made again.
TEST(Rejection, TakesBackAVersionWhoseActivationsAreTwoRanksAway) {
  const Schedule schedule = Make("zb-h2", 4, 8);
  TrainingTask task = TinyTask(schedule);
  const TrainingRecord free = RecordOf(schedule, task, 1);
  const double before_last = PrefixNorm(task, free[0], 3);
  const double full = PrefixNorm(task, free[0], 4);
  ASSERT_LT(before_last, full);
  task.clip_norm = (before_last + full) / 2;
  const TrainingRecord expected = RecordOf(schedule, task, 2);
  ASSERT_LT(expected[0].clip, 1) << "the first step is clipped";

  for (const bool restart : {false, true}) {
    SCOPED_TRACE(restart ? "rolled back by the Program" : "rolled back between two Programs");
    TrainingRunOptions options{.restart_after_rejection = restart, .record = true};
    TrainingRun run(schedule, task, options);
    ASSERT_FALSE(run.Run(2)) << Words(run.attempts());
    EXPECT_EQ(Difference(task, run.record(), expected), "");
    ASSERT_EQ(run.attempts().size(), 2u) << Words(run.attempts());
    EXPECT_EQ(run.attempts()[0].failure->kind, FailureKind::kVerdict);
    EXPECT_EQ(run.attempts()[1].first_iteration, restart ? 0 : 1);
    EXPECT_EQ(run.attempts()[1].rejected, std::set<int64_t>{0});
    for (int rank = 0; rank < 4; ++rank) {
      const StageCounts& counts = run.counts()[static_cast<size_t>(rank)].at(0);
      SCOPED_TRACE("rank " + std::to_string(rank));
      if (rank == 3) {
        EXPECT_EQ(counts.rolled_back, 0) << "a skipped stage is never rolled back";
        EXPECT_GE(counts.skipped + counts.undecided, 1);
      } else if (restart) {
        EXPECT_GE(counts.rolled_back, 1);
        EXPECT_GT(counts.dropped_forwards, 0) << "its activations were of the rejected version";
      } else {
        // A rank that is stopped before it looked had nothing to take back.
        EXPECT_GE(counts.rolled_back + counts.undecided, 1);
      }
    }
  }
}

// Where a stage stands as a step is judged, by its prefix in a run in which the norm was known
// before; it has run a forward by then, so nobody is undecided.
void ExpectDecided(const TrainingTask& task, const TrainingRecord& record, ObservedWork& work,
                   int64_t judged_iterations) {
  int64_t judged = 0;
  for (const Standing& standing : work.standings()) {
    if (standing.judged == kNone) continue;
    EXPECT_EQ(standing.judged, judged);
    for (const StageStanding& at : standing.stages) {
      const StepRecord& step = record[static_cast<size_t>(judged)];
      const bool is_within = PrefixNorm(task, step, at.stage + 1) <= task.clip_norm;
      EXPECT_EQ(Name(at.state), Name(is_within ? StepState::kProvisional : StepState::kSkipped))
          << "stage " << at.stage << ", iteration " << judged;
      EXPECT_TRUE(at.has_run_ahead);
    }
    ++judged;
  }
  EXPECT_EQ(judged, judged_iterations);
}

TEST(Rejection, IsDecidedByThePrefixOfEachStageAlone) {
  const Schedule schedule = Make("zb-h1", 4, 8);
  TrainingTask task = TinyTask(schedule);
  const TrainingRecord free = RecordOf(schedule, task, 1);
  for (int last_eager = 0; last_eager <= 4; ++last_eager) {
    SCOPED_TRACE("threshold in stage " + std::to_string(last_eager));
    const double below = PrefixNorm(task, free[0], last_eager);
    const double above = last_eager < 4 ? PrefixNorm(task, free[0], last_eager + 1) : 2 * below;
    task.clip_norm = (below + above) / 2;
    const TrainingRecord record = RecordOf(schedule, task, 3);
    LoweringOptions lowering{.tail = Tail::kSpeculativeValidation, .iterations = 3};
    for (int iteration = 0; iteration < 2; ++iteration) {
      const StepRecord& step = record[static_cast<size_t>(iteration)];
      if (step.norm > task.clip_norm) lowering.rejected.push_back(iteration);
    }
    EXPECT_EQ(std::ranges::count(lowering.rejected, 0), last_eager < 4);
    const Program program =
        Lower(schedule, ModelCosts(task, {}, {.keeps_snapshot = true}), lowering);
    const ObservedRun run(program, task, {});
    ASSERT_FALSE(run.report.failure) << run.report.failure->message;
    for (int rank = 0; rank < 4; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      ObservedWork& work = *run.works[static_cast<size_t>(rank)];
      // Each validation behind a rollback has nothing to judge.
      ExpectDecided(task, record, work, 2);
      const StageCounts& counts = work.transaction().counts().at(0);
      EXPECT_EQ(counts.eager + counts.skipped + counts.undecided, 3);
      EXPECT_LE(counts.undecided, rank == 0 ? 0 : 1) << "only behind the last iteration";
    }
  }
}

TEST(Overflow, MakesNoStepHalvesTheLossScaleAndKeepsTheRate) {
  const Schedule schedule = Make("zb-h2", 4, 8);
  const TrainingTask task = TinyTask(schedule);
  for (const float value : {kInf, -kInf, kNan}) {
    for (int stage = 0; stage < 4; ++stage) {
      TransactionOptions transaction{.loss_scaling = {.first = 1024, .steps_until_growth = 2},
                                     .faults = {{.iteration = 1, .stage = stage, .value = value}}};
      const TrainingState before = StateAfter(schedule, task, Barrier(transaction), 1);
      const TrainingState barrier = StateAfter(schedule, task, Barrier(transaction), 2);
      EXPECT_EQ(barrier.parameters, before.parameters) << "no step";
      EXPECT_EQ(barrier.scalars.step, 1);
      EXPECT_EQ(barrier.scalars.iteration, 2);
      EXPECT_EQ(barrier.scalars.loss_scale, 512);
      EXPECT_EQ(barrier.scalars.rate, before.scalars.rate);
      const TrainingState expected = StateAfter(schedule, task, Barrier(transaction), 5);
      for (const Tail tail : kPostValidations) {
        SCOPED_TRACE(std::string(Name(tail)) + ", stage " + std::to_string(stage));
        TrainingRun run(schedule, task, {.tail = tail, .transaction = transaction});
        ASSERT_FALSE(run.Run(5)) << Words(run.attempts());
        EXPECT_EQ(Differences(run.state(), expected), "");
        for (int rank = stage; rank < 4; ++rank) {
          EXPECT_EQ(run.counts()[static_cast<size_t>(rank)].at(0).rolled_back, 0)
              << "whose prefix has overflowed skips";
        }
      }
    }
  }
}

// A power of two, and taken out before anything is compared or clipped.
TEST(LossScale, ChangesNoBitOfTheParameters) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  const TrainingTask task = TinyTask(schedule);
  const TrainingState plain = StateAfter(schedule, task, Barrier(), 3);
  TransactionOptions scaled{.loss_scaling = {.first = 256}};
  const TrainingState other = StateAfter(schedule, task, {.transaction = scaled}, 3);
  EXPECT_EQ(other.parameters, plain.parameters);
  EXPECT_EQ(other.scalars.loss_scale, 256);
}

std::vector<float> FloatsOf(const std::string& bits) {
  std::vector<float> floats(bits.size() / sizeof(float));
  std::memcpy(floats.data(), bits.data(), bits.size());
  return floats;
}

// In units in the last place of `scale` and the entry itself.
double LargestError(const std::string& bits, const std::string& expected_bits, double scale) {
  const std::vector<float> values = FloatsOf(bits);
  const std::vector<float> expected = FloatsOf(expected_bits);
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(double{values[i]} - double{expected[i]});
    largest = std::max(largest, error / ((std::abs(double{expected[i]}) + scale) * 0x1p-23));
  }
  return largest;
}

double LargestOf(const std::string& bits) {
  double largest = 0;
  for (const float value : FloatsOf(bits)) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

// One step is taken back, after two that were right. What the inverse leaves of an entry that had
// no history is the rounding of g^2, and the right step's share is c^2 g^2: so errors grow with 1 /
// c^2.
TEST(InverseRollback, LosesAFewUnitsInTheLastPlaceAndMoreWhereMoreIsClipped) {
  const Schedule schedule = Make("zb-h2", 4, 8);
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 0;
  for (const StepRecord& step : RecordOf(schedule, task, 3)) {
    task.clip_norm = std::max(task.clip_norm, 1.1 * step.norm);
  }
  for (const double over : {2.0, 8.0}) {
    SCOPED_TRACE(over);
    TrainingRunOptions options{};
    options.transaction.faults = {
        {.iteration = 2, .stage = 3, .value = static_cast<float>(over * task.clip_norm)}};
    const TrainingState exact = StateAfter(schedule, task, options, 3);
    options.transaction.undo_by = UndoBy::kInverse;
    TrainingRun run(schedule, task, options);
    ASSERT_FALSE(run.Run(3)) << Words(run.attempts());
    EXPECT_GE(Total(run).rolled_back, 1);
    EXPECT_EQ(run.state().scalars, exact.scalars);
    const double most = 8 * over * over;
    for (const auto& [name, state] : run.state().parameters) {
      SCOPED_TRACE(name);
      const ParameterState& expected = exact.parameters.at(name);
      const double first = LargestOf(expected.first_moment);
      const double second = LargestOf(expected.second_moment);
      EXPECT_LE(LargestError(state.value, expected.value, task.adamw.rate), most);
      EXPECT_LE(LargestError(state.first_moment, expected.first_moment, first), most);
      EXPECT_LE(LargestError(state.second_moment, expected.second_moment, second), most);
    }
  }
}

TEST(TrainingRun, RefusesWhatItCannotTakeBack) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  TrainingTask task = TinyTask(schedule);
  EXPECT_THROW(TrainingRun(schedule, task, {.transport = Transport::kMpi}), InputError);
  EXPECT_THROW(TrainingRun(schedule, task, {.tail = Tail::kNoTail}), InputError);
  EXPECT_THROW(TrainingRun(schedule, task, {.iterations_per_segment = 0}), InputError);
  EXPECT_THROW(TrainingRun(schedule, task, {.segments_per_checkpoint = 1}), InputError);
  task.replicas = 2;
  task.sharded_optimizer = true;
  EXPECT_THROW(TrainingRun(schedule, task, {}), InputError);
}

TEST(TrainingRun, GivesUpAfterAsManyFailuresAsItWasTold) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  const TrainingTask task = TinyTask(schedule);
  TrainingRunOptions options{.most_failures = 2};
  options.faults = [](int attempt, const Program& program) -> std::vector<Fault> {
    if (attempt == 0) return {};
    return {{.kind = FaultKind::kFailWork, .node = program.rank_begin(1)}};
  };
  TrainingRun run(schedule, task, options);
  const std::optional<Failure> failure = run.Run(8);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::kWork);
  EXPECT_EQ(run.attempts().size(), 4u);
  EXPECT_EQ(Differences(run.state(), StateAfter(schedule, task, Barrier(), 4)), "")
      << "the last drain point's";
}

}  // namespace
}  // namespace spiritlevel
