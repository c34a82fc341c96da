// Who steps before the norm is known, and who does not: each stage of a pipeline by itself, under
// numbers that others have published and gradients that it has, on either side of each threshold.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/verify/training_run_case.h"
#include "verify/model_costs.h"
#include "verify/transaction_tail.h"

namespace spiritlevel {
namespace {

constexpr int kRanks = 4;
constexpr double kClipNorm = 4;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Setting {
  Schedule schedule = Make("zb-h1", kRanks, 5);
  TrainingTask task = [this] {
    TrainingTask tiny = TinyTask(schedule);
    tiny.clip_norm = kClipNorm;
    return tiny;
  }();
  Program program = Lower(schedule, ModelCosts(task, {}, {.keeps_snapshot = true}),
                          {.tail = Tail::kSpeculativeValidation, .iterations = 2});
};

// One rank and its stage, by hand: passes without kernels, so that a gradient is what is put in.
class OneStage {
 public:
  // `gradient`: one entry of the stage's; all others are 0.
  OneStage(const Setting& setting, int rank, float gradient, float loss_scale)
      : setting_(setting),
        rank_(rank),
        context_{.program = setting.program, .rank = rank, .stopping = stopping_},
        model_(context_, std::make_shared<const TrainingTask>(setting.task), nullptr, false),
        table_(MakePrefixTable(setting.task)),
        tail_(model_, context_,
              {.loss_scaling = {.first = loss_scale},
               .faults = {{.iteration = 0, .stage = rank, .value = gradient}}},
              table_) {}

  // As another rank does: the squared norm of all of its stage's parameters is `squared`.
  void PublishOf(int stage, double squared) {
    const ParameterNumbers& numbers = model_.numbers();
    std::vector<double> partials(
        static_cast<size_t>(numbers.end_of(stage) - numbers.first_of(stage)), 0.0);
    partials.back() = squared;
    table_->Publish(0, stage, partials);
  }

  // All passes of iteration 0, and this stage's own numbers.
  void RunIteration() {
    for (NodeId id = setting_.program.rank_begin(rank_); id < setting_.program.rank_end(rank_);
         ++id) {
      const Node& node = setting_.program.nodes()[id];
      if (node.kind != NodeKind::kOp || node.iteration != 0) continue;
      OpCall call{.node = id, .op = node.op};
      tail_.BeginPass(call);
      tail_.EndPass(call);
    }
    tail_.Contribute({});
  }

  void Step() { tail_.Step({.iteration = 0}); }

  void BeginForwardAhead() {
    tail_.BeginPass(
        {.op = {.micro_batch = 0, .stage = static_cast<uint16_t>(rank_), .pass = Pass::kF},
         .iteration = 1});
  }

  StepState state() const { return tail_.stages()[0]->machine().state(); }
  const StageCounts& counts() const { return tail_.counts().at(0); }
  std::vector<float> FirstParameter() {
    const std::span<float> values = model_.stages()[0]->stage.parameters().value(0).span();
    return {values.begin(), values.end()};
  }

 private:
  const Setting& setting_;
  int rank_;
  std::atomic<bool> stopping_{false};
  RankContext context_;
  RankModel model_;
  std::shared_ptr<PrefixTable> table_;
  TransactionalTail tail_;
};

struct Numbers {
  std::vector<double> others;  // by stage, squared; its own is passed over
  float own = 0;
  std::string words{};
};

// Decided at the step, all before it having published.
void ExpectAtStep(const Setting& setting, int stage, const Numbers& numbers, float loss_scale,
                  StepState expected) {
  SCOPED_TRACE("stage " + std::to_string(stage) + ", loss scale " + std::to_string(loss_scale) +
               ", " + numbers.words);
  OneStage at(setting, stage, numbers.own, loss_scale);
  for (int other = 0; other < kRanks; ++other) {
    if (other != stage) at.PublishOf(other, numbers.others[static_cast<size_t>(other)]);
  }
  const std::vector<float> before = at.FirstParameter();
  at.RunIteration();
  at.Step();
  EXPECT_EQ(Name(at.state()), Name(expected));
  EXPECT_EQ(at.FirstParameter() == before, expected == StepState::kSkipped);
  EXPECT_EQ(at.counts().eager, expected == StepState::kProvisional);
  EXPECT_EQ(at.counts().skipped, expected == StepState::kSkipped);
  EXPECT_EQ(at.counts().late, 0);
}

// Decided at the first forward of the next iteration, since a rank before it was late.
void ExpectAtForward(const Setting& setting, int stage, const Numbers& numbers, float loss_scale,
                     StepState expected) {
  for (int last = 0; last < stage; ++last) {
    SCOPED_TRACE("stage " + std::to_string(stage) + ", late is " + std::to_string(last) + ", " +
                 numbers.words);
    OneStage at(setting, stage, numbers.own, loss_scale);
    for (int other = 0; other < kRanks; ++other) {
      if (other != stage && other != last) {
        at.PublishOf(other, numbers.others[static_cast<size_t>(other)]);
      }
    }
    at.RunIteration();
    at.Step();
    EXPECT_EQ(Name(at.state()), Name(StepState::kNotStarted)) << "whatever the others have";
    at.PublishOf(last, numbers.others[static_cast<size_t>(last)]);
    at.BeginForwardAhead();
    EXPECT_EQ(Name(at.state()), Name(expected));
    EXPECT_EQ(at.counts().late, 1);
    EXPECT_EQ(at.counts().eager + at.counts().skipped, 1) << "nobody stays undecided";
  }
}

void ExpectDecision(const Setting& setting, int stage, const Numbers& numbers, float loss_scale,
                    StepState expected) {
  ExpectAtStep(setting, stage, numbers, loss_scale, expected);
  ExpectAtForward(setting, stage, numbers, loss_scale, expected);
}

class EveryStage : public testing::TestWithParam<int> {
 protected:
  const int stage_ = GetParam();
  const Setting setting_{};
};

// The norm is what the stages before it have, or what it has itself; the threshold belongs to those
// who step. What comes behind it is far too much, and of no account.
TEST_P(EveryStage, StepsExactlyWhereItsPrefixIsWithinTheThreshold) {
  for (const float loss_scale : {1.0f, 2.0f}) {
    const float most = static_cast<float>(kClipNorm) * loss_scale;
    const double squared = double{most} * double{most};
    const std::vector<double> behind(kRanks, 1e30);
    const auto expected = [](int above) {
      return above > 0 ? StepState::kSkipped : StepState::kProvisional;
    };
    for (const int above : {-1, 0, 1}) {
      Numbers own{.others = behind, .own = most, .words = "by its own, " + std::to_string(above)};
      if (above != 0) own.own = std::nextafter(most, above > 0 ? kInf : 0.0f);
      for (int before = 0; before < stage_; ++before) own.others[static_cast<size_t>(before)] = 0;
      ExpectDecision(setting_, stage_, own, loss_scale, expected(above));
      // Half of the norm is another's, whose share decides.
      for (int before = 0; before < stage_; ++before) {
        Numbers shared = own;
        shared.own = most / 2;
        shared.others[static_cast<size_t>(before)] = squared * (0.75 + 1e-9 * above);
        shared.words = "by that of " + std::to_string(before) + ", " + std::to_string(above);
        ExpectDecision(setting_, stage_, shared, loss_scale, expected(above));
      }
    }
  }
}

TEST_P(EveryStage, SkipsWhereItOrOneBeforeItHasOverflowedAndNoOther) {
  for (const float value : {kInf, -kInf, kNan}) {
    for (int where = 0; where < kRanks; ++where) {
      Numbers numbers{.others = std::vector<double>(kRanks, 1e-6),
                      .own = where == stage_ ? value : 1e-3f,
                      .words = "overflow in stage " + std::to_string(where)};
      numbers.others[static_cast<size_t>(where)] = double{value} * double{value};
      ExpectDecision(setting_, stage_, numbers, 1,
                     where <= stage_ ? StepState::kSkipped : StepState::kProvisional);
    }
  }
}

// Under threads that cannot be: a forward has passed the stages before, which have published.
TEST_P(EveryStage, DoesNotGuessWhatOthersHaveNotPublished) {
  for (int missing = 0; missing < kRanks; ++missing) {
    if (missing == stage_) continue;
    SCOPED_TRACE("stage " + std::to_string(missing) + " has published nothing");
    OneStage at(setting_, stage_, 1e-3f, 1);
    for (int other = 0; other < kRanks; ++other) {
      if (other != stage_ && other != missing) at.PublishOf(other, 0);
    }
    at.RunIteration();
    at.Step();
    if (missing > stage_) {
      EXPECT_EQ(Name(at.state()), Name(StepState::kProvisional)) << "it comes behind";
    } else {
      EXPECT_THROW(at.BeginForwardAhead(), InvariantError);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of4, EveryStage, testing::Range(0, kRanks));

}  // namespace
}  // namespace spiritlevel
