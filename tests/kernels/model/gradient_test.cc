// The gradients of whole models against differences of a forward pass in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/cpu/model/bfloat16.h"
#include "tests/kernels/model/tiny_models.h"

namespace spiritlevel {
namespace {

constexpr float kScale = 0.125f;

double ReferenceLoss(const cpu::ModelShape& shape, const NamedValues& parameters,
                     const ReferenceBatch& batch) {
  const Doubles losses = ReferenceLosses(shape, parameters, batch);
  return kScale * std::accumulate(losses.begin(), losses.end(), 0.0);
}

// Two layers have all that four have; differences take a quarter of the time.
cpu::ModelShape WithTwoLayers(cpu::ModelShape shape) {
  shape.layers = 2;
  return shape;
}

// Not every expert gets a token.
bool IsOfAnExpert(const std::string& name) { return name.find("experts") != std::string::npos; }

class ModelGradient : public testing::TestWithParam<TinyModel> {
 protected:
  const cpu::ModelShape shape_ = WithTwoLayers(GetParam().shape);
  const ReferenceBatch batch_ = RandomBatch(shape_, 2);
  TinyPipeline model_{shape_, 2};
  const NamedValues parameters_ = model_.Parameters();

  NamedValues Gradients() {
    for (cpu::WeightState& state : model_.InputGrads(model_.Forward(batch_, kScale))) {
      const int at = state.identity().stage.embedding ? 0 : 1;
      model_.stage(at).WeightGrad(std::move(state));
    }
    return model_.Gradients();
  }
};

TEST_P(ModelGradient, TheLossIsTheOneInFloat64) {
  const TinyPipeline::InFlight flight = model_.Forward(batch_, kScale);
  const Doubles expected = ReferenceLosses(shape_, parameters_, batch_);
  EXPECT_NEAR(flight.loss_sum, std::accumulate(expected.begin(), expected.end(), 0.0), 2e-5);
  const std::span<const float> losses = flight.activations.back().token_losses();
  EXPECT_LT(RelativeError(Doubles(losses.begin(), losses.end()), expected), 2e-6);
}

// Some entries of each parameter; all of the small ones.
std::vector<size_t> SomeEntries(size_t size, const std::string& name) {
  constexpr size_t kMost = 40;
  std::vector<size_t> entries(size);
  std::iota(entries.begin(), entries.end(), size_t{0});
  std::seed_seq seed(name.begin(), name.end());
  std::shuffle(entries.begin(), entries.end(), std::mt19937(seed));
  entries.resize(std::min(size, kMost));
  return entries;
}

// Errors are in units of the largest entry of the same parameter's gradient.
TEST_P(ModelGradient, OfSingleEntriesIsThatOfDifferencesInFloat64) {
  const NamedValues gradients = Gradients();
  ASSERT_EQ(gradients.size(), parameters_.size());
  NamedValues moved = parameters_;
  for (const auto& [name, gradient] : gradients) {
    double largest = 0;
    for (const double entry : gradient) largest = std::max(largest, std::abs(entry));
    EXPECT_TRUE(largest > 1e-6 || IsOfAnExpert(name)) << name << " does not matter";
    for (const size_t i : SomeEntries(gradient.size(), name)) {
      double& value = moved.at(name)[i];
      const double expected = Gradient(
          [&](const Doubles& v) {
            value = v.front();
            return ReferenceLoss(shape_, moved, batch_);
          },
          {parameters_.at(name)[i]})[0];
      value = parameters_.at(name)[i];
      EXPECT_NEAR(gradient[i], expected, 2e-5 * largest + 1e-10) << name << " " << i;
    }
  }
}

// All parameters at once, along random directions.
TEST_P(ModelGradient, AlongRandomDirectionsIsThatOfDifferencesInFloat64) {
  const NamedValues gradients = Gradients();
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    std::mt19937 random(seed);
    NamedValues above = parameters_;
    NamedValues below = parameters_;
    double slope = 0;
    constexpr double kStep = 1e-6;
    for (const auto& [name, gradient] : gradients) {
      const Doubles direction = RandomDoubles(gradient.size(), &random);
      slope += Dot(gradient, direction);
      for (size_t i = 0; i < direction.size(); ++i) {
        above.at(name)[i] += kStep * direction[i];
        below.at(name)[i] -= kStep * direction[i];
      }
    }
    const double expected =
        (ReferenceLoss(shape_, above, batch_) - ReferenceLoss(shape_, below, batch_)) / (2 * kStep);
    EXPECT_NEAR(slope, expected, 2e-5 * (1 + std::abs(expected))) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ModelGradient, testing::ValuesIn(TinyModels()), NameOf);

// Eight bits of mantissa are rounded at every tensor on the way.
class Bf16Gradient : public testing::TestWithParam<TinyModel> {};

double CosineOf(const Doubles& a, const Doubles& b) {
  return Dot(a, b) / std::sqrt(Dot(a, a) * Dot(b, b));
}

// The same parameters, to the bit.
void CopyParameters(const cpu::ParameterStore& halves, cpu::ParameterStore* floats) {
  for (int i = 0; i < halves.size(); ++i) {
    cpu::Widen(halves.value(i).halves(), floats->value(i).span());
  }
}

struct Comparison {
  NamedValues halves;
  NamedValues floats;
};

Comparison GradientsInBoth(cpu::ModelShape shape, int64_t index) {
  const ReferenceBatch batch = RandomBatch(shape, index);
  shape.storage = cpu::DType::kBFloat16;
  TinyPipeline halves(shape, 1);
  shape.storage = cpu::DType::kFloat32;
  TinyPipeline floats(shape, 1);
  CopyParameters(halves.stage(0).parameters(), &floats.stage(0).parameters());
  for (TinyPipeline* const model : {&halves, &floats}) {
    model->FusedBackward(model->Forward(batch, kScale));
  }
  return {halves.Gradients(), floats.Gradients()};
}

// Of micro-batches in which no token is so near to a tie between experts that rounding moves it.
TEST_P(Bf16Gradient, PointsWhereThatOfFp32DoesAndIsAsLong) {
  for (int64_t index = 3; index <= 5; ++index) {
    SCOPED_TRACE(index);
    const Comparison both = GradientsInBoth(WithTwoLayers(GetParam().shape), index);
    Doubles all;
    Doubles all_expected;
    for (const auto& [name, gradient] : both.halves) {
      const Doubles& expected = both.floats.at(name);
      all.insert(all.end(), gradient.begin(), gradient.end());
      all_expected.insert(all_expected.end(), expected.begin(), expected.end());
      if (Dot(gradient, gradient) == 0 && IsOfAnExpert(name)) continue;
      EXPECT_GT(CosineOf(gradient, expected), 0.99) << name;
      EXPECT_LT(RelativeError(gradient, expected), 0.1) << name;
    }
    EXPECT_GT(CosineOf(all, all_expected), 0.999);
    EXPECT_NEAR(std::sqrt(Dot(all, all) / Dot(all_expected, all_expected)), 1, 0.025);
  }
}

TEST_P(Bf16Gradient, IsSummedInFp32) {
  cpu::ModelShape shape = GetParam().shape;
  shape.storage = cpu::DType::kBFloat16;
  TinyPipeline model(shape, 1);
  for (int i = 0; i < model.sums(0).size(); ++i) {
    EXPECT_EQ(model.sums(0).sum(i).type(), cpu::DType::kFloat32);
    EXPECT_EQ(model.stage(0).parameters().value(i).type(), cpu::DType::kBFloat16);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Bf16Gradient, testing::ValuesIn(TinyModels()), NameOf);

}  // namespace
}  // namespace spiritlevel
