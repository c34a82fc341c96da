#include <gtest/gtest.h>
// gtest first: the header below names a type of it.
#include "tests/kernels/model/tiny_models.h"

#include <algorithm>
#include <random>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/model/bfloat16.h"

namespace spiritlevel {
namespace {

using cpu::DType;
using cpu::MlpKind;
using cpu::ModelShape;
using cpu::NormKind;

ModelShape Plain() {
  return {.layers = 4,
          .hidden = 12,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 4,
          .intermediate = 10,
          .vocabulary = 13,
          .sequence = 7,
          .sequences = 2,
          .seed = 77};
}

ModelShape Changed(void (*change)(ModelShape*)) {
  ModelShape shape = Plain();
  change(&shape);
  return shape;
}

Doubles ValuesOf(const cpu::Tensor& tensor) {
  Doubles values;
  if (tensor.type() == DType::kFloat32) {
    values.assign(tensor.span().begin(), tensor.span().end());
  } else {
    for (const uint16_t half : tensor.halves()) values.push_back(cpu::Widen(half));
  }
  return values;
}

}  // namespace

std::vector<TinyModel> TinyModels() {
  return {
      {"Swiglu", Plain()},
      {"GeluWithLayerNormAndBiases", Changed([](ModelShape* s) {
         s->mlp = MlpKind::kGelu;
         s->norm = NormKind::kLayer;
         s->biases = true;
       })},
      {"SwigluWithBiasesAndDropout", Changed([](ModelShape* s) {
         s->biases = true;
         s->dropout = 0.25;
         s->kv_heads = 4;
       })},
      {"TiedWithOneKeyHead", Changed([](ModelShape* s) {
         s->tied_embeddings = true;
         s->kv_heads = 1;
         s->sequences = 1;
       })},
      {"MixtureOfExperts", Changed([](ModelShape* s) {
         s->mlp = MlpKind::kMixtureOfExperts;
         s->experts = 5;
         s->top_k = 2;
       })},
      {"FullExpertsWithDropout", Changed([](ModelShape* s) {
         s->mlp = MlpKind::kMixtureOfExperts;
         s->experts = 4;
         s->top_k = 1;
         s->capacity_factor = 0.75;
         s->norm = NormKind::kLayer;
         s->dropout = 0.1;
       })},
  };
}

std::vector<TinyModel> TinyModelsOfEveryStorage() {
  std::vector<TinyModel> all;
  for (const TinyModel& model : TinyModels()) {
    for (const bool recompute : {false, true}) {
      for (const DType storage : {DType::kFloat32, DType::kBFloat16}) {
        TinyModel kind = model;
        kind.shape.recompute = recompute;
        kind.shape.storage = storage;
        if (storage == DType::kBFloat16) kind.name += "InBf16";
        if (recompute) kind.name += "RunAgain";
        all.push_back(std::move(kind));
      }
    }
  }
  return all;
}

ReferenceBatch RandomBatch(const ModelShape& shape, int64_t index) {
  std::mt19937 random(static_cast<uint32_t>(500 + index));
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(shape.vocabulary) - 1);
  ReferenceBatch batch{.iteration = 3, .index = index, .tokens = {}, .targets = {}};
  for (int64_t i = 0; i < shape.tokens(); ++i) {
    batch.tokens.push_back(token(random));
    batch.targets.push_back(i % 6 == 4 ? cpu::kIgnoredTarget : token(random));
  }
  return batch;
}

cpu::MicroBatch ViewOf(const ReferenceBatch& batch, float loss_scale) {
  return {.iteration = batch.iteration,
          .index = batch.index,
          .tokens = batch.tokens,
          .targets = batch.targets,
          .loss_scale = loss_scale};
}

void Enliven(cpu::ParameterStore* parameters) {
  for (int i = 0; i < parameters->size(); ++i) {
    const cpu::ParameterInfo& info = parameters->info(i);
    const std::string& name = info.begins_as.empty() ? info.name : info.begins_as;
    std::seed_seq seed(name.begin(), name.end());
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> between(-0.4f, 0.4f);
    std::vector<float> values(static_cast<size_t>(info.size()));
    cpu::InitialValues(info, parameters->seed(), values);
    for (float& value : values) value += between(random);
    cpu::Tensor& tensor = parameters->value(i);
    if (tensor.type() == DType::kFloat32) {
      std::ranges::copy(values, tensor.span().begin());
    } else {
      cpu::Round(values, tensor.halves());
    }
  }
}

std::string BitsOf(const cpu::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes())};
}

TinyPipeline::TinyPipeline(const ModelShape& shape, int stages)
    : meter_(std::make_unique<cpu::MemoryMeter>()) {
  cpu::UseOneBlasThread();
  for (const cpu::StageRange& range : cpu::EvenStages(shape, stages)) {
    stages_.push_back(std::make_unique<cpu::Stage>(shape, range, meter_.get()));
    Enliven(&stages_.back()->parameters());
    sums_.push_back(std::make_unique<cpu::GradientStore>(stages_.back()->parameters()));
  }
}

TinyPipeline::InFlight TinyPipeline::Forward(const ReferenceBatch& batch, float loss_scale) {
  InFlight flight;
  cpu::Tensor x;
  for (const auto& stage : stages_) {
    cpu::Stage::Forwarded done = stage->Forward(ViewOf(batch, loss_scale), std::move(x));
    x = std::move(done.output);
    flight.loss_sum = done.loss_sum;
    flight.activations.push_back(std::move(done.activation));
  }
  if (flight.activations.back().is_whole()) {
    const std::span<const float> losses = flight.activations.back().token_losses();
    flight.token_losses.assign(reinterpret_cast<const char*>(losses.data()), losses.size_bytes());
  }
  return flight;
}

std::vector<cpu::WeightState> TinyPipeline::InputGrads(InFlight flight) {
  std::vector<cpu::WeightState> states(stages_.size());
  cpu::Tensor dy;
  for (int i = size() - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    cpu::Stage::Backwarded done =
        stage(i).InputGrad(std::move(flight.activations[at]), std::move(dy), &sums(i));
    dy = std::move(done.dx);
    states[at] = std::move(done.weight_state);
  }
  return states;
}

void TinyPipeline::FusedBackward(InFlight flight) {
  cpu::Tensor dy;
  for (int i = size() - 1; i >= 0; --i) {
    dy = stage(i).FusedBackward(std::move(flight.activations[static_cast<size_t>(i)]),
                                std::move(dy), &sums(i));
  }
}

NamedValues TinyPipeline::Parameters() {
  NamedValues values;
  for (const auto& stage : stages_) {
    for (int i = 0; i < stage->parameters().size(); ++i) {
      values[stage->parameters().info(i).name] = ValuesOf(stage->parameters().value(i));
    }
  }
  return values;
}

NamedValues TinyPipeline::Gradients() {
  NamedValues values;
  for (int s = 0; s < size(); ++s) {
    for (int i = 0; i < sums(s).size(); ++i) {
      values[stage(s).parameters().info(i).name] = ValuesOf(sums(s).sum(i));
    }
  }
  return values;
}

std::map<std::string, std::string> TinyPipeline::GradientBits() {
  std::map<std::string, std::string> bits;
  for (int s = 0; s < size(); ++s) {
    for (int i = 0; i < sums(s).size(); ++i) {
      bits[stage(s).parameters().info(i).name] = BitsOf(sums(s).sum(i));
    }
  }
  return bits;
}

}  // namespace spiritlevel
