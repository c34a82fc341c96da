#include "verify/isolated_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>

#include "base/check.h"
#include "kernels/cpu/model/stage_sizes.h"
#include "tests/verify/model_run.h"

namespace spiritlevel {
namespace {

using testing::Each;
using testing::Ge;
using testing::SizeIs;

constexpr int kCycles = 3;

IsolatedOptions OptionsFor(const TrainingTask& task) {
  IsolatedOptions options{.least_cycles = kCycles, .budget = 0};
  for (const cpu::StageRange& range : task.stages) {
    options.input_bytes.push_back(cpu::SizesOf(task.shape, range).input);
    options.output_bytes.push_back(cpu::SizesOf(task.shape, range).output);
  }
  return options;
}

TEST(IsolatedTail, EveryPieceIsTimedOnceACycleOnEveryRank) {
  for (const std::vector<std::vector<int>>& stages_of :
       {std::vector<std::vector<int>>{{0, 1, 2, 3}}, {{0, 2}, {1, 3}}, {{0}, {1}, {2}, {3}}}) {
    const TrainingTask task = TinyTask(TinyShape(4), 4, 8);
    const TailTimes times = TimeTail(task, stages_of, OptionsFor(task));
    EXPECT_EQ(times.cycles, kCycles);
    for (const auto* pieces :
         {&times.contributions, &times.steps, &times.settlements, &times.rollbacks}) {
      EXPECT_THAT(*pieces, SizeIs(stages_of.size()));
      EXPECT_THAT(*pieces, Each(testing::AllOf(SizeIs(kCycles), Each(Ge(0)))));
    }
  }
}

TEST(IsolatedTail, RanksThatShareACoreAreTimed) {
  const TrainingTask task = TinyTask(TinyShape(2), 2, 8);
  IsolatedOptions options = OptionsFor(task);
  options.cores = {0, 0};
  EXPECT_THAT(TimeTail(task, {{0}, {1}}, options).rollbacks, Each(SizeIs(kCycles)));
}

TEST(IsolatedTail, EndsWhenItIsTold) {
  const TrainingTask task = TinyTask(TinyShape(2), 2, 8);
  const std::atomic<bool> stop = true;
  IsolatedOptions options = OptionsFor(task);
  options.stop = &stop;
  EXPECT_THROW(TimeTail(task, {{0}, {1}}, options), InputError);
}

// Iteration 1 of three is rejected, and nothing else comes near the threshold.
TEST(FaultBehindAll, TakesBackEveryStageButTheLast) {
  for (const bool is_tied : {false, true}) {
    for (const char* name : {"zb-h2", "zb-v", "1f1b"}) {
      SCOPED_TRACE(std::string(name) + (is_tied ? ", tied" : ""));
      const Schedule schedule = Make(name, 2, 4);
      TrainingTask task = WithDistantThreshold(TinyTask(schedule));
      task.shape.tied_embeddings = is_tied;
      std::mutex mutex;
      std::multiset<int> taken_back;
      const TransactionOptions options{.faults = {FaultBehindAll(task, 1)},
                                       .on_rollback = [&](int stage, int64_t iteration) {
                                         const std::lock_guard lock(mutex);
                                         EXPECT_EQ(iteration, 1);
                                         taken_back.insert(stage);
                                       }};
      const Program program =
          Lower(schedule, ModelCosts(task, {}, {.keeps_snapshot = true}),
                {.tail = Tail::kSpeculativeValidation, .iterations = 3, .rejected = {1}});
      const RunReport report =
          RunProgram(program, ModelWorks(task, {.make_tail = TransactionalTails(
                                                    task, options, MakePrefixTable(task))}));
      ASSERT_FALSE(report.failure) << report.failure->message;
      std::multiset<int> all_but_last;
      for (int stage = 0; stage + 1 < schedule.num_stages(); ++stage) all_but_last.insert(stage);
      EXPECT_EQ(taken_back, all_but_last);
    }
  }
}

}  // namespace
}  // namespace spiritlevel
