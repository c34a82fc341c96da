// The optimizer on a device against the one on the CPU, and its ways back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/model/bfloat16.h"
#include "kernels/cpu/model/stage_optimizer.h"
#include "kernels/cuda/model/device_stage_optimizer.h"
#include "tests/kernels/cuda/model/device_pipeline.h"

namespace spiritlevel::cuda {
namespace {

using testing::IsEmpty;

constexpr float kClip = 0.75f;
constexpr double kUnit = 0x1p-23;  // in the last place of fp32

cpu::ModelShape ShapeOf(cpu::DType storage) {
  cpu::ModelShape shape = DeviceModels()[1].shape;
  shape.storage = storage;
  return shape;
}

std::vector<float> GradientOf(int step, int parameter, int64_t size) {
  std::mt19937 random(static_cast<uint32_t>(1000 * step + parameter));
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) value = normal(random);
  return values;
}

// A stage's parameters on a device, random gradients, and its optimizer.
struct Trained {
  explicit Trained(cpu::DType storage, std::vector<int> owned = {}, uint64_t seed = 1)
      : layer({.seed = seed}),
        pool(&layer, 0, {}),
        rank(&layer, &pool),
        parameters(ShapeOf(storage), cpu::EvenStages(ShapeOf(storage), 2)[0], rank.context()),
        sums(parameters),
        optimizer(owned.empty() ? DeviceStageOptimizer(&parameters)
                                : DeviceStageOptimizer(&parameters, std::move(owned))) {}
  ~Trained() { EXPECT_THAT(layer.misuses(), IsEmpty()); }

  const DeviceContext& context() const { return rank.context(); }
  void NewGradients(int step) {
    for (int i = 0; i < sums.size(); ++i) {
      SetFloats(context(), GradientOf(step, i, sums.sum(i).size()), &sums.sum(i));
    }
  }
  void Step(int step) {
    NewGradients(step);
    optimizer.Step(options, sums, kClip);
  }
  // What the step changes, in fp32.
  DeviceTensor& Exact(int i) {
    return optimizer.master(i).empty() ? parameters.value(optimizer.owned()[static_cast<size_t>(i)])
                                       : optimizer.master(i);
  }

  // Bits of everything that a step changes.
  std::vector<std::string> Bits() {
    std::vector<std::string> bits{std::to_string(optimizer.step()),
                                  std::to_string(parameters.version())};
    for (int i = 0; i < parameters.size(); ++i) {
      bits.push_back(BitsOfTensor(context(), parameters.value(i)));
    }
    for (int i = 0; i < static_cast<int>(optimizer.owned().size()); ++i) {
      bits.push_back(BitsOfTensor(context(), optimizer.first_moment(i)));
      bits.push_back(BitsOfTensor(context(), optimizer.second_moment(i)));
      if (!optimizer.master(i).empty()) bits.push_back(BitsOfTensor(context(), Exact(i)));
    }
    return bits;
  }

  FakeLayer layer;
  BufferPool pool;
  TestRank rank;
  DeviceParameters parameters;
  DeviceGradients sums;
  DeviceStageOptimizer optimizer;
  cpu::AdamW options{};
};

void ExpectNear(const std::vector<float>& values, std::span<const float> expected, double unit) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t j = 0; j < values.size(); ++j) {
    EXPECT_NEAR(values[j], expected[j], 4 * kUnit * (std::abs(double{expected[j]}) + unit));
  }
}

class DeviceOptimizer : public testing::TestWithParam<cpu::DType> {};

// The same formulas, but for what a compiler fuses.
TEST_P(DeviceOptimizer, TakesTheStepsOfTheCpus) {
  Trained trained(GetParam());
  cpu::MemoryMeter meter;
  cpu::ParameterStore parameters(ShapeOf(GetParam()), cpu::EvenStages(ShapeOf(GetParam()), 2)[0],
                                 &meter);
  cpu::GradientStore sums(parameters);
  cpu::StageOptimizer optimizer(&parameters);
  for (int step = 1; step <= 3; ++step) {
    trained.Step(step);
    for (int i = 0; i < sums.size(); ++i) {
      std::ranges::copy(GradientOf(step, i, sums.sum(i).size()), sums.sum(i).span().begin());
    }
    optimizer.Step(trained.options, sums, kClip);
    EXPECT_EQ(trained.optimizer.step(), step);
    EXPECT_EQ(trained.parameters.version(), step);
    for (int i = 0; i < parameters.size(); ++i) {
      const DeviceContext& context = trained.context();
      ExpectNear(FloatsOf(context, trained.optimizer.first_moment(i)),
                 optimizer.first_moment(i).span(), 0.1);
      ExpectNear(FloatsOf(context, trained.optimizer.second_moment(i)),
                 optimizer.second_moment(i).span(), 0.01);
      const std::vector<float> exact = FloatsOf(context, trained.Exact(i));
      const bool in_bf16 = GetParam() == cpu::DType::kBFloat16;
      ExpectNear(exact, in_bf16 ? optimizer.master(i).span() : parameters.value(i).span(),
                 3 * double{trained.options.rate});
      const std::vector<float> stored = FloatsOf(context, trained.parameters.value(i));
      for (size_t j = 0; j < stored.size(); ++j) {
        EXPECT_EQ(stored[j], in_bf16 ? cpu::Widen(cpu::Round(exact[j])) : exact[j]);
      }
    }
  }
}

TEST_P(DeviceOptimizer, ASnapshotBringsEveryBitBack) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Trained trained(GetParam(), {}, seed);
    trained.Step(1);
    trained.Step(2);
    const std::vector<std::string> before = trained.Bits();
    const DeviceStageOptimizer::Snapshot snapshot = trained.optimizer.TakeSnapshot();
    trained.Step(3);
    const std::vector<std::string> after = trained.Bits();
    EXPECT_NE(after, before);
    const DeviceContext& context = trained.context();
    context.Post(
        Fill{.to = trained.sums.sum(0).view(), .value = std::numeric_limits<float>::quiet_NaN()});
    trained.optimizer.Step(trained.options, trained.sums, 1);
    trained.optimizer.Restore(snapshot);
    EXPECT_EQ(trained.Bits(), before);
    trained.Step(3);
    EXPECT_EQ(trained.Bits(), after);
  }
}

// The bounds of docs/numerics.md.
TEST_P(DeviceOptimizer, UndoGoesBackToTheVersionBeforeUpToTheLastPlaces) {
  Trained trained(GetParam());
  for (int step = 1; step <= 3; ++step) trained.Step(step);
  std::vector<std::vector<float>> p, m, v;
  for (int i = 0; i < trained.parameters.size(); ++i) {
    p.push_back(FloatsOf(trained.context(), trained.Exact(i)));
    m.push_back(FloatsOf(trained.context(), trained.optimizer.first_moment(i)));
    v.push_back(FloatsOf(trained.context(), trained.optimizer.second_moment(i)));
  }
  trained.Step(4);
  trained.optimizer.Undo(trained.options, trained.sums, kClip);
  EXPECT_EQ(trained.optimizer.step(), 3);
  EXPECT_EQ(trained.parameters.version(), 3);
  for (int i = 0; i < trained.parameters.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const std::vector<float> g = FloatsOf(trained.context(), trained.sums.sum(i));
    const std::vector<float> exact = FloatsOf(trained.context(), trained.Exact(i));
    const std::vector<float> first = FloatsOf(trained.context(), trained.optimizer.first_moment(i));
    const std::vector<float> second =
        FloatsOf(trained.context(), trained.optimizer.second_moment(i));
    for (size_t j = 0; j < g.size(); ++j) {
      const double grad = double{kClip} * double{g[j]};
      EXPECT_NEAR(exact[j], p[at][j],
                  2 * kUnit * (std::abs(double{p[at][j]}) + double{trained.options.rate}));
      EXPECT_NEAR(first[j], m[at][j],
                  2 * kUnit * (std::abs(double{m[at][j]}) + 0.1 * std::abs(grad)));
      EXPECT_NEAR(second[j], v[at][j], 2 * kUnit * (double{v[at][j]} + 0.001 * grad * grad));
    }
  }
}

// Data-parallel replicas that own a part each do together what one does.
TEST_P(DeviceOptimizer, ShardsTogetherAreTheWhole) {
  Trained whole(GetParam());
  std::vector<int> even, odd;
  for (int i = 0; i < whole.parameters.size(); ++i) (i % 2 == 0 ? even : odd).push_back(i);
  Trained first(GetParam(), even);
  Trained second(GetParam(), odd);
  for (int step = 1; step <= 2; ++step) {
    for (Trained* const trained : {&whole, &first, &second}) trained->Step(step);
  }
  for (int i = 0; i < whole.parameters.size(); ++i) {
    Trained& owner = i % 2 == 0 ? first : second;
    EXPECT_EQ(BitsOfTensor(owner.context(), owner.parameters.value(i)),
              BitsOfTensor(whole.context(), whole.parameters.value(i)));
  }
  const std::vector<double> norms = whole.optimizer.SquaredNorms(whole.sums);
  const std::vector<double> of_first = first.optimizer.SquaredNorms(first.sums);
  const std::vector<double> of_second = second.optimizer.SquaredNorms(second.sums);
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_EQ(norms[i], (i % 2 == 0 ? of_first : of_second)[i / 2]);
  }
}

INSTANTIATE_TEST_SUITE_P(Storages, DeviceOptimizer,
                         testing::Values(cpu::DType::kFloat32, cpu::DType::kBFloat16),
                         [](const auto& param) {
                           return param.param == cpu::DType::kFloat32 ? "Float32" : "Bf16";
                         });

TEST(DeviceSquaredNorms, AreSumsInDoubleByParameter) {
  Trained trained(cpu::DType::kFloat32);
  trained.NewGradients(1);
  const std::vector<double> norms = trained.optimizer.SquaredNorms(trained.sums);
  ASSERT_EQ(static_cast<int>(norms.size()), trained.parameters.size());
  for (int i = 0; i < trained.parameters.size(); ++i) {
    double sum = 0;
    for (const float g : GradientOf(1, i, trained.sums.sum(i).size())) sum += double{g} * double{g};
    EXPECT_NEAR(norms[static_cast<size_t>(i)], sum, 1e-14 * sum);
  }
}

}  // namespace
}  // namespace spiritlevel::cuda
