#include "verify/transaction_tail.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

// Which micro-batches of a stage run on this rank: the same in every iteration.
std::vector<uint8_t> MicroBatchesOf(const RankContext& context, int stage) {
  const Program& program = context.program;
  std::vector<uint8_t> runs(static_cast<size_t>(program.num_micro_batches()), 0);
  const auto add = [&](const Op& op) {
    if (op.stage == stage && op.pass == Pass::kF) runs[static_cast<size_t>(op.micro_batch)] = 1;
  };
  for (NodeId id = program.rank_begin(context.rank); id < program.rank_end(context.rank); ++id) {
    const Node& node = program.nodes()[id];
    if (!RunsOps(node.kind)) continue;
    add(node.op);
    if (node.kind == NodeKind::kPair) add(program.second_op(node));
  }
  return runs;
}

}  // namespace

TransactionalTail::TransactionalTail(RankModel& model, const RankContext& context,
                                     const TransactionOptions& options,
                                     std::shared_ptr<PrefixTable> prefix)
    : model_(model),
      tail_(context.program.tail()),
      options_(options),
      prefix_(std::move(prefix)),
      scalars_(FirstScalars(model.task(), options.loss_scaling)) {
  if (tail_ == Tail::kNoTail) {
    throw InputError("without a tail no norm is formed, and no step can be judged",
                     "use barrier, post-validation-strict or post-validation-speculative");
  }
  if (model.task().sharded_optimizer && model.task().replicas > 1) {
    throw InputError("a sharded optimizer cannot step before the norm is known",
                     "use the barrier with a simple tail, or an optimizer that is not sharded");
  }
  for (const std::unique_ptr<HeldStage>& held : model.stages()) {
    stages_.push_back(std::make_unique<TransactionalStage>(*held, model.task(), model.numbers(),
                                                           options.undo_by, scalars_.iteration,
                                                           MicroBatchesOf(context, held->number)));
    counts_.push_back({.stage = held->number});
  }
  SPIRITLEVEL_CHECK(std::ranges::is_sorted(stages_, {}, [](const auto& s) { return s->number(); }),
                    "a rank's stages stand in model order");
  ahead_.assign(stages_.size(), 0);
}

size_t TransactionalTail::PlaceOf(int stage) const {
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i]->number() == stage) return i;
  }
  throw InvariantError("a rank runs passes of stages that it holds");
}

void TransactionalTail::BeginPass(const OpCall& call) {
  const size_t place = PlaceOf(call.op.stage);
  StageTransaction& machine = stages_[place]->machine();
  const int64_t iteration = model_.StepOf(call.iteration);
  const bool runs_ahead = iteration == scalars_.iteration + 1;
  if (runs_ahead && machine.state() == StepState::kNotStarted) {
    DecideNow(place);
    ++counts_[place].late;
  }
  loss_scale_ = runs_ahead ? After(model_.task(), options_.loss_scaling, scalars_, false).loss_scale
                           : scalars_.loss_scale;
  if (runs_ahead) ++ahead_[place];
  if (call.op.pass == Pass::kW) return;
  machine.Run(call.op.pass == Pass::kBW ? Pass::kB : call.op.pass, iteration, call.op.micro_batch);
  machine.BeginReading();
}

void TransactionalTail::EndPass(const OpCall& call) {
  StageTransaction& machine = stages_[PlaceOf(call.op.stage)]->machine();
  if (call.op.pass != Pass::kW) machine.EndReading();
  if (call.op.pass == Pass::kW || call.op.pass == Pass::kBW) {
    machine.Run(Pass::kW, model_.StepOf(call.iteration), call.op.micro_batch);
  }
}

void TransactionalTail::Inject(int64_t iteration) {
  for (const GradientFault& fault : options_.faults) {
    if (fault.iteration != iteration) continue;
    for (const std::unique_ptr<TransactionalStage>& stage : stages_) {
      if (stage->number() != fault.stage) continue;
      stage->held().gradients.sum(fault.parameter).span()[static_cast<size_t>(fault.entry)] =
          fault.value;
    }
  }
}

std::optional<PrefixSender> TransactionalTail::Sender() const {
  if (model_.side() == nullptr || tail_ == Tail::kBarrier) return std::nullopt;
  return PrefixSender(model_.num_ranks(), model_.rank(), model_.replica(), *model_.side());
}

void TransactionalTail::Publish() {
  PrefixTable::Partials partials;
  for (const std::unique_ptr<TransactionalStage>& stage : stages_) {
    partials.emplace_back(stage->number(), stage->Partials());
    prefix_->Publish(scalars_.iteration, stage->number(), partials.back().second);
  }
  if (std::optional<PrefixSender> sender = Sender()) sender->Send(scalars_.iteration, partials);
}

Payload TransactionalTail::Contribute(const SumCall& call) {
  const int64_t iteration = model_.StepOf(call.iteration);
  SPIRITLEVEL_CHECK(iteration == scalars_.iteration, "the iteration before is settled");
  Inject(iteration);
  for (const std::unique_ptr<TransactionalStage>& stage : stages_) {
    SPIRITLEVEL_CHECK(stage->machine().state() == StepState::kNotStarted &&
                          stage->machine().has_all_weight_grads(),
                      "a norm is of complete gradients");
  }
  Publish();
  return NormParts::Of(model_);
}

// The sum of finite squares of fp32 numbers is finite: of anything else it is not.
void TransactionalTail::Combine(const SumCall& call,
                                std::span<const std::span<const std::byte>> contributions) {
  SPIRITLEVEL_CHECK(model_.StepOf(call.iteration) == scalars_.iteration && !full_,
                    "a norm is of the iteration that is to be judged, and known once");
  const double sum = NormParts::SquaredNorm(model_, contributions);
  full_ = SquaredNorm{.sum = sum, .has_overflow = !std::isfinite(sum)};
  const std::optional<SquaredNorm> published = prefix_->Full(scalars_.iteration);
  SPIRITLEVEL_CHECK(!published || published->has_overflow == full_->has_overflow,
                    "an overflow is one however it is told");
  SPIRITLEVEL_CHECK(!published || full_->has_overflow || published->sum == full_->sum,
                    "the last prefix is the norm, to the bit");
}

void TransactionalTail::DecideNow(size_t place) {
  const StageTransaction& machine = stages_[place]->machine();
  DecideIfKnown(place);
  if (std::optional<PrefixSender> sender = Sender()) {
    while (machine.state() == StepState::kNotStarted) {
      sender->TakeNext(scalars_.iteration, *prefix_);
      DecideIfKnown(place);
    }
  }
  SPIRITLEVEL_CHECK(machine.state() != StepState::kNotStarted,
                    "what reaches a stage has passed all before it, which have published");
}

void TransactionalTail::DecideIfKnown(size_t place) {
  if (std::optional<PrefixSender> sender = Sender()) {
    sender->TakeAll(scalars_.iteration, *prefix_);
  }
  TransactionalStage& stage = *stages_[place];
  const std::optional<SquaredNorm> prefix = prefix_->UpTo(scalars_.iteration, stage.number());
  if (!prefix) return;
  stage.Decide(*prefix, scalars_);
  ++(stage.machine().state() == StepState::kProvisional ? counts_[place].eager
                                                        : counts_[place].skipped);
}

void TransactionalTail::Step(const StepCall& call) {
  SPIRITLEVEL_CHECK(model_.StepOf(call.iteration) == scalars_.iteration,
                    "an iteration is stepped once, and before the next");
  if (tail_ == Tail::kBarrier) return SettleAll();
  for (size_t place = 0; place < stages_.size(); ++place) DecideIfKnown(place);
}

bool TransactionalTail::Validate(const ValidationCall& call) {
  if (!call.judges) return true;
  SPIRITLEVEL_CHECK(model_.StepOf(call.iteration) == scalars_.iteration + 1 && full_,
                    "a step is judged once its norm is known");
  const bool is_right = IsWithin(model_.task(), *full_, scalars_);
  if (tail_ == Tail::kStrictValidation || (is_right && !call.rejected)) {
    SettleAll();
    return true;
  }
  // What the Program was not lowered for is left as it is: Recover().
  if (!is_right && call.rejected) DropAhead();
  return is_right;
}

void TransactionalTail::RollBack(const StepCall& call) {
  SPIRITLEVEL_CHECK(model_.StepOf(call.iteration) == scalars_.iteration + 1,
                    "the step before is rolled back");
  SettleAll();
}

void TransactionalTail::DropAhead() {
  for (size_t place = 0; place < stages_.size(); ++place) {
    stages_[place]->machine().DropAhead();
    counts_[place].dropped_forwards += std::exchange(ahead_[place], 0);
  }
}

void TransactionalTail::SettleAll() {
  SPIRITLEVEL_CHECK(full_.has_value(), "the clip coefficient comes from the full norm");
  for (size_t place = 0; place < stages_.size(); ++place) {
    TransactionalStage& stage = *stages_[place];
    if (stage.machine().state() == StepState::kNotStarted && tail_ != Tail::kBarrier) {
      ++counts_[place].undecided;
    }
    if (stage.TakeBackIfWrong(*full_, scalars_)) {
      ++counts_[place].rolled_back;
      if (options_.on_rollback) options_.on_rollback(stage.number(), scalars_.iteration);
    }
    stage.Settle(*full_, scalars_);
    if (full_->has_overflow) ++counts_[place].overflows;
    ahead_[place] = 0;
  }
  model_.Tell(scalars_.iteration, NormOf(*full_, scalars_),
              full_->has_overflow ? 0 : GradientFactor(model_.task(), *full_, scalars_));
  model_.EndIteration();
  scalars_ = After(model_.task(), options_.loss_scaling, scalars_, full_->has_overflow);
  full_.reset();
}

void TransactionalTail::Abandon() noexcept {
  // A pass that was cut short reads no more.
  for (const std::unique_ptr<TransactionalStage>& stage : stages_) stage->machine().StopReading();
}

void TransactionalTail::Finish() {
  if (full_) SettleAll();
  SPIRITLEVEL_CHECK(is_drained(), "behind the last node everything is validated");
}

bool TransactionalTail::is_drained() const {
  return std::ranges::all_of(stages_, [](const std::unique_ptr<TransactionalStage>& stage) {
    return stage->machine().state() == StepState::kValidated && !stage->machine().has_run_ahead();
  });
}

bool TransactionalTail::Recover() {
  if (!full_) full_ = prefix_->Full(scalars_.iteration);
  if (!full_) return false;
  DropAhead();
  SettleAll();
  const auto done = static_cast<int>(scalars_.iteration - model_.StepOf(0));
  for (StepRecord& step : model_.EndRun(done).steps) {
    if (step.step < scalars_.iteration) told_.push_back(std::move(step));
  }
  return true;
}

void TransactionalTail::Resume(const TrainingScalars& scalars) {
  scalars_ = scalars;
  full_.reset();
  told_.clear();
  std::ranges::fill(ahead_, 0);
  for (const std::unique_ptr<TransactionalStage>& stage : stages_) {
    stage->BeginAt(scalars.iteration);
  }
  model_.BeginAt(scalars.iteration);
}

TailFactory TransactionalTails(const TrainingTask& task, const TransactionOptions& options,
                               std::shared_ptr<PrefixTable> prefix) {
  CheckTrainingTask(task);
  return [options, prefix](RankModel& model, const RankContext& context) {
    return std::make_unique<TransactionalTail>(model, context, options, prefix);
  };
}

std::shared_ptr<PrefixTable> MakePrefixTable(const TrainingTask& task) {
  const ParameterNumbers numbers(task);
  std::vector<int> counts;
  for (int stage = 0; stage < task.num_stages(); ++stage) {
    counts.push_back(numbers.end_of(stage) - numbers.first_of(stage));
  }
  return std::make_shared<PrefixTable>(counts);
}

}  // namespace spiritlevel
