// A run that fails leaves nothing on any rank: no activation, no W that waits, no message; only
// what a model has between two runs. And the same works then run as if nothing had been.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/random_case.h"
#include "tests/verify/model_run.h"
#include "verify/transaction_tail.h"

namespace spiritlevel {
namespace {

Bytes Waiting(const cpu::BytesByUse& bytes) {
  return bytes[static_cast<size_t>(cpu::TensorUse::kWaitingForB)] +
         bytes[static_cast<size_t>(cpu::TensorUse::kWaitingForW)];
}

// Weighs what lies on its rank: before anything has run, and around Abandon().
class WeighedWork : public ModelWork {
 public:
  WeighedWork(const RankContext& context, const std::shared_ptr<const TrainingTask>& task,
              const ModelWorkOptions& options)
      : ModelWork(context, task, nullptr, options), at_first_(Weigh()) {}

  void Abandon() noexcept override {
    before_ = Weigh();
    ModelWork::Abandon();
    after_ = Weigh();
  }

  cpu::BytesByUse Weigh() { return model().meter().live_by_use(); }
  const cpu::BytesByUse& at_first() const { return at_first_; }
  const std::optional<cpu::BytesByUse>& before() const { return before_; }
  const std::optional<cpu::BytesByUse>& after() const { return after_; }

 private:
  cpu::BytesByUse at_first_;
  std::optional<cpu::BytesByUse> before_{};
  std::optional<cpu::BytesByUse> after_{};
};

// By rank, replica by replica; made in the first run, and used again.
class WeighedWorks {
 public:
  WeighedWorks(const TrainingTask& task, const ModelWorkOptions& options)
      : task_(std::make_shared<const TrainingTask>(task)), options_(options) {}

  WorkFactory Factory(int ranks) {
    works_.resize(static_cast<size_t>(ranks * task_->replicas));
    return [this, ranks](const RankContext& context) -> std::shared_ptr<RankWork> {
      auto& work = works_[static_cast<size_t>(context.replica * ranks + context.rank)];
      if (work == nullptr) {
        work = std::make_shared<WeighedWork>(context, task_, options_);
      } else {
        work->BeginRun(context);
      }
      return work;
    };
  }
  std::vector<std::shared_ptr<WeighedWork>>& works() { return works_; }

 private:
  std::shared_ptr<const TrainingTask> task_;
  ModelWorkOptions options_;
  std::vector<std::shared_ptr<WeighedWork>> works_;
};

struct Case {
  Schedule schedule;
  TrainingTask task;
  LoweringOptions lowering;
  Fault fault;
};

constexpr FaultKind kFaults[] = {FaultKind::kFailWork, FaultKind::kLoseMessage,
                                 FaultKind::kDoubleMessage, FaultKind::kWrongMessage,
                                 FaultKind::kKillRank};

Program LowerCase(const Case& c) {
  const bool keeps_snapshot = IsPostValidation(c.lowering.tail);
  return Lower(
      c.schedule,
      ModelCosts(c.task, UnitTimes(c.task.num_stages()), {.keeps_snapshot = keeps_snapshot}),
      c.lowering);
}

// At an op of the first iteration, before whose end nobody has stepped.
void PlaceFault(RandomCase& random, Case* c) {
  const Program program = LowerCase(*c);
  std::vector<NodeId> places;
  for (NodeId id = 0; id < program.num_lane_nodes(); ++id) {
    const Node& node = program.nodes()[static_cast<size_t>(id)];
    const bool sends = node.num_outputs > 0;
    const bool is_of_rank =
        c->fault.kind == FaultKind::kFailWork || c->fault.kind == FaultKind::kKillRank;
    if (node.iteration == 0 && RunsOps(node.kind) && (is_of_rank || sends)) places.push_back(id);
  }
  c->fault.node = places[static_cast<size_t>(random.Below(static_cast<int>(places.size())))];
  c->fault.replica = random.Below(c->task.replicas);
}

Case MakeCase(unsigned seed) {
  RandomCase random(seed);
  constexpr const char* kNames[] = {"1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe"};
  const Schedule schedule = Make(kNames[seed % 6], 2 + 2 * random.Below(2), 8);
  Case c{.schedule = schedule, .task = TinyTask(schedule), .lowering = {}, .fault = {}};
  c.task.shape.recompute = random.Below(4) == 0;
  c.task.replicas = 1 + (random.Below(3) == 0);
  c.task.clip_norm = 1e3;
  c.lowering = {.tail = random.Below(2) == 0 ? Tail::kBarrier : Tail::kSpeculativeValidation,
                .iterations = 2};
  c.lowering.weight_grads =
      random.Below(2) == 0 ? WeightGrads::kByMicroBatch : WeightGrads::kByBucket;
  c.fault.kind = kFaults[seed / 6 % std::size(kFaults)];
  PlaceFault(random, &c);
  return c;
}

ModelWorkOptions OptionsOf(const Case& c) {
  ModelWorkOptions options{.record = true};
  if (IsPostValidation(c.lowering.tail)) {
    options.make_tail = TransactionalTails(c.task, {}, MakePrefixTable(c.task));
  }
  return options;
}

struct Seen {
  int waited_for_b = 0;  // ranks on which something did when the run was given up
  int waited_for_w = 0;
};

void ExpectNothingLeft(const Case& c, WeighedWorks* works, Seen* seen) {
  const int ranks = c.schedule.num_ranks();
  const int killed = LowerCase(c).rank_of(c.fault.node) + ranks * c.fault.replica;
  for (int index = 0; index < std::ssize(works->works()); ++index) {
    if (c.fault.kind == FaultKind::kKillRank && index == killed) continue;
    SCOPED_TRACE("rank " + std::to_string(index));
    WeighedWork& work = *works->works()[static_cast<size_t>(index)];
    ASSERT_TRUE(work.before()) << "nobody has told it";
    EXPECT_EQ(Waiting(*work.after()), 0) << "no activation, and no W";
    EXPECT_EQ(work.Weigh(), work.at_first());
    const cpu::BytesByUse& before = *work.before();
    seen->waited_for_b += before[static_cast<size_t>(cpu::TensorUse::kWaitingForB)] > 0;
    seen->waited_for_w += before[static_cast<size_t>(cpu::TensorUse::kWaitingForW)] > 0;
  }
}

// Cells that were left would be found taken, gradients that were left would be added to.
void ExpectRunsAgain(const Case& c, WeighedWorks* works) {
  for (const auto& work : works->works()) work->model().BeginAt(0);
  const Program program = LowerCase(c);
  const RunReport report = RunProgram(program, works->Factory(program.num_ranks()));
  ASSERT_FALSE(report.failure) << report.failure->message;
  const TrainingRecord expected =
      ReferenceSteps(c.task, GradientOrder::Of(c.schedule), {.steps = c.lowering.iterations});
  EXPECT_EQ(Difference(c.task, RecordOf(c.task, report.results), expected), "");
}

TEST(ModelWork, KeepsNothingOfARunThatFailedOnAnyRank) {
  Seen seen;
  int runs_again = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    const Case c = MakeCase(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::string(Name(c.fault.kind)) + " in " +
                 c.schedule.ToString());
    WeighedWorks works(c.task, OptionsOf(c));
    const Program program = LowerCase(c);
    {
      const RunReport report =
          RunProgram(program, works.Factory(program.num_ranks()),
                     {.replicas = c.task.replicas, .patience = 0, .faults = {c.fault}});
      ASSERT_TRUE(report.failure);
    }
    ExpectNothingLeft(c, &works, &seen);
    // A rank that was killed is gone, and a transaction begins anew with TransactionalTail's own.
    const bool can_go_on = c.fault.kind != FaultKind::kKillRank && c.task.replicas == 1 &&
                           c.lowering.tail == Tail::kBarrier;
    if (can_go_on) ExpectRunsAgain(c, &works);
    runs_again += can_go_on;
    if (HasFailure()) return;
  }
  EXPECT_GE(runs_again, 20);
  EXPECT_GE(seen.waited_for_b, 100);
  EXPECT_GE(seen.waited_for_w, 50);
}

}  // namespace
}  // namespace spiritlevel
