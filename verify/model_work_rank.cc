#include "verify/model_work_rank.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/model/bfloat16.h"

namespace spiritlevel {
namespace {

// Bytes of a parameter in ParameterGather's memory, which has all of a stage's in order.
template <typename Visit>
void ForEachParameter(const cpu::ParameterStore& parameters, Visit&& visit) {
  size_t at = 0;
  for (int i = 0; i < parameters.size(); ++i) {
    const auto bytes = static_cast<size_t>(parameters.value(i).bytes());
    visit(i, at, bytes);
    at += bytes;
  }
}

std::vector<float> FloatsOf(const cpu::Tensor& tensor) {
  std::vector<float> floats(static_cast<size_t>(tensor.size()));
  if (tensor.empty()) return floats;
  if (tensor.type() == cpu::DType::kBFloat16) {
    cpu::Widen(tensor.halves(), floats);
  } else {
    std::ranges::copy(tensor.span(), floats.begin());
  }
  return floats;
}

ParameterRecord RecordOfParameter(HeldStage& held, int i, int number) {
  ParameterRecord record{.number = number,
                         .gradient = FloatsOf(held.gradients.sum(i)),
                         .value = FloatsOf(held.stage.parameters().value(i))};
  const std::vector<int>& owned = held.optimizer.owned();
  const auto place = std::ranges::lower_bound(owned, i);
  if (place == owned.end() || *place != i) return record;
  const auto own = static_cast<int>(place - owned.begin());
  record.first_moment = FloatsOf(held.optimizer.first_moment(own));
  record.second_moment = FloatsOf(held.optimizer.second_moment(own));
  record.master = FloatsOf(held.optimizer.master(own));
  return record;
}

int CopyOf(const Program& program, int stage, int rank) {
  int copy = 0;
  for (int r = 0; r < rank; ++r) copy += std::ranges::count(program.stages_of(r), stage) > 0;
  return copy;
}

// Of one rank, in an iteration: by stage, how many.
int CountSums(const Program& program, int rank, NodeKind kind, int stage) {
  if (!program.has_gradient_sums()) return 0;
  int count = 0;
  for (int32_t i = program.gradient_sums_begin(rank, 0); i < program.gradient_sums_end(rank, 0);
       ++i) {
    const Reduction& sum = program.reductions()[static_cast<size_t>(i)];
    count += sum.kind == kind && sum.stage == stage;
  }
  return count;
}

}  // namespace

HeldStage::HeldStage(const TrainingTask& task, int stage_number, int replica,
                     cpu::MemoryMeter* meter)
    : number(stage_number),
      stage(task.shape, task.stages[static_cast<size_t>(stage_number)], meter),
      gradients(stage.parameters()),
      optimizer(&stage.parameters(), OwnedBy(task, stage_number, replica)),
      buckets(BucketsOf(task, stage_number)),
      is_closed(buckets.size(), 0) {}

RankModel::RankModel(const RankContext& context, std::shared_ptr<const TrainingTask> task,
                     std::shared_ptr<ParameterGather> gather, bool record)
    : task_(std::move(task)),
      numbers_(*task_),
      rank_(context.rank),
      num_ranks_(context.program.num_ranks()),
      replica_(context.replica),
      stopping_(&context.stopping),
      meter_(std::make_shared<cpu::MemoryMeter>()),
      gather_(std::move(gather)),
      records_(record) {
  for (const int number : context.program.stages_of(context.rank)) {
    SPIRITLEVEL_CHECK(number < task_->num_stages(), "a Program has the task's stages");
    stages_.push_back(std::make_unique<HeldStage>(*task_, number, replica_, meter_.get()));
    copies_.push_back(CopyOf(context.program, number, context.rank));
  }
  BeginRun(context);
}

void RankModel::BeginRun(const RankContext& context) {
  const Program& program = context.program;
  SPIRITLEVEL_CHECK(program.num_stages() == task_->num_stages() &&
                        program.num_micro_batches() == task_->micro_batches &&
                        context.replicas == task_->replicas && context.replica == replica_,
                    "a Program has the task's stages, micro-batches and replicas");
  SPIRITLEVEL_CHECK(std::ranges::equal(program.stages_of(context.rank), stages_, {}, {},
                                       [](const auto& held) { return held->number; }),
                    "a work holds the same stages in each of its runs");
  stopping_ = &context.stopping;
  side_ = context.side;
  CheckSums(context);
}

// Costs that do not ask for them would leave ranks with other gradients, and nobody would notice.
void RankModel::CheckSums(const RankContext& context) const {
  const Program& program = context.program;
  const int rank = context.rank;
  const int last = task_->num_stages() - 1;
  for (const auto& held : stages_) {
    int holders = 0;
    for (int r = 0; r < program.num_ranks(); ++r) {
      holders += std::ranges::count(program.stages_of(r), held->number) > 0;
    }
    SPIRITLEVEL_CHECK(holders <= 2, "at most two ranks hold a stage");
    SPIRITLEVEL_CHECK(CountSums(program, rank, NodeKind::kTwinSum, held->number) == holders - 1,
                      "a stage on two ranks has a sum of gradients");
    SPIRITLEVEL_CHECK(CountSums(program, rank, NodeKind::kBucketSum, held->number) ==
                          (task_->replicas > 1 ? std::ssize(held->buckets) : 0),
                      "replicas sum each bucket, as the task has them");
    const bool is_end = held->number == 0 || held->number == last;
    const bool needs_sum = task_->shape.tied_embeddings && is_end && !(Holds(0) && Holds(last));
    SPIRITLEVEL_CHECK(
        CountSums(program, rank, NodeKind::kTiedSum, held->number) == (needs_sum ? 1 : 0),
        "a tied embedding on two ranks has a sum of gradients");
  }
}

bool RankModel::Holds(int number) const {
  return std::ranges::any_of(stages_, [=](const auto& held) { return held->number == number; });
}

HeldStage& RankModel::stage(int number) const {
  for (const auto& held : stages_) {
    if (held->number == number) return *held;
  }
  SPIRITLEVEL_CHECK(false, "a rank holds the stages whose ops it runs");
  return *stages_.front();
}

void RankModel::BeginAt(int64_t step) {
  first_step_ = step;
  gathers_ = 0;
  if (gather_ != nullptr) gather_->Reset();
  record_.steps.clear();
  EndIteration();
}

void RankModel::TieLocally() {
  const int last = task_->num_stages() - 1;
  if (is_tied_ || !task_->shape.tied_embeddings || !Holds(0) || !Holds(last)) return;
  is_tied_ = true;
  cpu::Tensor& embedding = stage(0).gradients.sum(numbers_.embedding() - numbers_.first_of(0));
  cpu::Tensor& copy = stage(last).gradients.sum(numbers_.tied_copy() - numbers_.first_of(last));
  const std::span<float> sum = embedding.span();
  const std::span<float> other = copy.span();
  for (size_t i = 0; i < sum.size(); ++i) other[i] = sum[i] += other[i];
}

void RankModel::StepStage(HeldStage& held, int64_t step, float clip) {
  cpu::AdamW options = task_->adamw;
  options.rate = RateOf(*task_, step);
  held.optimizer.Step(options, held.gradients, clip);
}

void RankModel::StepAll(int64_t step, float clip) {
  for (const auto& held : stages_) StepStage(*held, step, clip);
}

void RankModel::GatherParameters() {
  if (gather_ == nullptr) return;
  ++gathers_;
  if (side_ != nullptr) return GatherBySending();
  for (size_t s = 0; s < stages_.size(); ++s) {
    cpu::ParameterStore& parameters = stages_[s]->stage.parameters();
    const std::vector<int>& owned = stages_[s]->optimizer.owned();
    const auto write = [&](std::span<std::byte> bytes) {
      ForEachParameter(parameters, [&](int i, size_t at, size_t size) {
        if (!std::ranges::binary_search(owned, i)) return;
        std::memcpy(bytes.data() + at, parameters.value(i).data(), size);
      });
    };
    const auto read = [&](std::span<const std::byte> bytes) {
      ForEachParameter(parameters, [&](int i, size_t at, size_t size) {
        if (std::ranges::binary_search(owned, i)) return;
        std::memcpy(parameters.value(i).data(), bytes.data() + at, size);
      });
    };
    gather_->Exchange(stages_[s]->number, copies_[s], replica_, gathers_, write, read, *stopping_);
  }
}

// All are sent before any is waited for.
void RankModel::GatherBySending() {
  SentParameters sent(*task_, num_ranks_, rank_, replica_, *side_);
  for (const auto& held : stages_) sent.Send(held->number, gathers_, held->stage.parameters());
  const auto parameters_of = [this](int number) -> cpu::ParameterStore& {
    return stage(number).stage.parameters();
  };
  const int messages = static_cast<int>(stages_.size()) * (task_->replicas - 1);
  for (int i = 0; i < messages; ++i) sent.Receive(gathers_, parameters_of);
}

StepRecord& RankModel::RecordOfStep(int64_t step) {
  auto place = std::ranges::lower_bound(record_.steps, step, {}, &StepRecord::step);
  if (place == record_.steps.end() || place->step != step) {
    place = record_.steps.insert(place, StepRecord{.step = step});
  }
  return *place;
}

void RankModel::Tell(int64_t step, std::optional<double> norm, float clip) {
  StepRecord& record = RecordOfStep(step);
  record.optimizer_steps = stages_.front()->optimizer.step();
  record.consumed_samples = SamplesAfter(*task_, step);
  record.rate = RateOf(*task_, step);
  record.norm = norm.value_or(0);
  record.clip = clip;
  record.parameters.clear();
  if (!records_) return;
  for (const auto& held : stages_) {
    for (int i = 0; i < held->gradients.size(); ++i) {
      record.parameters.push_back(RecordOfParameter(*held, i, numbers_.first_of(held->number) + i));
    }
  }
}

void RankModel::TellLoss(int64_t step, int micro_batch, double loss_sum) {
  std::vector<LossRecord>& losses = RecordOfStep(step).losses;
  auto place = std::ranges::lower_bound(losses, micro_batch, {}, &LossRecord::micro_batch);
  if (place == losses.end() || place->micro_batch != micro_batch) {
    place = losses.insert(place, {.micro_batch = micro_batch});
  }
  place->sum = loss_sum;
}

void RankModel::EndIteration() {
  for (const auto& held : stages_) {
    held->gradients.Zero();
    std::ranges::fill(held->is_closed, uint8_t{0});
  }
  is_tied_ = false;
}

RankRecord RankModel::EndRun(int iterations) {
  first_step_ += iterations;
  return std::exchange(record_, {});
}

}  // namespace spiritlevel
