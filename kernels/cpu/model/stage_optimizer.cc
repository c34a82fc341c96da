#include "kernels/cpu/model/stage_optimizer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/cpu/model/bfloat16.h"
#include "kernels/cpu/model/undo_adamw.h"

namespace spiritlevel::cpu {
namespace {

std::vector<int> AllOf(const ParameterStore& parameters) {
  std::vector<int> all(static_cast<size_t>(parameters.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void CopyInto(const Tensor& from, Tensor* to) {
  SPIRITLEVEL_CHECK(from.bytes() == to->bytes() && from.type() == to->type(),
                    "a snapshot is of the same tensors");
  std::copy_n(static_cast<const char*>(from.data()), from.bytes(), static_cast<char*>(to->data()));
}

}  // namespace

StageOptimizer::StageOptimizer(ParameterStore* parameters)
    : StageOptimizer(parameters, AllOf(*parameters)) {}

StageOptimizer::StageOptimizer(ParameterStore* parameters, std::vector<int> owned)
    : parameters_(parameters), owned_(std::move(owned)) {
  SPIRITLEVEL_CHECK(std::ranges::is_sorted(owned_), "parameters are owned in model order");
  for (const int i : owned_) {
    const ParameterInfo& info = parameters->info(i);
    const auto floats = [&] {
      return Tensor(parameters->meter(), TensorUse::kOptimizer, DType::kFloat32, info.rows,
                    info.cols);
    };
    State state{.first = floats(), .second = floats(), .master = Tensor()};
    std::ranges::fill(state.first.span(), 0.0f);
    std::ranges::fill(state.second.span(), 0.0f);
    if (parameters->value(i).type() != DType::kFloat32) {
      state.master = floats();
      InitialValues(info, parameters->seed(), state.master.span());
    }
    states_.push_back(std::move(state));
  }
}

std::span<float> StageOptimizer::Exact(int i) {
  State& state = states_[static_cast<size_t>(i)];
  if (!state.master.empty()) return state.master.span();
  return parameters_->value(owned_[static_cast<size_t>(i)]).span();
}

void StageOptimizer::RoundToStorage(int i) {
  const State& state = states_[static_cast<size_t>(i)];
  if (state.master.empty()) return;
  Round(state.master.span(), parameters_->value(owned_[static_cast<size_t>(i)]).halves());
}

std::vector<double> StageOptimizer::SquaredNorms(const GradientStore& gradients) const {
  std::vector<double> norms;
  for (const int i : owned_) norms.push_back(SumOfSquares(gradients.sum(i).span()));
  return norms;
}

void StageOptimizer::Step(const AdamW& options, const GradientStore& gradients, float clip) {
  ++step_;
  for (int i = 0; i < static_cast<int>(owned_.size()); ++i) {
    AdamWStep(options, step_, clip, gradients.sum(owned_[static_cast<size_t>(i)]).span(), Exact(i),
              first_moment(i).span(), second_moment(i).span());
    RoundToStorage(i);
  }
  parameters_->set_version(parameters_->version() + 1);
}

void StageOptimizer::Undo(const AdamW& options, const GradientStore& gradients, float clip) {
  SPIRITLEVEL_CHECK(step_ >= 1, "there is a step to undo");
  for (int i = 0; i < static_cast<int>(owned_.size()); ++i) {
    UndoAdamWStep(options, step_, clip, gradients.sum(owned_[static_cast<size_t>(i)]).span(),
                  Exact(i), first_moment(i).span(), second_moment(i).span());
    RoundToStorage(i);
  }
  --step_;
  parameters_->set_version(parameters_->version() - 1);
}

StageOptimizer::Snapshot StageOptimizer::TakeSnapshot() const {
  Snapshot snapshot{.step = step_, .version = parameters_->version(), .tensors = {}};
  for (size_t i = 0; i < owned_.size(); ++i) {
    snapshot.tensors.push_back(parameters_->value(owned_[i]).Copy(TensorUse::kOptimizer));
    snapshot.tensors.push_back(states_[i].first.Copy(TensorUse::kOptimizer));
    snapshot.tensors.push_back(states_[i].second.Copy(TensorUse::kOptimizer));
    if (!states_[i].master.empty()) {
      snapshot.tensors.push_back(states_[i].master.Copy(TensorUse::kOptimizer));
    }
  }
  return snapshot;
}

void StageOptimizer::Restore(const Snapshot& snapshot) {
  size_t next = 0;
  const auto take = [&](Tensor* to) {
    SPIRITLEVEL_CHECK(next < snapshot.tensors.size(), "a snapshot is of the same tensors");
    CopyInto(snapshot.tensors[next++], to);
  };
  for (size_t i = 0; i < owned_.size(); ++i) {
    take(&parameters_->value(owned_[i]));
    take(&states_[i].first);
    take(&states_[i].second);
    if (!states_[i].master.empty()) take(&states_[i].master);
  }
  SPIRITLEVEL_CHECK(next == snapshot.tensors.size(), "all of a snapshot is restored");
  step_ = snapshot.step;
  parameters_->set_version(snapshot.version);
}

}  // namespace spiritlevel::cpu
