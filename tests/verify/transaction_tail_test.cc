// The transaction inside of single Programs, with their rejections known: bits of the plain loop,
// timelines that pass every check, and bytes to the ledger's last.
#include "verify/transaction_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "tests/verify/model_run.h"

namespace spiritlevel {
namespace {

constexpr int kIterations = 3;

Costs CostsOf(const TrainingTask& task, UndoBy undo_by) {
  return ModelCosts(task, UnitTimes(task.num_stages()),
                    {.keeps_snapshot = undo_by == UndoBy::kSnapshot});
}

RunReport RunTransaction(const TrainingTask& task, const Program& program, UndoBy undo_by) {
  return RunProgram(program,
                    ModelWorks(task, {.record = true,
                                      .make_tail = TransactionalTails(task, {.undo_by = undo_by},
                                                                      MakePrefixTable(task))}));
}

void ExpectRight(const TrainingTask& task, const Schedule& schedule,
                 const LoweringOptions& lowering) {
  const TrainingRecord expected =
      ReferenceSteps(task, GradientOrder::Of(schedule), {.steps = lowering.iterations});
  const Costs costs = CostsOf(task, UndoBy::kSnapshot);
  const Program program = Lower(schedule, costs, lowering);
  const RunReport report = RunTransaction(task, program, UndoBy::kSnapshot);
  ASSERT_FALSE(report.failure) << report.failure->message;
  EXPECT_EQ(Difference(task, RecordOf(task, report.results), expected), "");
  ExpectReplicaIsLegal(program, costs, report.timelines[0]);
}

class EveryTail : public testing::TestWithParam<const char*> {};

TEST_P(EveryTail, HasTheBitsOfTheReferenceAndTheBytesOfTheLedger) {
  const Schedule schedule = Make(GetParam(), 4, 8);
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 1e3;
  for (const Tail tail : {Tail::kBarrier, Tail::kStrictValidation, Tail::kSpeculativeValidation}) {
    SCOPED_TRACE(Name(tail));
    ExpectRight(task, schedule, {.tail = tail, .iterations = kIterations});
  }
}

// Nothing is known to be wrong before it is done, and all of it is.
TEST_P(EveryTail, HasThemWhereEachVersionIsRejected) {
  const Schedule schedule = Make(GetParam(), 4, 8);
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 1e-3;
  ExpectRight(
      task, schedule,
      {.tail = Tail::kSpeculativeValidation, .iterations = kIterations, .rejected = {0, 1}});
  ExpectRight(task, schedule, {.tail = Tail::kStrictValidation, .iterations = kIterations});
}

// The norm is just above the threshold: whatever is not last has stepped by then.
TEST_P(EveryTail, HasThemWhereStepsAreTakenBack) {
  const Schedule schedule = Make(GetParam(), 4, 8);
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 0;
  const double norm = ReferenceSteps(task, GradientOrder::Of(schedule)).at(0).norm;
  task.clip_norm = norm * (1 - 1e-9);
  ExpectRight(task, schedule,
              {.tail = Tail::kSpeculativeValidation, .iterations = 2, .rejected = {0}});
  ExpectRight(task, schedule, {.tail = Tail::kStrictValidation, .iterations = 2});
}

INSTANTIATE_TEST_SUITE_P(Schedules, EveryTail,
                         testing::Values("1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v",
                                         "dualpipe"),
                         [](const auto& test) {
                           std::string name(test.param);
                           std::erase(name, '-');
                           return name;
                         });

TEST(InverseTail, KeepsNoSnapshotInTheLedger) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 1e3;
  const Costs costs = CostsOf(task, UndoBy::kInverse);
  const Program program =
      Lower(schedule, costs, {.tail = Tail::kSpeculativeValidation, .iterations = kIterations});
  const RunReport report = RunTransaction(task, program, UndoBy::kInverse);
  ASSERT_FALSE(report.failure) << report.failure->message;
  ExpectReplicaIsLegal(program, costs, report.timelines[0]);
}

// Ranks come to one verdict, be it for or against the Program's.
TEST(Verdict, OtherThanTheProgramsEndsTheRun) {
  const Schedule schedule = Make("zb-h2", 4, 8);
  for (const bool is_clipped : {false, true}) {
    TrainingTask task = TinyTask(schedule);
    task.clip_norm = is_clipped ? 1e-3 : 1e3;
    LoweringOptions lowering{.tail = Tail::kSpeculativeValidation, .iterations = kIterations};
    if (!is_clipped) lowering.rejected = {0};
    const Program program = Lower(schedule, CostsOf(task, UndoBy::kSnapshot), lowering);
    const RunReport report = RunTransaction(task, program, UndoBy::kSnapshot);
    ASSERT_TRUE(report.failure);
    EXPECT_EQ(report.failure->kind, FailureKind::kVerdict) << report.failure->message;
    EXPECT_EQ(program.nodes()[report.failure->node].iteration, 1);
  }
}

TEST(TransactionalTail, RefusesAProgramWithoutATail) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  const TrainingTask task = TinyTask(schedule);
  const Program program =
      Lower(schedule, CostsOf(task, UndoBy::kSnapshot), {.tail = Tail::kNoTail});
  const RunReport report = RunTransaction(task, program, UndoBy::kSnapshot);
  ASSERT_TRUE(report.failure);
  EXPECT_THAT(report.failure->message, testing::HasSubstr("no step can be judged"));
}

}  // namespace
}  // namespace spiritlevel
