#include "kernels/cpu/model/stage_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/model/bfloat16.h"
#include "kernels/cpu/model/undo_adamw.h"
#include "tests/kernels/model/tiny_models.h"

namespace spiritlevel {
namespace {

using cpu::AdamW;
using cpu::StageOptimizer;

// A stage's parameters, random gradients, and its optimizer.
struct Trained {
  explicit Trained(cpu::DType storage, std::vector<int> owned = {})
      : parameters(ShapeOf(storage), cpu::EvenStages(ShapeOf(storage), 2)[0], &meter),
        sums(parameters),
        optimizer(owned.empty() ? StageOptimizer(&parameters)
                                : StageOptimizer(&parameters, std::move(owned))) {}

  static cpu::ModelShape ShapeOf(cpu::DType storage) {
    cpu::ModelShape shape = TinyModels()[1].shape;
    shape.storage = storage;
    return shape;
  }

  // Of step `step`, on any copy the same.
  void NewGradients(int step) {
    std::mt19937 random(static_cast<uint32_t>(step));
    std::normal_distribution<float> normal(0, 0.1f);
    for (int i = 0; i < sums.size(); ++i) {
      for (float& value : sums.sum(i).span()) value = normal(random);
    }
  }
  void Step(int step) {
    NewGradients(step);
    optimizer.Step(options, sums, 0.75f);
  }

  // Bits of everything that a step changes.
  std::vector<std::string> Bits() {
    std::vector<std::string> bits{std::to_string(optimizer.step()),
                                  std::to_string(parameters.version())};
    for (int i = 0; i < parameters.size(); ++i) bits.push_back(BitsOf(parameters.value(i)));
    for (int i = 0; i < static_cast<int>(optimizer.owned().size()); ++i) {
      bits.push_back(BitsOf(optimizer.first_moment(i)));
      bits.push_back(BitsOf(optimizer.second_moment(i)));
      if (!optimizer.master(i).empty()) bits.push_back(BitsOf(optimizer.master(i)));
    }
    return bits;
  }

  cpu::MemoryMeter meter;
  cpu::ParameterStore parameters;
  cpu::GradientStore sums;
  StageOptimizer optimizer;
  AdamW options{};
};

class Optimizer : public testing::TestWithParam<cpu::DType> {};

TEST_P(Optimizer, StepIsAdamWOfEachParameter) {
  Trained trained(GetParam());
  std::vector<std::vector<float>> p, m, v;
  for (int i = 0; i < trained.parameters.size(); ++i) {
    const cpu::ParameterInfo& info = trained.parameters.info(i);
    p.emplace_back(static_cast<size_t>(info.size()));
    m.emplace_back(p.back().size(), 0.0f);
    v.emplace_back(p.back().size(), 0.0f);
    cpu::InitialValues(info, trained.parameters.seed(), p.back());
  }
  for (int step = 1; step <= 3; ++step) {
    trained.Step(step);
    EXPECT_EQ(trained.optimizer.step(), step);
    EXPECT_EQ(trained.parameters.version(), step);
    for (int i = 0; i < trained.parameters.size(); ++i) {
      const auto at = static_cast<size_t>(i);
      cpu::AdamWStep(trained.options, step, 0.75f, trained.sums.sum(i).span(), p[at], m[at], v[at]);
      const cpu::Tensor& value = trained.parameters.value(i);
      if (GetParam() == cpu::DType::kFloat32) {
        EXPECT_TRUE(std::ranges::equal(value.span(), p[at]));
      } else {
        // The master copy has it to the last bit, the parameter is it, rounded.
        EXPECT_TRUE(std::ranges::equal(trained.optimizer.master(i).span(), p[at]));
        for (size_t j = 0; j < p[at].size(); ++j) {
          EXPECT_EQ(value.halves()[j], cpu::Round(p[at][j]));
        }
      }
    }
  }
}

TEST_P(Optimizer, ASnapshotBringsEveryBitBack) {
  Trained trained(GetParam());
  trained.Step(1);
  trained.Step(2);
  const std::vector<std::string> before = trained.Bits();
  const StageOptimizer::Snapshot snapshot = trained.optimizer.TakeSnapshot();
  trained.Step(3);
  const std::vector<std::string> after = trained.Bits();
  EXPECT_NE(after, before);
  trained.sums.sum(0).span()[0] = std::numeric_limits<float>::quiet_NaN();
  trained.optimizer.Step(trained.options, trained.sums, 1);
  trained.optimizer.Restore(snapshot);
  EXPECT_EQ(trained.Bits(), before);
  trained.Step(3);
  EXPECT_EQ(trained.Bits(), after);
}

// Data-parallel replicas that own a part each do together what one does.
TEST_P(Optimizer, ShardsTogetherAreTheWhole) {
  Trained whole(GetParam());
  std::vector<int> even, odd;
  for (int i = 0; i < whole.parameters.size(); ++i) (i % 2 == 0 ? even : odd).push_back(i);
  Trained first(GetParam(), even);
  Trained second(GetParam(), odd);
  for (int step = 1; step <= 2; ++step) {
    for (Trained* const trained : {&whole, &first, &second}) trained->Step(step);
  }
  for (int i = 0; i < whole.parameters.size(); ++i) {
    const Trained& owner = i % 2 == 0 ? first : second;
    EXPECT_EQ(BitsOf(owner.parameters.value(i)), BitsOf(whole.parameters.value(i)));
  }
  const std::vector<double> norms = whole.optimizer.SquaredNorms(whole.sums);
  const std::vector<double> of_first = first.optimizer.SquaredNorms(first.sums);
  const std::vector<double> of_second = second.optimizer.SquaredNorms(second.sums);
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_EQ(norms[i], (i % 2 == 0 ? of_first : of_second)[i / 2]);
  }
}

INSTANTIATE_TEST_SUITE_P(Storages, Optimizer,
                         testing::Values(cpu::DType::kFloat32, cpu::DType::kBFloat16),
                         [](const auto& param) {
                           return param.param == cpu::DType::kFloat32 ? "Float32" : "Bf16";
                         });

TEST(SquaredNorms, AreSumsInDoubleByParameter) {
  Trained trained(cpu::DType::kFloat32);
  trained.NewGradients(1);
  const std::vector<double> norms = trained.optimizer.SquaredNorms(trained.sums);
  ASSERT_EQ(static_cast<int>(norms.size()), trained.parameters.size());
  for (int i = 0; i < trained.parameters.size(); ++i) {
    double sum = 0;
    for (const float g : trained.sums.sum(i).span()) sum += double{g} * double{g};
    EXPECT_NEAR(norms[static_cast<size_t>(i)], sum, 1e-14 * sum);
  }
}

// Updates below half of bf16's last bit would be lost one by one.
TEST(MasterWeights, AddUpWhatIsTooSmallForBf16) {
  Trained trained(cpu::DType::kBFloat16);
  trained.options = {.rate = 1e-4f, .weight_decay = 0};
  const int ones = trained.parameters.Find("layers.0.attention.norm.weight");
  ASSERT_EQ(cpu::Widen(trained.parameters.value(ones).halves()[0]), 1.0f);
  for (int i = 0; i < trained.sums.size(); ++i) {
    std::ranges::fill(trained.sums.sum(i).span(), 1.0f);
  }
  for (int step = 0; step < 100; ++step) trained.optimizer.Step(trained.options, trained.sums, 1);
  EXPECT_NEAR(cpu::Widen(trained.parameters.value(ones).halves()[0]), 0.99f, 0x1p-8f);
}

// What undoing one step by arithmetic loses, the worst of 20,000 entries.
struct Loss {
  double parameter = 0;  // in units of |p| + rate
  double first = 0;      // in units of |m| + (1 - beta1) |g|
  double second = 0;     // in units of v + (1 - beta2) g^2
  double of_second = 0;  // in units of v alone
};

// The last step's gradients are `spike` times as large as those before.
Loss LossOfUndoing(int64_t steps, const AdamW& options, float spike) {
  constexpr size_t kSize = 20'000;
  constexpr float kClip = 0.6f;
  std::mt19937 random(static_cast<uint32_t>(steps));
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> p(kSize), g(kSize), m(kSize, 0.0f), v(kSize, 0.0f), scale(kSize);
  for (size_t i = 0; i < kSize; ++i) {
    p[i] = normal(random);
    scale[i] = std::exp(4 * normal(random));  // gradients of every size
  }
  std::vector<float> p_before, m_before, v_before;
  for (int64_t step = 1; step <= steps; ++step) {
    const float by = step == steps ? spike : 1;
    for (size_t i = 0; i < kSize; ++i) g[i] = by * scale[i] * normal(random);
    p_before = p;
    m_before = m;
    v_before = v;
    cpu::AdamWStep(options, step, kClip, g, p, m, v);
  }
  cpu::UndoAdamWStep(options, steps, kClip, g, p, m, v);
  Loss loss;
  const auto worse = [](double a, double b, double unit, double* worst) {
    *worst = std::max(*worst, std::abs(a - b) / (unit + 1e-30));
  };
  for (size_t i = 0; i < kSize; ++i) {
    const double grad = double{kClip} * double{g[i]};
    const double of_grad = (1 - double{options.beta2}) * grad * grad;
    worse(p[i], p_before[i], std::abs(double{p_before[i]}) + double{options.rate}, &loss.parameter);
    worse(m[i], m_before[i],
          std::abs(double{m_before[i]}) + (1 - double{options.beta1}) * std::abs(grad),
          &loss.first);
    worse(v[i], v_before[i], double{v_before[i]} + of_grad, &loss.second);
    worse(v[i], v_before[i], double{v_before[i]}, &loss.of_second);
  }
  return loss;
}

constexpr double kUnit = 0x1p-23;  // in the last place of fp32

// docs/numerics.md states these bounds.
TEST(UndoAdamWStep, LosesLessThanTwoUnitsInTheLastPlaceOfWhatTheStepAddedUp) {
  for (const int64_t steps : {1, 2, 10, 200}) {
    for (const float rate : {1e-4f, 1e-2f}) {
      const Loss loss = LossOfUndoing(steps, {.rate = rate, .weight_decay = 0.1f}, 1);
      SCOPED_TRACE(testing::Message() << "step " << steps << ", rate " << rate);
      EXPECT_LT(loss.parameter, 2 * kUnit);
      EXPECT_LT(loss.first, 2 * kUnit);
      EXPECT_LT(loss.second, 2 * kUnit);
    }
  }
}

// The first step's moments are exactly what they were: 0.
TEST(UndoAdamWStep, OfTheFirstStepLeavesNoMoments) {
  const Loss loss = LossOfUndoing(1, {}, 1);
  EXPECT_EQ(loss.first, 0);
  EXPECT_EQ(loss.second, 0);
}

// What a spike added to a moment, it also pushed out of it: for that there are snapshots.
TEST(UndoAdamWStep, CannotBringBackASecondMomentFromUnderASpike) {
  const double calm = LossOfUndoing(200, {}, 1).of_second;
  const double spike = LossOfUndoing(200, {}, 1e3f).of_second;
  EXPECT_LT(calm, 4 * kUnit);
  EXPECT_GT(spike, 1e-4);
  EXPECT_LT(LossOfUndoing(200, {}, 1e3f).second, 2 * kUnit);
}

TEST(UndoAdamWStep, OfAStageGoesBackToItsVersionUpToTheLastPlaces) {
  for (const cpu::DType storage : {cpu::DType::kFloat32, cpu::DType::kBFloat16}) {
    Trained trained(storage);
    for (int step = 1; step <= 3; ++step) trained.Step(step);
    const StageOptimizer::Snapshot before = trained.optimizer.TakeSnapshot();
    trained.Step(4);
    trained.optimizer.Undo(trained.options, trained.sums, 0.75f);
    EXPECT_EQ(trained.optimizer.step(), 3);
    EXPECT_EQ(trained.parameters.version(), 3);
    Trained expected(storage);
    expected.optimizer.Restore(before);
    for (int i = 0; i < trained.parameters.size(); ++i) {
      const bool exact = storage == cpu::DType::kFloat32;
      const std::span<const float> p = exact ? std::as_const(trained.parameters).value(i).span()
                                             : trained.optimizer.master(i).span();
      const std::span<const float> q = exact ? std::as_const(expected.parameters).value(i).span()
                                             : expected.optimizer.master(i).span();
      for (size_t j = 0; j < p.size(); ++j) {
        EXPECT_NEAR(p[j], q[j], 2 * kUnit * (std::abs(q[j]) + trained.options.rate));
      }
    }
  }
}

}  // namespace
}  // namespace spiritlevel
