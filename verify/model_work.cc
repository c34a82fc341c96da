#include "verify/model_work.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/blas.h"
#include "verify/model_costs.h"

namespace spiritlevel {
namespace {

void CheckOpen(const HeldStage& held, size_t first, size_t last) {
  for (size_t bucket = first; bucket < last; ++bucket) {
    SPIRITLEVEL_CHECK(!held.is_closed[bucket],
                      "no W adds to gradients whose sum over ranks or replicas has begun");
  }
}

// All buckets that this part of an op adds to.
void CheckOpen(const HeldStage& held, const Part& part) {
  if (part.count == 1) return CheckOpen(held, 0, held.buckets.size());
  SPIRITLEVEL_CHECK(static_cast<size_t>(part.count) == held.buckets.size(),
                    "an op has a part for each bucket of its stage");
  CheckOpen(held, static_cast<size_t>(part.index), static_cast<size_t>(part.index) + 1);
}

bool IsLast(const Part& part) { return part.index + 1 == part.count; }

}  // namespace

ModelWork::ModelWork(const RankContext& context, std::shared_ptr<const TrainingTask> task,
                     std::shared_ptr<ParameterGather> gather, const ModelWorkOptions& options)
    : task_(std::move(task)),
      model_(std::make_unique<RankModel>(context, task_, std::move(gather), options.record)),
      messages_(model_->shared_meter()) {
  cpu::UseOneBlasThread();
  tail_ = options.make_tail ? options.make_tail(*model_, context)
                            : std::make_unique<SimpleTail>(*model_, context);
  SPIRITLEVEL_CHECK(tail_ != nullptr, "every work has a tail");
  for (const auto& held : model_->stages()) {
    memory_[held->number] = MemoryCostOf(*task_, held->number);
  }
  BeginRun(context);
}

void ModelWork::BeginRun(const RankContext& context) {
  model_->BeginRun(context);
  iterations_ = context.program.num_iterations();
  messages_.BeginRun();
}

Payload ModelWork::RunOp(OpCall& call) {
  if (call.part.index == 0) tail_->BeginPass(call);
  Payload output;
  switch (call.op.pass) {
    case Pass::kF:
      output = RunForward(call);
      break;
    case Pass::kB:
      output = RunInputGrad(call);
      break;
    case Pass::kW:
      RunWeightGrad(call);
      break;
    case Pass::kBW:
      output = RunFusedBackward(call);
      break;
  }
  if (IsLast(call.part)) tail_->EndPass(call);
  CountWaiting();
  return output;
}

// One after the other; but what the second one's start takes is set aside while the first runs, so
// that the pair holds at once what two overlapped ops do, which is what the ledger has for it.
std::pair<Payload, Payload> ModelWork::RunPair(OpCall& first, OpCall& second) {
  const StageCost& memory = memory_.at(second.op.stage);
  Bytes taken = memory.transient[static_cast<size_t>(second.op.pass)];
  if (second.op.pass == Pass::kF) taken += memory.activation;
  cpu::Tensor set_aside(&model_->meter(), cpu::TensorUse::kWorkspace, cpu::DType::kBFloat16, 1,
                        taken / cpu::SizeOf(cpu::DType::kBFloat16));
  Payload of_first = RunOp(first);
  set_aside.Reset();
  return {std::move(of_first), RunOp(second)};
}

cpu::Tensor ModelWork::TakeInput(OpCall& call) {
  const cpu::ModelShape& shape = task_->shape;
  return messages_.Take(std::move(call.input), shape.storage, shape.tokens(), shape.hidden);
}

Payload ModelWork::RunForward(OpCall& call) {
  HeldStage& held = model_->stage(call.op.stage);
  const cpu::StageRange& range = held.stage.range();
  const int64_t step = model_->StepOf(call.iteration);
  const int index = model_->replica() * task_->micro_batches + call.op.micro_batch;
  MicroBatchData data;
  if (range.embedding || range.head) data = DataOf(*task_, step, index);
  const cpu::MicroBatch micro_batch{
      .iteration = step,
      .index = index,
      .tokens = data.tokens,
      .targets = data.targets,
      .loss_scale = tail_->loss_scale() / static_cast<float>(task_->tokens_per_step())};
  cpu::Stage::Forwarded result =
      held.stage.Forward(micro_batch, range.embedding ? cpu::Tensor() : TakeInput(call));
  const auto [place, is_new] =
      activations_.emplace(Cell{call.op.stage, call.op.micro_batch}, std::move(result.activation));
  SPIRITLEVEL_CHECK(is_new, "each micro-batch has its F once");
  if (!range.head) return messages_.HandOver(std::move(result.output));
  if (!call.dropped) model_->TellLoss(step, index, result.loss_sum);
  return {};
}

cpu::Activation ModelWork::TakeActivation(const OpCall& call) {
  auto kept = activations_.extract(Cell{call.op.stage, call.op.micro_batch});
  SPIRITLEVEL_CHECK(!kept.empty(), "a backward comes after its F");
  return std::move(kept.mapped());
}

Payload ModelWork::RunInputGrad(OpCall& call) {
  HeldStage& held = model_->stage(call.op.stage);
  const cpu::StageRange& range = held.stage.range();
  cpu::Tensor dy = range.head ? cpu::Tensor() : TakeInput(call);
  cpu::Stage::Backwarded result =
      held.stage.InputGrad(TakeActivation(call), std::move(dy), &held.gradients);
  const auto [place, is_new] = weight_states_.emplace(Cell{call.op.stage, call.op.micro_batch},
                                                      std::move(result.weight_state));
  SPIRITLEVEL_CHECK(is_new, "each micro-batch has its B once");
  if (range.embedding) return {};
  return messages_.HandOver(std::move(result.dx));
}

void ModelWork::RunWeightGrad(const OpCall& call) {
  HeldStage& held = model_->stage(call.op.stage);
  CheckOpen(held, call.part);
  const auto kept = weight_states_.find(Cell{call.op.stage, call.op.micro_batch});
  SPIRITLEVEL_CHECK(kept != weight_states_.end(), "a W comes after its B");
  if (call.part.count == 1) {
    held.stage.WeightGrad(std::move(kept->second));
  } else {
    const BlockRun& run = held.buckets[static_cast<size_t>(call.part.index)];
    for (int block = run.second - 1; block >= run.first; --block) {
      held.stage.WeightGradOfBlock(&kept->second, block);
    }
  }
  if (IsLast(call.part)) weight_states_.erase(kept);
}

Payload ModelWork::RunFusedBackward(OpCall& call) {
  HeldStage& held = model_->stage(call.op.stage);
  CheckOpen(held, call.part);
  const cpu::StageRange& range = held.stage.range();
  const Cell cell{call.op.stage, call.op.micro_batch};
  cpu::Tensor dx;
  if (call.part.count == 1) {
    cpu::Tensor dy = range.head ? cpu::Tensor() : TakeInput(call);
    dx = held.stage.FusedBackward(TakeActivation(call), std::move(dy), &held.gradients);
  } else {
    if (call.part.index == 0) {
      cpu::Tensor dy = range.head ? cpu::Tensor() : TakeInput(call);
      in_parts_.emplace(cell, held.stage.BeginFusedBackward(TakeActivation(call), std::move(dy),
                                                            &held.gradients));
    }
    cpu::Stage::BackwardInParts& parts = in_parts_.at(cell);
    const BlockRun& run = held.buckets[static_cast<size_t>(call.part.index)];
    for (int block = run.second - 1; block >= run.first; --block) {
      held.stage.FusedBackwardOfNextBlock(&parts);
    }
    if (!IsLast(call.part)) return {};
    dx = std::move(parts.gradient);
    in_parts_.erase(cell);
  }
  return range.embedding ? Payload() : messages_.HandOver(std::move(dx));
}

void ModelWork::CountWaiting() {
  MemoryRecord& memory = model_->memory_record();
  const auto most = [](int& peak, size_t now) { peak = std::max(peak, static_cast<int>(now)); };
  most(memory.most_waiting_for_b, activations_.size() + in_parts_.size());
  most(memory.most_waiting_for_w, weight_states_.size());
}

void ModelWork::StepOptimizer(const StepCall& call) {
  SPIRITLEVEL_CHECK(weight_states_.empty() && in_parts_.empty(), "a step comes after every W");
  model_->TieLocally();
  tail_->Step(call);
}

bool ModelWork::Validate(const ValidationCall& call) {
  const bool accepted = tail_->Validate(call);
  if (call.rejected) activations_.clear();
  return accepted;
}

// The sums of gradients that a collective is about, in the order in which they lie in a
// contribution.
std::vector<cpu::Tensor*> ModelWork::SummedBy(const SumCall& call) {
  HeldStage& held = model_->stage(call.stage);
  std::vector<cpu::Tensor*> sums;
  if (call.kind == NodeKind::kTiedSum) {
    const ParameterNumbers& numbers = model_->numbers();
    const int number = call.stage == 0 ? numbers.embedding() : numbers.tied_copy();
    return {&held.gradients.sum(number - numbers.first_of(call.stage))};
  }
  BlockRun blocks{0, held.stage.range().num_blocks()};
  if (call.kind == NodeKind::kBucketSum) blocks = held.buckets.at(static_cast<size_t>(call.bucket));
  const int begin = held.stage.parameters_of(blocks.first).first;
  const int end = held.stage.parameters_of(blocks.second - 1).second;
  for (int i = begin; i < end; ++i) sums.push_back(&held.gradients.sum(i));
  return sums;
}

Payload ModelWork::Contribute(const SumCall& call) {
  if (!SumsGradients(call.kind)) {
    for (const auto& held : model_->stages()) std::ranges::fill(held->is_closed, uint8_t{1});
    model_->TieLocally();
    return tail_->Contribute(call);
  }
  HeldStage& held = model_->stage(call.stage);
  if (call.kind == NodeKind::kBucketSum) {
    held.is_closed.at(static_cast<size_t>(call.bucket)) = 1;
  } else {
    std::ranges::fill(held.is_closed, uint8_t{1});
  }
  const std::vector<cpu::Tensor*> sums = SummedBy(call);
  Bytes bytes = 0;
  for (const cpu::Tensor* const sum : sums) bytes += sum->bytes();
  Payload contribution = messages_.NewPayload(bytes);
  std::byte* at = contribution.data();
  for (const cpu::Tensor* const sum : sums) {
    std::memcpy(at, sum->data(), static_cast<size_t>(sum->bytes()));
    at += sum->bytes();
  }
  return contribution;
}

// In the members' order, entry by entry: ((first + second) + third) ...
void ModelWork::Combine(const SumCall& call,
                        std::span<const std::span<const std::byte>> contributions) {
  if (!SumsGradients(call.kind)) return tail_->Combine(call, contributions);
  SPIRITLEVEL_CHECK(std::ssize(contributions) == call.num_members,
                    "every member has contributed to a sum");
  size_t at = 0;
  for (cpu::Tensor* const tensor : SummedBy(call)) {
    const std::span<float> sum = tensor->span();
    for (size_t member = 0; member < contributions.size(); ++member) {
      const std::span<const std::byte> bytes = contributions[member];
      SPIRITLEVEL_CHECK(at + sum.size_bytes() <= bytes.size(),
                        "all contributions to a sum are of one size");
      const auto* const from = reinterpret_cast<const float*>(bytes.data() + at);
      if (member == 0) {
        std::copy_n(from, sum.size(), sum.begin());
      } else {
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += from[i];
      }
    }
    at += sum.size_bytes();
  }
}

Bytes ModelWork::TakePeakBytes() {
  const Bytes peak = messages_.TakePeak();
  MemoryRecord& memory = model_->memory_record();
  memory.peak = std::max(memory.peak, peak);
  cpu::BytesByUse live = model_->meter().live_by_use();
  live[static_cast<size_t>(cpu::TensorUse::kCommunication)] = 0;
  for (size_t use = 0; use < live.size(); ++use) {
    memory.peak_by_use[use] = std::max(memory.peak_by_use[use], live[use]);
  }
  memory.most_handed_over = messages_.most_handed_over();
  memory.most_held = std::max(memory.most_held, model_->meter().held());
  return peak;
}

void ModelWork::Abandon() noexcept {
  activations_.clear();
  weight_states_.clear();
  in_parts_.clear();
  messages_.Abandon();
  tail_->Abandon();
}

Payload ModelWork::Finish() {
  SPIRITLEVEL_CHECK(activations_.empty() && weight_states_.empty() && in_parts_.empty(),
                    "what a run has kept, it has used");
  tail_->Finish();
  return Serialize(model_->EndRun(iterations_));
}

WorkFactory ModelWorks(const TrainingTask& task, const ModelWorkOptions& options) {
  CheckTrainingTask(task);
  auto shared_task = std::make_shared<const TrainingTask>(task);
  std::shared_ptr<ParameterGather> gather;
  if (task.sharded_optimizer && task.replicas > 1) {
    gather = std::make_shared<ParameterGather>(task);
  }
  return [shared_task, gather, options](const RankContext& context) -> std::shared_ptr<RankWork> {
    const auto make = [&] {
      return std::make_shared<ModelWork>(context, shared_task, gather, options);
    };
    if (options.kept == nullptr) return make();
    std::shared_ptr<ModelWork> work;
    {
      const std::lock_guard lock(options.kept->mutex);
      work = options.kept->works[{context.replica, context.rank}];
    }
    if (work != nullptr) {
      work->BeginRun(context);
      return work;
    }
    work = make();
    const std::lock_guard lock(options.kept->mutex);
    options.kept->works[{context.replica, context.rank}] = work;
    return work;
  };
}

}  // namespace spiritlevel
