#include "verify/isolated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/model/stage_sizes.h"
#include "tests/verify/model_run.h"
#include "verify/clock.h"
#include "verify/model_work.h"

namespace spiritlevel {
namespace {

using testing::Each;
using testing::SizeIs;

constexpr int kCycles = 3;

Program Placement(const Costs& costs, int ranks) {
  std::vector<std::vector<int>> stages_of(static_cast<size_t>(ranks));
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    stages_of[static_cast<size_t>(stage % ranks)].push_back(stage);
  }
  return PlacementProgram(stages_of, costs);
}

IsolatedOptions OptionsFor(const TrainingTask& task) {
  IsolatedOptions options{.least_cycles = kCycles, .budget = 0};
  for (const cpu::StageRange& range : task.stages) {
    options.input_bytes.push_back(cpu::SizesOf(task.shape, range).input);
    options.output_bytes.push_back(cpu::SizesOf(task.shape, range).output);
  }
  return options;
}

// What the fakes below share.
struct Log {
  std::mutex mutex;
  int inside = 0;
  int most_inside = 0;
  std::vector<size_t> input_bytes;
  std::vector<Op> ops;  // of all ranks, as they came
};

class FakeWork : public RankWork {
 public:
  FakeWork(Log* log, int fails_in_rank, const RankContext& context)
      : log_(*log), fails_(context.rank == fails_in_rank), stopping_(context.stopping) {}

  Payload RunOp(OpCall& call) override {
    if (fails_) throw std::runtime_error("a kernel is broken");
    {
      const std::lock_guard lock(log_.mutex);
      log_.most_inside = std::max(log_.most_inside, ++log_.inside);
      log_.input_bytes.push_back(call.input.size());
      log_.ops.push_back(call.op);
    }
    // BW takes four times as long as F, B and W twice.
    const int parts = call.op.pass == Pass::kF ? 1 : call.op.pass == Pass::kBW ? 4 : 2;
    WaitUntil(Now() + parts * 500'000, stopping_);
    const std::lock_guard lock(log_.mutex);
    --log_.inside;
    return {};
  }
  void StepOptimizer(const StepCall&) override {}
  void RollBack(const StepCall&) override {}
  Payload Contribute(const SumCall&) override { return {}; }
  void Combine(const SumCall&, std::span<const std::span<const std::byte>>) override {}
  Bytes TakePeakBytes() override { return 0; }
  void Abandon() noexcept override {}

 private:
  Log& log_;
  const bool fails_;
  const std::atomic<bool>& stopping_;
};

WorkFactory Fakes(Log* log, int fails_in_rank = -1) {
  return [=](const RankContext& context) {
    return std::make_shared<FakeWork>(log, fails_in_rank, context);
  };
}

TEST(Isolated, EveryPassOfEveryStageIsTimedAsOftenAsTheOthers) {
  for (const int ranks : {1, 2}) {
    const TrainingTask task = TinyTask(TinyShape(4), 4, 2);
    const Program placement = Placement(ModelCosts(task), ranks);
    const IsolatedTimes times = TimeInIsolation(placement, ModelWorks(task), OptionsFor(task));
    EXPECT_GE(times.cycles, kCycles);
    const auto cycles = static_cast<size_t>(times.cycles);
    ASSERT_THAT(times.passes, SizeIs(4));
    for (const auto& stage : times.passes) {
      EXPECT_THAT(stage[static_cast<size_t>(Pass::kF)], SizeIs(8 * cycles));
      for (const Pass pass : {Pass::kB, Pass::kW, Pass::kBW}) {
        EXPECT_THAT(stage[static_cast<size_t>(pass)], SizeIs(4 * cycles));
      }
    }
    EXPECT_THAT(times.steps, Each(SizeIs(cycles)));
    EXPECT_THAT(times.contributions, Each(SizeIs(cycles)));
    EXPECT_THAT(times.combinations, Each(SizeIs(cycles)));
    EXPECT_THAT(times.sums, Each(SizeIs(cycles)));
  }
}

TEST(Isolated, LongerPassesHaveLongerTimes) {
  const Costs costs = Costs::Uniform(2, 2, {.forward = 1});
  Log log;
  const IsolatedTimes times = TimeInIsolation(
      Placement(costs, 2), Fakes(&log),
      {.least_cycles = kCycles, .budget = 0, .input_bytes = {0, 64}, .output_bytes = {64, 0}});
  for (const int stage : {0, 1}) {
    EXPECT_LT(times.MedianOf(stage, Pass::kF), times.MedianOf(stage, Pass::kB));
    EXPECT_LT(times.MedianOf(stage, Pass::kB), times.MedianOf(stage, Pass::kBW));
  }
  EXPECT_THAT(log.input_bytes, testing::Contains(64));
  EXPECT_THAT(log.input_bytes, testing::Contains(0));
}

TEST(Isolated, RanksThatShareACoreTakeTurns) {
  const Costs costs = Costs::Uniform(3, 2, {.forward = 1});
  Log log;
  TimeInIsolation(Placement(costs, 3), Fakes(&log),
                  {.cores = {0, 0, 0},
                   .least_cycles = 1,
                   .budget = 0,
                   .input_bytes = {0, 8, 8},
                   .output_bytes = {8, 8, 0}});
  EXPECT_EQ(log.most_inside, 1);
}

TEST(Isolated, RanksOnDifferentCoresComputeAtTheSameTime) {
  const Costs costs = Costs::Uniform(2, 2, {.forward = 1});
  Log log;
  TimeInIsolation(
      Placement(costs, 2), Fakes(&log),
      {.least_cycles = kCycles, .budget = 0, .input_bytes = {0, 8}, .output_bytes = {8, 0}});
  EXPECT_EQ(log.most_inside, 2);
}

// DualPipe's ranks hold two stages each, and one of each pair of passes is of either.
TEST(Isolated, TwinsAreTimedOnBothRanksAndGoFromStageToStageWithEveryPass) {
  const Costs costs = Costs::Uniform(2, 2, {.forward = 1});
  const Program placement =
      PlacementProgram({{0, 1}, {1, 0}}, costs, Tail::kBarrier, /*twins=*/true);
  EXPECT_EQ(placement.parameter_copies(), 2);
  for (const int rank : {0, 1}) EXPECT_THAT(placement.stages_of(rank), SizeIs(2));
  Log log;
  const IsolatedTimes times = TimeInIsolation(placement, Fakes(&log),
                                              {.cores = {0, 0},  // in turns: the log is in order
                                               .least_cycles = 1,
                                               .budget = 0,
                                               .input_bytes = {0, 8},
                                               .output_bytes = {8, 0},
                                               .alternates = true});
  int changes = 0;
  int stays = 0;
  for (size_t i = 1; i < log.ops.size(); ++i) {
    if (log.ops[i].pass != log.ops[i - 1].pass) continue;
    ++(log.ops[i].stage != log.ops[i - 1].stage ? changes : stays);
  }
  EXPECT_GT(changes, 0);
  EXPECT_EQ(stays, 0);
  EXPECT_EQ(times.passes[0][static_cast<size_t>(Pass::kF)].size(),
            times.passes[1][static_cast<size_t>(Pass::kF)].size());
}

TEST(Isolated, AWorkThatThrowsEndsAllRanks) {
  const Costs costs = Costs::Uniform(2, 2, {.forward = 1});
  Log log;
  EXPECT_THROW(TimeInIsolation(Placement(costs, 2), Fakes(&log, /*fails_in_rank=*/1),
                               {.input_bytes = {0, 8}, .output_bytes = {8, 0}}),
               std::runtime_error);
}

TEST(Isolated, EndsWhenItIsTold) {
  const Costs costs = Costs::Uniform(2, 2, {.forward = 1});
  Log log;
  const std::atomic<bool> stop = true;
  EXPECT_THROW(TimeInIsolation(Placement(costs, 2), Fakes(&log),
                               {.input_bytes = {0, 8}, .output_bytes = {8, 0}, .stop = &stop}),
               InputError);
}

TEST(Isolated, TheRuntimeItselfTakesLessThanThePassesItWasTimedWith) {
  const RuntimeTimes times = TimeRuntime(2, 4096, {});
  EXPECT_GE(times.launch, 0);
  EXPECT_GE(times.hop, 0);
  EXPECT_GE(times.barrier, 0);
}

TEST(Isolated, AProductHasARate) { EXPECT_GT(TimeBestGemm({}), 0); }

}  // namespace
}  // namespace spiritlevel
