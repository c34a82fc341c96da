#include "tests/kernels/cuda/model/device_results.h"

#include <cmath>
#include <utility>

#include "kernels/cpu/model/bfloat16.h"

namespace spiritlevel::cuda {
namespace {

constexpr float kScale = 0.0625f;
constexpr int kMicroBatches = 2;

Doubles ValuesOf(const cpu::Tensor& tensor) {
  if (tensor.type() == cpu::DType::kFloat32) {
    return {tensor.span().begin(), tensor.span().end()};
  }
  Doubles values;
  for (const uint16_t half : tensor.halves()) values.push_back(double{cpu::Widen(half)});
  return values;
}

void Append(const Doubles& values, Doubles* all) {
  all->insert(all->end(), values.begin(), values.end());
}

}  // namespace

double Cosine(const Doubles& a, const Doubles& b) {
  return Dot(a, b) / std::sqrt(Dot(a, a) * Dot(b, b));
}

Doubles AllOf(const NamedValues& values) {
  Doubles all;
  for (const auto& [name, of_one] : values) all.insert(all.end(), of_one.begin(), of_one.end());
  return all;
}

double Distance(const Doubles& a, const Doubles& b) {
  Doubles difference = a;
  for (size_t i = 0; i < a.size(); ++i) difference[i] -= b[i];
  return std::sqrt(Dot(difference, difference) / Dot(b, b));
}

Results OnCpu(TinyPipeline* model) {
  const cpu::ModelShape& shape = model->stage(0).shape();
  Results results;
  for (int i = 0; i < kMicroBatches; ++i) {
    const ReferenceBatch batch = RandomBatch(shape, i);
    cpu::Stage::Forwarded a = model->stage(0).Forward(ViewOf(batch, kScale), cpu::Tensor());
    Append(ValuesOf(a.output), &results.messages);
    cpu::Stage::Forwarded b = model->stage(1).Forward(ViewOf(batch, kScale), std::move(a.output));
    results.losses.push_back(b.loss_sum);
    cpu::Tensor dx =
        model->stage(1).FusedBackward(std::move(b.activation), cpu::Tensor(), &model->sums(1));
    Append(ValuesOf(dx), &results.messages);
    model->stage(0).FusedBackward(std::move(a.activation), std::move(dx), &model->sums(0));
  }
  results.gradients = model->Gradients();
  return results;
}

Results OnDevice(Layer* layer, const cpu::ModelShape& shape, bool with_messages, Bytes workspace) {
  DevicePipeline model(layer, shape, 2, workspace);
  const auto read = [&](int stage, const DeviceTensor& message, Results* results) {
    if (with_messages) {
      Append(cuda::ValuesOf(model.stage(stage).context(), message), &results->messages);
    }
  };
  Results results;
  std::vector<DeviceTensor> losses;
  std::vector<std::vector<DeviceWeightState>> states;
  for (int i = 0; i < kMicroBatches; ++i) {
    const ReferenceBatch batch = RandomBatch(shape, i);
    DeviceStage::Forwarded a = model.stage(0).Forward(ViewOf(batch, kScale), DeviceTensor());
    read(0, a.output, &results);
    DeviceStage::Forwarded b =
        model.stage(1).Forward(ViewOf(batch, kScale), model.Hop(std::move(a.output), 0, 1));
    losses.push_back(std::move(b.losses));
    DeviceStage::Backwarded c =
        model.stage(1).InputGrad(std::move(b.activation), DeviceTensor(), &model.sums(1));
    read(1, c.dx, &results);
    DeviceStage::Backwarded d = model.stage(0).InputGrad(
        std::move(a.activation), model.Hop(std::move(c.dx), 1, 0), &model.sums(0));
    states.emplace_back();
    states.back().push_back(std::move(d.weight_state));
    states.back().push_back(std::move(c.weight_state));
  }
  for (auto& of_one : states) model.WeightGrads(std::move(of_one));
  for (const DeviceTensor& of_one : losses) {
    results.losses.push_back(model.stage(1).LossSum(of_one));
  }
  results.gradients = model.Gradients();
  return results;
}

Results WithoutRounding(cpu::ModelShape shape) {
  shape.storage = cpu::DType::kFloat32;
  TinyPipeline model(shape, 2);
  for (int s = 0; s < model.size(); ++s) {
    cpu::ParameterStore& parameters = model.stage(s).parameters();
    for (int i = 0; i < parameters.size(); ++i) {
      for (float& value : parameters.value(i).span()) value = cpu::Widen(cpu::Round(value));
    }
  }
  return OnCpu(&model);
}

}  // namespace spiritlevel::cuda
