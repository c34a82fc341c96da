#include "tests/kernels/cuda/model/device_pipeline.h"

#include <utility>

#include "kernels/cpu/model/parameters.h"

namespace spiritlevel::cuda {
namespace {

// The parameters that Enliven() gives the CPU's model.
void EnlivenOnDevice(DeviceStage* stage) {
  cpu::MemoryMeter meter;
  cpu::ParameterStore values(stage->shape(), stage->range(), &meter);
  Enliven(&values);
  for (int i = 0; i < values.size(); ++i) {
    SetBits(stage->context(), values.value(i).data(), &stage->parameters().value(i));
  }
}

TinyModel Larger() {
  return {"LargerWithBiases",
          {.layers = 2,
           .hidden = 32,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 8,
           .intermediate = 48,
           .vocabulary = 67,
           .sequence = 75,
           .sequences = 2,
           .norm = cpu::NormKind::kLayer,
           .biases = true,
           .seed = 5}};
}

}  // namespace

std::vector<TinyModel> DeviceModels() {
  std::vector<TinyModel> models;
  for (TinyModel& model : TinyModels()) {
    if (!model.shape.is_mixture()) models.push_back(std::move(model));
  }
  models.push_back(Larger());
  return models;
}

std::vector<TinyModel> DeviceModelsOfEveryStorage() {
  std::vector<TinyModel> all;
  for (const TinyModel& model : DeviceModels()) {
    for (const bool recompute : {false, true}) {
      for (const cpu::DType storage : {cpu::DType::kFloat32, cpu::DType::kBFloat16}) {
        TinyModel kind = model;
        kind.shape.recompute = recompute;
        kind.shape.storage = storage;
        if (storage == cpu::DType::kBFloat16) kind.name += "InBf16";
        if (recompute) kind.name += "RunAgain";
        all.push_back(std::move(kind));
      }
    }
  }
  return all;
}

TestRank::TestRank(Layer* layer, BufferPool* pool, Bytes workspace)
    : plans_(layer, 0, {.workspace = workspace}), staging_(layer, 0) {
  const Stream compute = layer->MakeStream(0, Partition{}, false);
  workspace_ = pool->Take(TensorUse::kWorkspace, workspace, compute);
  context_ = {.layer = layer,
              .pool = pool,
              .plans = &plans_,
              .staging = &staging_,
              .compute = compute,
              .product_workspace = workspace_.data()};
}

DeviceTensor StageAlone::Message(bool there) const {
  if (!there) return DeviceTensor();
  const cpu::ModelShape& shape = stage.shape();
  DeviceTensor message(rank.context(), TensorUse::kCommunication, StorageOf(shape), shape.tokens(),
                       shape.hidden);
  rank.context().Post(Fill{.to = message.view(), .value = 0.25f});
  return message;
}

std::string BitsOfTensor(const DeviceContext& context, const DeviceTensor& tensor) {
  const std::vector<std::byte> bits = BitsOf(context, tensor);
  return {reinterpret_cast<const char*>(bits.data()), bits.size()};
}

Doubles ValuesOf(const DeviceContext& context, const DeviceTensor& tensor) {
  return AsDoubles(FloatsOf(context, tensor));
}

DevicePipeline::DevicePipeline(Layer* layer, const cpu::ModelShape& shape, int stages,
                               Bytes workspace)
    : layer_(layer),
      pool_(std::make_unique<BufferPool>(layer, 0, BufferPoolSettings{})),
      copies_(layer->MakeStream(0, Partition{}, true)) {
  for (const cpu::StageRange& range : cpu::EvenStages(shape, stages)) {
    ranks_.push_back(std::make_unique<TestRank>(layer, pool_.get(), workspace));
    stages_.push_back(std::make_unique<DeviceStage>(shape, range, ranks_.back()->context()));
    EnlivenOnDevice(stages_.back().get());
    sums_.push_back(std::make_unique<DeviceGradients>(stages_.back()->parameters()));
  }
}

void DevicePipeline::Order(Stream first, Stream then) {
  const Event event = layer_->MakeEvent(0, false);
  layer_->Record(event, first);
  layer_->Wait(then, event);
  layer_->Destroy(event);
}

DeviceTensor DevicePipeline::Hop(DeviceTensor message, int from, int to) {
  if (message.empty()) return message;
  DeviceTensor received(pool_.get(), copies_, TensorUse::kCommunication, message.type(),
                        message.rows(), message.cols());
  Order(stage(from).context().compute, copies_);
  layer_->Copy(copies_, received.data(), message.data(), message.bytes());
  message.UsedOn(copies_);
  Order(copies_, stage(to).context().compute);
  return received;
}

DevicePipeline::InFlight DevicePipeline::Forward(const ReferenceBatch& batch, float loss_scale) {
  InFlight flight;
  DeviceTensor x;
  for (int i = 0; i < size(); ++i) {
    DeviceStage::Forwarded done = stage(i).Forward(ViewOf(batch, loss_scale), std::move(x));
    x = i + 1 < size() ? Hop(std::move(done.output), i, i + 1) : std::move(done.output);
    flight.losses = std::move(done.losses);
    flight.activations.push_back(std::move(done.activation));
  }
  return flight;
}

std::vector<DeviceWeightState> DevicePipeline::InputGrads(InFlight flight) {
  std::vector<DeviceWeightState> states(stages_.size());
  DeviceTensor dy;
  for (int i = size() - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    DeviceStage::Backwarded done =
        stage(i).InputGrad(std::move(flight.activations[at]), std::move(dy), &sums(i));
    dy = i > 0 ? Hop(std::move(done.dx), i, i - 1) : std::move(done.dx);
    states[at] = std::move(done.weight_state);
  }
  return states;
}

void DevicePipeline::WeightGrads(std::vector<DeviceWeightState> states) {
  for (int i = 0; i < size(); ++i) stage(i).WeightGrad(std::move(states[static_cast<size_t>(i)]));
}

void DevicePipeline::FusedBackward(InFlight flight) {
  DeviceTensor dy;
  for (int i = size() - 1; i >= 0; --i) {
    dy = stage(i).FusedBackward(std::move(flight.activations[static_cast<size_t>(i)]),
                                std::move(dy), &sums(i));
    if (i > 0) dy = Hop(std::move(dy), i, i - 1);
  }
}

NamedValues DevicePipeline::Gradients() {
  NamedValues values;
  for (int s = 0; s < size(); ++s) {
    for (int i = 0; i < sums(s).size(); ++i) {
      values[stage(s).parameters().info(i).name] = ValuesOf(stage(s).context(), sums(s).sum(i));
    }
  }
  return values;
}

std::map<std::string, std::string> DevicePipeline::GradientBits() {
  std::map<std::string, std::string> bits;
  for (int s = 0; s < size(); ++s) {
    for (int i = 0; i < sums(s).size(); ++i) {
      bits[stage(s).parameters().info(i).name] = BitsOfTensor(stage(s).context(), sums(s).sum(i));
    }
  }
  return bits;
}

}  // namespace spiritlevel::cuda
