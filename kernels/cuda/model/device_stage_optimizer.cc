#include "kernels/cuda/model/device_stage_optimizer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/model/parameters.h"

namespace spiritlevel::cuda {
namespace {

std::vector<int> AllOf(const DeviceParameters& parameters) {
  std::vector<int> all(static_cast<size_t>(parameters.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

DeviceStageOptimizer::DeviceStageOptimizer(DeviceParameters* parameters)
    : DeviceStageOptimizer(parameters, AllOf(*parameters)) {}

DeviceStageOptimizer::DeviceStageOptimizer(DeviceParameters* parameters, std::vector<int> owned)
    : parameters_(parameters), owned_(std::move(owned)) {
  SPIRITLEVEL_CHECK(std::ranges::is_sorted(owned_), "parameters are owned in model order");
  for (const int i : owned_) states_.push_back(NewState(parameters->info(i)));
}

DeviceStageOptimizer::State DeviceStageOptimizer::NewState(const cpu::ParameterInfo& info) const {
  const auto floats = [&] {
    return DeviceTensor(context(), TensorUse::kOptimizer, ElementType::kFloat32, info.rows,
                        info.cols);
  };
  State state{.first = floats(), .second = floats(), .master = DeviceTensor()};
  context().Post(Fill{.to = state.first.view(), .value = 0});
  context().Post(Fill{.to = state.second.view(), .value = 0});
  if (parameters_->size() > 0 && parameters_->value(0).type() != ElementType::kFloat32) {
    state.master = floats();
    std::vector<float> values(static_cast<size_t>(info.size()));
    cpu::InitialValues(info, parameters_->seed(), values);
    SetFloats(context(), values, &state.master);
  }
  return state;
}

DeviceTensor DeviceStageOptimizer::PostSquaredNorms(const DeviceGradients& gradients) const {
  const auto count = static_cast<int64_t>(owned_.size());
  DeviceTensor norms(context(), TensorUse::kWorkspace, ElementType::kFloat64, 1, count);
  int64_t largest = 0;
  for (const int i : owned_) {
    largest = std::max(largest, SumOfSquaresWorkspace(gradients.sum(i).size()));
  }
  // One for all: they come one behind the other on their stream.
  const DeviceTensor workspace(context(), TensorUse::kWorkspace, ElementType::kFloat64, 1, largest);
  for (int64_t i = 0; i < count; ++i) {
    context().Post(SumOfSquares{.x = gradients.sum(owned_[static_cast<size_t>(i)]).view(),
                                .sum = norms.view().Columns(i, 1),
                                .workspace = workspace.view()});
  }
  return norms;
}

std::vector<double> DeviceStageOptimizer::SquaredNorms(const DeviceGradients& gradients) const {
  const std::vector<std::byte> bits = BitsOf(context(), PostSquaredNorms(gradients));
  std::vector<double> norms(owned_.size());
  std::memcpy(norms.data(), bits.data(), bits.size());
  return norms;
}

AdamWStep DeviceStageOptimizer::CallFor(size_t i, const cpu::AdamW& options,
                                        const DeviceGradients& gradients, float clip) {
  const State& state = states_[i];
  const View stored = parameters_->value(owned_[i]).view();
  const bool has_master = !state.master.empty();
  return {.rate = options.rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay,
          .step = step_,
          .clip = clip,
          .gradient = gradients.sum(owned_[i]).view(),
          .exact = has_master ? state.master.view() : stored,
          .first_moment = state.first.view(),
          .second_moment = state.second.view(),
          .stored = has_master ? stored : View()};
}

void DeviceStageOptimizer::Step(const cpu::AdamW& options, const DeviceGradients& gradients,
                                float clip) {
  ++step_;
  for (size_t i = 0; i < owned_.size(); ++i) {
    context().Post(CallFor(i, options, gradients, clip));
  }
  parameters_->set_version(parameters_->version() + 1);
}

void DeviceStageOptimizer::Undo(const cpu::AdamW& options, const DeviceGradients& gradients,
                                float clip) {
  SPIRITLEVEL_CHECK(step_ >= 1, "there is a step to undo");
  for (size_t i = 0; i < owned_.size(); ++i) {
    context().Post(AdamWUndo{CallFor(i, options, gradients, clip)});
  }
  --step_;
  parameters_->set_version(parameters_->version() - 1);
}

DeviceStageOptimizer::Snapshot DeviceStageOptimizer::TakeSnapshot() const {
  Snapshot snapshot{.step = step_, .version = parameters_->version(), .tensors = {}};
  const auto keep = [&](const DeviceTensor& from) {
    snapshot.tensors.push_back(CopyOf(context(), from, TensorUse::kOptimizer));
  };
  for (size_t i = 0; i < owned_.size(); ++i) {
    keep(parameters_->value(owned_[i]));
    keep(states_[i].first);
    keep(states_[i].second);
    if (!states_[i].master.empty()) keep(states_[i].master);
  }
  return snapshot;
}

void DeviceStageOptimizer::Restore(const Snapshot& snapshot) {
  size_t next = 0;
  const auto take = [&](DeviceTensor* to) {
    SPIRITLEVEL_CHECK(next < snapshot.tensors.size(), "a snapshot is of the same tensors");
    PostCopy(context(), snapshot.tensors[next++], to);
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

}  // namespace spiritlevel::cuda
