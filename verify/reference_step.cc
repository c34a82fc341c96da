#include "verify/reference_step.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/model/bfloat16.h"
#include "kernels/cpu/model/memory_meter.h"
#include "kernels/cpu/model/stage.h"
#include "kernels/cpu/model/stage_optimizer.h"

namespace spiritlevel {
namespace {

using cpu::GradientStore;
using cpu::Tensor;
using cpu::TensorUse;

std::vector<float> Floats(const Tensor& tensor) {
  std::vector<float> floats(static_cast<size_t>(tensor.size()));
  if (tensor.type() == cpu::DType::kBFloat16) {
    cpu::Widen(tensor.halves(), floats);
  } else if (!tensor.empty()) {
    std::copy(tensor.span().begin(), tensor.span().end(), floats.begin());
  }
  return floats;
}

void AddTo(Tensor& sum, const Tensor& other) {
  for (int64_t i = 0; i < sum.size(); ++i) {
    sum.span()[static_cast<size_t>(i)] += other.span()[static_cast<size_t>(i)];
  }
}

struct ReferenceStage {
  ReferenceStage(const TrainingTask& task, const cpu::StageRange& range, size_t copies,
                 cpu::MemoryMeter* meter)
      : stage(task.shape, range, meter),
        scratch(stage.parameters()),
        optimizer(&stage.parameters()) {
    for (int replica = 0; replica < task.replicas; ++replica) {
      auto& of_replica = sums.emplace_back();
      for (size_t c = 0; c < copies; ++c) of_replica.emplace_back(stage.parameters());
    }
  }

  cpu::Stage stage;
  GradientStore scratch;                         // where a backward's gradients are not wanted
  std::vector<std::vector<GradientStore>> sums;  // by replica, then copy
  cpu::StageOptimizer optimizer;

  GradientStore& sum() { return sums.front().front(); }
};

class Reference {
 public:
  Reference(const TrainingTask& task, const GradientOrder& order, const ReferenceOptions& options)
      : task_(task), order_(order), options_(options) {
    SPIRITLEVEL_CHECK(order.stages.size() == task.stages.size(), "an order for each stage");
    for (size_t s = 0; s < task.stages.size(); ++s) {
      stages_.push_back(
          std::make_unique<ReferenceStage>(task, task.stages[s], order.stages[s].size(), &meter_));
    }
  }

  StepRecord Step(int64_t step) {
    StepRecord record{.step = step};
    for (int replica = 0; replica < task_.replicas; ++replica) {
      if (HasOneOrder()) {
        RunInOrder(replica, step, record);
      } else {
        RunStageByStage(replica, step, record);
      }
    }
    std::ranges::sort(record.losses, {}, &LossRecord::micro_batch);
    SumUp();
    const double norm = options_.has_norm ? Norm() : 0;
    record.norm = norm;
    record.clip = options_.has_norm && task_.clip_norm > 0
                      ? cpu::ClipCoefficient(norm, task_.clip_norm)
                      : 1.0f;
    cpu::AdamW adamw = task_.adamw;
    adamw.rate = record.rate = RateOf(task_, step);
    for (const auto& s : stages_) s->optimizer.Step(adamw, s->sum(), record.clip);
    record.optimizer_steps = stages_.front()->optimizer.step();
    record.consumed_samples = task_.first_sample + (step + 1) * task_.replicas *
                                                       task_.micro_batches * task_.shape.sequences;
    Describe(record);
    for (const auto& s : stages_) {
      for (auto& of_replica : s->sums) {
        for (GradientStore& sum : of_replica) sum.Zero();
      }
    }
    return record;
  }

 private:
  int IndexOf(int replica, int micro_batch) const {
    return replica * task_.micro_batches + micro_batch;
  }

  bool HasOneOrder() const {
    return std::ranges::all_of(order_.stages, [&](const auto& copies) {
      return copies.size() == 1 && copies == order_.stages.front();
    });
  }

  cpu::MicroBatch MicroBatchOf(int64_t step, int index, const MicroBatchData& data) const {
    return {.iteration = step,
            .index = index,
            .tokens = data.tokens,
            .targets = data.targets,
            .loss_scale = 1.0f / static_cast<float>(task_.tokens_per_step())};
  }

  // Micro-batch by micro-batch, forward and at once backward.
  void RunInOrder(int replica, int64_t step, StepRecord& record) {
    for (const int i : order_.stages.front().front()) {
      const MicroBatchData data = DataOf(task_, step, IndexOf(replica, i));
      const cpu::MicroBatch micro_batch = MicroBatchOf(step, IndexOf(replica, i), data);
      std::vector<cpu::Activation> kept;
      Tensor x;
      for (const auto& s : stages_) {
        cpu::Stage::Forwarded result = s->stage.Forward(micro_batch, std::move(x));
        x = std::move(result.output);
        kept.push_back(std::move(result.activation));
        if (s->stage.range().head) record.losses.push_back({IndexOf(replica, i), result.loss_sum});
      }
      for (size_t s = stages_.size(); s-- > 0;) {
        x = stages_[s]->stage.FusedBackward(std::move(kept[s]), std::move(x),
                                            &stages_[s]->sums[static_cast<size_t>(replica)][0]);
      }
    }
  }

  // By stage and micro-batch.
  using Tensors = std::vector<std::vector<Tensor>>;

  // Where stages add up in different orders: first every stage's input and the gradient of its
  // output are found, then each stage runs all its micro-batches in its own order.
  void RunStageByStage(int replica, int64_t step, StepRecord& record) {
    Tensors inputs(stages_.size());
    Tensors gradients(stages_.size());
    for (int i = 0; i < task_.micro_batches; ++i) {
      FindEnds(IndexOf(replica, i), step, record, inputs, gradients);
    }
    for (size_t s = 0; s < stages_.size(); ++s) {
      for (size_t c = 0; c < order_.stages[s].size(); ++c) {
        for (const int i : order_.stages[s][c]) {
          const auto at = static_cast<size_t>(i);
          const int index = IndexOf(replica, i);
          const MicroBatchData data = DataOf(task_, step, index);
          cpu::Stage::Forwarded result =
              stages_[s]->stage.Forward(MicroBatchOf(step, index, data), std::move(inputs[s][at]));
          stages_[s]->stage.FusedBackward(std::move(result.activation), std::move(gradients[s][at]),
                                          &stages_[s]->sums[static_cast<size_t>(replica)][c]);
        }
      }
    }
  }

  void FindEnds(int index, int64_t step, StepRecord& record, Tensors& inputs, Tensors& gradients) {
    const auto copy = [](const Tensor& t) {
      return t.empty() ? Tensor() : t.Copy(TensorUse::kWorkspace);
    };
    const MicroBatchData data = DataOf(task_, step, index);
    const cpu::MicroBatch micro_batch = MicroBatchOf(step, index, data);
    std::vector<cpu::Activation> kept;
    Tensor x;
    for (size_t s = 0; s < stages_.size(); ++s) {
      inputs[s].push_back(copy(x));
      cpu::Stage::Forwarded result = stages_[s]->stage.Forward(micro_batch, std::move(x));
      x = std::move(result.output);
      kept.push_back(std::move(result.activation));
      if (s + 1 == stages_.size()) record.losses.push_back({index, result.loss_sum});
    }
    for (size_t s = stages_.size(); s-- > 0;) {
      gradients[s].push_back(copy(x));
      x = stages_[s]->stage.FusedBackward(std::move(kept[s]), std::move(x), &stages_[s]->scratch);
    }
  }

  // Over replicas, then over copies, then over both ends of a tied embedding.
  void SumUp() {
    for (const auto& s : stages_) {
      for (size_t c = 0; c < s->sums.front().size(); ++c) {
        for (size_t r = 1; r < s->sums.size(); ++r) s->sums[0][c].Add(s->sums[r][c]);
      }
      for (size_t c = 1; c < s->sums.front().size(); ++c) s->sums[0][0].Add(s->sums[0][c]);
    }
    if (!task_.shape.tied_embeddings) return;
    const auto gradient = [&](ReferenceStage& s, const char* name) -> Tensor& {
      return s.sum().sum(s.stage.parameters().Find(name));
    };
    Tensor& embedding = gradient(*stages_.front(), "embedding.weight");
    Tensor& head = gradient(*stages_.back(), "head.weight");
    AddTo(embedding, head);
    std::ranges::copy(std::as_const(embedding).span(), head.span().begin());
  }

  double Norm() const {
    double squared = 0;
    for (const auto& s : stages_) {
      const std::vector<double> squares = s->optimizer.SquaredNorms(s->sum());
      for (int i = 0; i < s->stage.parameters().size(); ++i) {
        const bool is_copy =
            task_.shape.tied_embeddings && s->stage.parameters().info(i).name == "head.weight";
        if (!is_copy) squared += squares[static_cast<size_t>(i)];
      }
    }
    return std::sqrt(squared);
  }

  void Describe(StepRecord& record) const {
    int number = 0;
    for (const auto& s : stages_) {
      for (int i = 0; i < s->stage.parameters().size(); ++i) {
        record.parameters.push_back({.number = number++,
                                     .gradient = Floats(s->sum().sum(i)),
                                     .value = Floats(s->stage.parameters().value(i)),
                                     .first_moment = Floats(s->optimizer.first_moment(i)),
                                     .second_moment = Floats(s->optimizer.second_moment(i)),
                                     .master = Floats(s->optimizer.master(i))});
      }
    }
  }

  const TrainingTask& task_;
  const GradientOrder& order_;
  ReferenceOptions options_;
  cpu::MemoryMeter meter_;
  std::vector<std::unique_ptr<ReferenceStage>> stages_;
};

}  // namespace

GradientOrder GradientOrder::InOrder(const TrainingTask& task) {
  std::vector<int> all;
  for (int i = 0; i < task.micro_batches; ++i) all.push_back(i);
  GradientOrder order;
  order.stages.assign(task.stages.size(), {all});
  return order;
}

GradientOrder GradientOrder::Of(const Schedule& schedule) {
  GradientOrder order;
  order.stages.resize(static_cast<size_t>(schedule.num_stages()));
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (const int stage : schedule.stages_of(rank)) {
      std::vector<int>& copy = order.stages[static_cast<size_t>(stage)].emplace_back();
      for (const Op& op : schedule.ops(rank)) {
        const bool adds = op.pass == Pass::kW || op.pass == Pass::kBW;
        if (adds && op.stage == stage) copy.push_back(op.micro_batch);
      }
    }
  }
  return order;
}

TrainingRecord ReferenceSteps(const TrainingTask& task, const GradientOrder& order,
                              const ReferenceOptions& options) {
  CheckTrainingTask(task);
  cpu::UseOneBlasThread();
  Reference reference(task, order, options);
  TrainingRecord record;
  for (int64_t step = 0; step < options.steps; ++step) record.push_back(reference.Step(step));
  return record;
}

}  // namespace spiritlevel
