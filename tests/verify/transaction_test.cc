#include "verify/transaction.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "verify/transaction_prefix.h"
#include "verify/transaction_scalars.h"

namespace spiritlevel {
namespace {

// Of stage 3, two micro-batches, both its own.
StageTransaction Fresh() { return StageTransaction(3, 0, 0, {1, 1}); }

void RunPasses(StageTransaction* at, int64_t iteration) {
  for (const Pass pass : {Pass::kF, Pass::kB, Pass::kW}) {
    for (int i = 0; i < 2; ++i) at->Run(pass, iteration, i);
  }
}

StageTransaction In(StepState state) {
  StageTransaction at = Fresh();
  RunPasses(&at, 0);
  switch (state) {
    case StepState::kNotStarted:
      break;
    case StepState::kProvisional:
      at.StepEagerly();
      break;
    case StepState::kSkipped:
      at.Skip();
      break;
    case StepState::kRolledBack:
      at.StepEagerly();
      at.RollBack();
      break;
    case StepState::kValidated:
      at.StepEagerly();
      at.Validate();
      break;
  }
  return at;
}

constexpr StepState kStates[] = {StepState::kNotStarted, StepState::kProvisional,
                                 StepState::kSkipped, StepState::kValidated,
                                 StepState::kRolledBack};

// The picture in the header, and nothing beside it.
TEST(StageTransaction, TakesTheTransitionsOfItsPictureAndNoOthers) {
  using Event = void (StageTransaction::*)();
  const std::map<std::string, Event> events = {{"eager", &StageTransaction::StepEagerly},
                                               {"skip", &StageTransaction::Skip},
                                               {"validate", &StageTransaction::Validate},
                                               {"roll back", &StageTransaction::RollBack},
                                               {"right", &StageTransaction::StepRight}};
  const std::map<std::pair<StepState, std::string>, StepState> allowed = {
      {{StepState::kNotStarted, "eager"}, StepState::kProvisional},
      {{StepState::kNotStarted, "skip"}, StepState::kSkipped},
      {{StepState::kNotStarted, "right"}, StepState::kValidated},
      {{StepState::kProvisional, "validate"}, StepState::kValidated},
      {{StepState::kProvisional, "roll back"}, StepState::kRolledBack},
      {{StepState::kSkipped, "right"}, StepState::kValidated},
      {{StepState::kRolledBack, "right"}, StepState::kValidated}};
  for (const StepState state : kStates) {
    for (const auto& [name, event] : events) {
      SCOPED_TRACE(std::string(Name(state)) + ", " + name);
      StageTransaction at = In(state);
      ASSERT_EQ(at.state(), state);
      const auto next = allowed.find({state, name});
      if (next == allowed.end()) {
        EXPECT_THROW((at.*event)(), InvariantError);
        EXPECT_EQ(at.state(), state) << "what is refused changes nothing";
      } else {
        (at.*event)();
        EXPECT_EQ(at.state(), next->second);
      }
    }
  }
}

// All subsets of the six passes that can have run, in the order in which they do.
TEST(StageTransaction, DecidesNothingBeforeEveryWeightGradient) {
  const std::vector<std::pair<Pass, int>> passes = {{Pass::kF, 0}, {Pass::kF, 1}, {Pass::kB, 0},
                                                    {Pass::kB, 1}, {Pass::kW, 0}, {Pass::kW, 1}};
  for (size_t count = 1; count < passes.size(); ++count) {
    StageTransaction at = Fresh();
    for (size_t i = 0; i < count; ++i) at.Run(passes[i].first, 0, passes[i].second);
    EXPECT_THROW(at.StepEagerly(), InvariantError) << count;
    EXPECT_THROW(at.Skip(), InvariantError) << count;
    EXPECT_THROW(at.StepRight(), InvariantError) << count;
  }
}

TEST(StageTransaction, RunsEachPassOnceAndInOrder) {
  StageTransaction at = Fresh();
  EXPECT_THROW(at.Run(Pass::kB, 0, 0), InvariantError) << "no B before its F";
  at = Fresh();
  at.Run(Pass::kF, 0, 0);
  EXPECT_THROW(at.Run(Pass::kF, 0, 0), InvariantError);
  EXPECT_THROW(at.Run(Pass::kW, 0, 0), InvariantError) << "no W before its B";
  EXPECT_THROW(at.Run(Pass::kF, 2, 1), InvariantError) << "no iteration is left out";
  EXPECT_THROW(at.Run(Pass::kF, 0, 2), InvariantError) << "there are two micro-batches";
  at.Run(Pass::kBW, 0, 0);
  EXPECT_THROW(at.Run(Pass::kW, 0, 0), InvariantError) << "BW was both";
  StageTransaction half(3, 0, 0, {1, 0});
  EXPECT_THROW(half.Run(Pass::kF, 0, 1), InvariantError) << "the other copy's";
}

TEST(StageTransaction, CountsOneVersionAnIterationHoweverItWasMade) {
  for (const StepState state : kStates) {
    StageTransaction at = In(state);
    if (state == StepState::kProvisional) {
      at.Validate();
    } else if (state != StepState::kValidated) {
      at.StepRight();
    }
    EXPECT_EQ(at.version(), 1) << Name(state);
    at.Run(Pass::kF, 1, 0);
    EXPECT_EQ(at.iteration(), 1);
    EXPECT_EQ(at.state(), StepState::kNotStarted);
  }
}

TEST(StageTransaction, LetsForwardsRunAheadByOneIterationAndNothingElse) {
  StageTransaction at = In(StepState::kNotStarted);
  EXPECT_THROW(at.Run(Pass::kF, 1, 0), InvariantError) << "before the stage has decided";
  at = In(StepState::kProvisional);
  at.Run(Pass::kF, 1, 0);
  EXPECT_TRUE(at.has_run_ahead());
  EXPECT_THROW(at.Run(Pass::kB, 1, 0), InvariantError) << "on a version that nobody has judged";
  EXPECT_THROW(at.Run(Pass::kF, 2, 0), InvariantError) << "two iterations ahead";
  at.Validate();
  EXPECT_THROW(at.DropAhead(), InvariantError) << "what was made from it is good";
  at.Run(Pass::kB, 1, 0);
  EXPECT_EQ(at.state(), StepState::kNotStarted);
  EXPECT_THROW(at.Run(Pass::kF, 1, 0), InvariantError) << "it has run, ahead";
}

TEST(StageTransaction, RunsForwardsAgainThatHaveReadARejectedVersion) {
  for (const StepState state : {StepState::kProvisional, StepState::kSkipped}) {
    SCOPED_TRACE(Name(state));
    StageTransaction at = In(state);
    at.Run(Pass::kF, 1, 0);
    if (state == StepState::kProvisional) {
      EXPECT_THROW(at.RollBack(), InvariantError) << "what was made from it is still there";
    } else {
      EXPECT_THROW(at.StepRight(), InvariantError);
    }
    at.DropAhead();
    if (state == StepState::kProvisional) at.RollBack();
    at.StepRight();
    EXPECT_EQ(at.version(), 1);
    EXPECT_EQ(at.revision(), 1);
    EXPECT_THROW(at.Run(Pass::kB, 1, 0), InvariantError) << "its forward was dropped";
    StageTransaction again = at;
    again.Run(Pass::kF, 1, 0);
    again.Run(Pass::kB, 1, 0);
  }
}

TEST(StageTransaction, KeepsReadersAndWritersApart) {
  StageTransaction at = Fresh();
  {
    const StageTransaction::Changing changing(at);
    EXPECT_THROW(at.BeginReading(), InvariantError);
    EXPECT_THROW(at.Run(Pass::kF, 0, 0), InvariantError);
    EXPECT_THROW(StageTransaction::Changing second(at), InvariantError);
  }
  at.BeginReading();
  at.BeginReading();
  EXPECT_THROW(StageTransaction::Changing changing(at), InvariantError);
  at.EndReading();
  EXPECT_THROW(StageTransaction::Changing changing(at), InvariantError);
  at.EndReading();
  EXPECT_THROW(at.EndReading(), InvariantError);
  const StageTransaction::Changing changing(at);
}

TEST(PrefixTable, KnowsAPrefixOnceAllBeforeItHavePublished) {
  // 1 + 4, 9, 16 + 25 + 36
  PrefixTable table({2, 1, 3});
  const std::vector<std::vector<double>> partials = {{1, 4}, {9}, {16, 25, 36}};
  table.Publish(5, 2, partials[2]);
  EXPECT_FALSE(table.UpTo(5, 0));
  table.Publish(5, 0, partials[0]);
  EXPECT_EQ(table.UpTo(5, 0)->sum, 5);
  EXPECT_FALSE(table.UpTo(5, 1));
  EXPECT_FALSE(table.Full(5));
  table.Publish(5, 1, partials[1]);
  EXPECT_EQ(table.UpTo(5, 1)->sum, 14);
  EXPECT_EQ(table.Full(5)->sum, 91);
  EXPECT_FALSE(table.Full(4)) << "of another iteration";
  EXPECT_FALSE(table.Full(7));
  table.Publish(5, 1, partials[1]);
  EXPECT_THROW(table.Publish(5, 1, std::vector<double>{8}), InvariantError) << "twins agree";
  table.Publish(7, 1, std::vector<double>{8});
  EXPECT_FALSE(table.Full(5)) << "its cells were taken";
  table.Clear();
  EXPECT_FALSE(table.UpTo(7, 1));
}

TEST(PrefixTable, TellsAnOverflowFromThereOn) {
  for (const double value :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    PrefixTable table({1, 1, 1});
    table.Publish(0, 0, std::vector<double>{1});
    table.Publish(0, 1, std::vector<double>{value});
    table.Publish(0, 2, std::vector<double>{1});
    EXPECT_FALSE(table.UpTo(0, 0)->has_overflow);
    EXPECT_TRUE(table.UpTo(0, 1)->has_overflow);
    EXPECT_TRUE(table.Full(0)->has_overflow);
  }
}

TEST(PrefixTable, IsSeenByProcessesThatWereForkedLater) {
  PrefixTable table({1, 1});
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    table.Publish(0, 0, std::vector<double>{3});
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(table.UpTo(0, 0));
  EXPECT_EQ(table.UpTo(0, 0)->sum, 3);
}

TrainingTask TaskOf(double clip_norm) {
  TrainingTask task{.micro_batches = 4, .warmup_steps = 4, .clip_norm = clip_norm};
  task.shape.sequences = 2;
  task.adamw.rate = 1;
  return task;
}

TEST(Scalars, RiseByStepsAndFallByOverflows) {
  const TrainingTask task = TaskOf(1);
  const LossScaling scaling{.first = 8, .steps_until_growth = 2};
  TrainingScalars at = FirstScalars(task, scaling);
  EXPECT_EQ(at.rate, 0.25f);
  at = After(task, scaling, at, false);
  at = After(task, scaling, at, false);
  EXPECT_EQ(at, (TrainingScalars{.iteration = 2,
                                 .step = 2,
                                 .consumed_samples = 16,
                                 .rate = 0.75f,
                                 .loss_scale = 16,
                                 .good_steps = 2}));
  at = After(task, scaling, at, true);
  EXPECT_EQ(at, (TrainingScalars{.iteration = 3,
                                 .step = 2,
                                 .consumed_samples = 24,
                                 .rate = 0.75f,
                                 .loss_scale = 8,
                                 .good_steps = 0}));
}

TEST(Scalars, ClipByTheNormWithoutTheLossScale) {
  const TrainingTask task = TaskOf(2);
  const TrainingScalars scalars{.loss_scale = 16};
  const SquaredNorm small{.sum = 32.0 * 32.0};  // 2
  const SquaredNorm large{.sum = 64.0 * 64.0};  // 4
  EXPECT_TRUE(IsWithin(task, small, scalars));
  EXPECT_EQ(GradientFactor(task, small, scalars), 1.0f / 16);
  EXPECT_FALSE(IsWithin(task, large, scalars));
  EXPECT_EQ(GradientFactor(task, large, scalars), 0.5f / 16);
  EXPECT_FALSE(IsWithin(task, {.sum = 1, .has_overflow = true}, scalars));
  EXPECT_TRUE(IsWithin(TaskOf(0), large, scalars)) << "0: no clipping";
  EXPECT_EQ(GradientFactor(TaskOf(0), large, scalars), 1.0f / 16);
}

}  // namespace
}  // namespace spiritlevel
