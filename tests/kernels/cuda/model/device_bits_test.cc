// Whatever may differ between two runs of one training step on a device, and must not change a bit
// of it: among other things, the order in which the device does what it may do in any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/model/device_pipeline.h"

namespace spiritlevel::cuda {
namespace {

using testing::IsEmpty;

constexpr float kScale = 0.0625f;
constexpr int kMicroBatches = 3;

struct StepBits {
  std::vector<double> losses;
  std::map<std::string, std::string> gradients;

  friend bool operator==(const StepBits&, const StepBits&) = default;
};

class DeviceBits : public testing::TestWithParam<TinyModel> {
 protected:
  const cpu::ModelShape shape_ = GetParam().shape;
  std::vector<ReferenceBatch> batches_;

  void SetUp() override {
    for (int i = 0; i < kMicroBatches; ++i) batches_.push_back(RandomBatch(shape_, i));
  }

  // One micro-batch after the other, B and W apart or as one.
  StepBits Step(const cpu::ModelShape& shape, int stages, bool fused, uint64_t seed = 1) {
    FakeLayer layer({.seed = seed});
    DevicePipeline model(&layer, shape, stages);
    StepBits bits;
    for (const ReferenceBatch& batch : batches_) {
      DevicePipeline::InFlight flight = model.Forward(batch, kScale);
      bits.losses.push_back(model.LossSum(flight));
      if (fused) {
        model.FusedBackward(std::move(flight));
      } else {
        model.WeightGrads(model.InputGrads(std::move(flight)));
      }
    }
    bits.gradients = model.GradientBits();
    EXPECT_THAT(layer.misuses(), IsEmpty()) << "seed " << seed;
    return bits;
  }
};

TEST_P(DeviceBits, DoNotDependOnTheNumberOfStages) {
  const StepBits one = Step(shape_, 1, false);
  EXPECT_EQ(Step(shape_, 2, false), one);
  if (shape_.layers >= 4) {
    EXPECT_EQ(Step(shape_, 4, false), one);
  }
}

TEST_P(DeviceBits, OfBwAreThoseOfBThenW) {
  const StepBits split = Step(shape_, 2, false, 1);
  for (uint64_t seed = 2; seed <= 4; ++seed) EXPECT_EQ(Step(shape_, 2, true, seed), split);
}

TEST_P(DeviceBits, DoNotDependOnWhetherFIsRunAgain) {
  cpu::ModelShape other = shape_;
  other.recompute = !shape_.recompute;
  EXPECT_EQ(Step(other, 2, false), Step(shape_, 2, false));
}

// Any legal order: F of a micro-batch up the stages, B down, W any time later, but the W of each
// stage in the order of micro-batches. Also Recompute() as a pass of its own, now and then.
class RandomOrder {
 public:
  RandomOrder(DevicePipeline* model, const std::vector<ReferenceBatch>& batches, uint32_t seed)
      : model_(*model), batches_(batches), random_(seed), in_flight_(batches.size()) {
    for (InFlight& batch : in_flight_) {
      batch.activations.resize(static_cast<size_t>(model->size()));
      batch.states.resize(static_cast<size_t>(model->size()));
    }
    next_w_.resize(static_cast<size_t>(model->size()), 0);
  }

  // Nothing waits for the device before the last pass is posted.
  std::vector<double> Run() {
    for (auto ready = Ready(); !ready.empty(); ready = Ready()) {
      const Choice choice = ready[random_() % ready.size()];
      InFlight& batch = in_flight_[choice.batch];
      if (choice.pass == 'F') {
        Forward(choice.batch, &batch);
      } else if (choice.pass == 'B') {
        InputGrad(&batch);
      } else {
        const auto at = static_cast<size_t>(choice.stage);
        model_.stage(choice.stage).WeightGrad(std::move(batch.states[at]));
        ++next_w_[at];
      }
    }
    std::vector<double> losses;
    for (const InFlight& batch : in_flight_) {
      losses.push_back(model_.stage(model_.size() - 1).LossSum(batch.losses));
    }
    return losses;
  }

 private:
  struct InFlight {
    int forwards = 0;
    int backwards = 0;
    DeviceTensor message;
    DeviceTensor losses;
    std::vector<DeviceActivation> activations;
    std::vector<DeviceWeightState> states;
  };
  struct Choice {
    char pass;
    size_t batch;
    int stage;
  };

  std::vector<Choice> Ready() const {
    std::vector<Choice> ready;
    for (size_t i = 0; i < in_flight_.size(); ++i) {
      const InFlight& batch = in_flight_[i];
      if (batch.forwards < model_.size()) {
        ready.push_back({'F', i, batch.forwards});
      } else if (batch.backwards < model_.size()) {
        ready.push_back({'B', i, model_.size() - 1 - batch.backwards});
      }
    }
    for (int s = 0; s < model_.size(); ++s) {
      const size_t i = next_w_[static_cast<size_t>(s)];
      if (i < in_flight_.size() && in_flight_[i].backwards > model_.size() - 1 - s) {
        ready.push_back({'W', i, s});
      }
    }
    return ready;
  }

  void Forward(size_t i, InFlight* batch) {
    const int s = batch->forwards++;
    DeviceStage::Forwarded done =
        model_.stage(s).Forward(ViewOf(batches_[i], kScale), std::move(batch->message));
    batch->message = s + 1 < model_.size() ? model_.Hop(std::move(done.output), s, s + 1)
                                           : std::move(done.output);
    batch->losses = std::move(done.losses);
    batch->activations[static_cast<size_t>(s)] = std::move(done.activation);
  }

  void InputGrad(InFlight* batch) {
    const int s = model_.size() - 1 - batch->backwards++;
    DeviceActivation& activation = batch->activations[static_cast<size_t>(s)];
    if (!activation.is_whole() && random_() % 2 == 0) model_.stage(s).Recompute(&activation);
    DeviceStage::Backwarded done = model_.stage(s).InputGrad(
        std::move(activation), std::move(batch->message), &model_.sums(s));
    batch->message = s > 0 ? model_.Hop(std::move(done.dx), s, s - 1) : std::move(done.dx);
    batch->states[static_cast<size_t>(s)] = std::move(done.weight_state);
  }

  DevicePipeline& model_;
  const std::vector<ReferenceBatch>& batches_;
  std::mt19937 random_;
  std::vector<InFlight> in_flight_;
  std::vector<size_t> next_w_;
};

TEST_P(DeviceBits, DoNotDependOnTheOrderOfPassesWhileEachStagesWComeInOneOrder) {
  const StepBits expected = Step(shape_, 2, false);
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeLayer layer({.seed = seed});
    DevicePipeline model(&layer, shape_, 2);
    {
      RandomOrder order(&model, batches_, seed);
      EXPECT_EQ(order.Run(), expected.losses);
    }
    EXPECT_EQ(model.GradientBits(), expected.gradients);
    EXPECT_EQ(model.pool().live(TensorUse::kWaitingForB), 0);
    EXPECT_EQ(model.pool().live(TensorUse::kWaitingForW), 0);
    EXPECT_EQ(model.pool().live(TensorUse::kCommunication), 0);
    EXPECT_THAT(layer.misuses(), IsEmpty());
  }
}

TEST_P(DeviceBits, OfWBlockByBlockInAnyOrderAreThoseOfW) {
  FakeLayer layer({.seed = 3});
  DevicePipeline whole(&layer, shape_, 1);
  DevicePipeline parts(&layer, shape_, 1);
  whole.WeightGrads(whole.InputGrads(whole.Forward(batches_[0], kScale)));
  std::vector<DeviceWeightState> states = parts.InputGrads(parts.Forward(batches_[0], kScale));
  std::vector<int> blocks;
  for (int i = 0; i < parts.stage(0).range().num_blocks(); ++i) blocks.push_back(i);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
  for (const int block : blocks) parts.stage(0).WeightGradOfBlock(&states[0], block);
  EXPECT_EQ(states[0].bytes(), 0);
  EXPECT_EQ(parts.GradientBits(), whole.GradientBits());
}

TEST_P(DeviceBits, OfBwInPartsAreThoseOfBw) {
  FakeLayer layer({.seed = 4});
  DevicePipeline whole(&layer, shape_, 1);
  DevicePipeline parts(&layer, shape_, 1);
  whole.FusedBackward(whole.Forward(batches_[0], kScale));
  DevicePipeline::InFlight flight = parts.Forward(batches_[0], kScale);
  DeviceStage::BackwardInParts backward = parts.stage(0).BeginFusedBackward(
      std::move(flight.activations[0]), DeviceTensor(), &parts.sums(0));
  EXPECT_EQ(backward.blocks_left, parts.stage(0).range().num_blocks());
  while (backward.blocks_left > 0) parts.stage(0).FusedBackwardOfNextBlock(&backward);
  EXPECT_EQ(parts.GradientBits(), whole.GradientBits());
}

// A second accumulator (DualPipe) gets what it is the target of, and no other does.
TEST_P(DeviceBits, OfTwoAccumulatorsSumToThoseOfTwoSteps) {
  FakeLayer layer({.seed = 5});
  DevicePipeline model(&layer, shape_, 1);
  const DeviceContext& context = model.stage(0).context();
  DeviceGradients second(model.stage(0).parameters());
  for (int i = 0; i < 2; ++i) {
    DevicePipeline::InFlight flight = model.Forward(batches_[static_cast<size_t>(i)], kScale);
    DeviceStage::Backwarded done = model.stage(0).InputGrad(
        std::move(flight.activations[0]), DeviceTensor(), i == 0 ? &model.sums(0) : &second);
    EXPECT_EQ(done.weight_state.target(), i == 0 ? &model.sums(0) : &second);
    model.stage(0).WeightGrad(std::move(done.weight_state));
  }
  DevicePipeline alone(&layer, shape_, 1);
  alone.FusedBackward(alone.Forward(batches_[1], kScale));
  const std::map<std::string, std::string> bits = alone.GradientBits();
  for (int i = 0; i < second.size(); ++i) {
    EXPECT_EQ(BitsOfTensor(context, second.sum(i)),
              bits.at(model.stage(0).parameters().info(i).name));
  }
  model.sums(0).Add(second);
  DevicePipeline one(&layer, shape_, 1);
  one.FusedBackward(one.Forward(batches_[0], kScale));
  one.FusedBackward(one.Forward(batches_[1], kScale));
  const NamedValues sums = one.Gradients();
  for (const auto& [name, values] : model.Gradients()) {
    EXPECT_LT(RelativeError(values, sums.at(name)), 1e-6) << name;
  }
  model.sums(0).Zero();
  for (const auto& [name, values] : model.Gradients()) EXPECT_EQ(Dot(values, values), 0) << name;
  EXPECT_THAT(layer.misuses(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceBits, testing::ValuesIn(DeviceModelsOfEveryStorage()),
                         spiritlevel::NameOf);

TEST(DeviceState, NamesTheOpThatItBelongsTo) {
  const cpu::ModelShape shape = DeviceModels().front().shape;
  FakeLayer layer({});
  DevicePipeline model(&layer, shape, 2);
  model.stage(1).parameters().set_version(7);
  DevicePipeline::InFlight flight = model.Forward(RandomBatch(shape, 9), kScale);
  const StateIdentity expected{.iteration = 3,
                               .micro_batch = 9,
                               .stage = cpu::EvenStages(shape, 2)[1],
                               .parameter_version = 7};
  EXPECT_EQ(flight.activations[1].identity(), expected);
  const std::vector<DeviceWeightState> states = model.InputGrads(std::move(flight));
  EXPECT_EQ(states[1].identity(), expected);
  EXPECT_EQ(states[1].target(), &model.sums(1));
}

TEST(DeviceState, OfAnotherVersionOrStageIsOurFault) {
  const cpu::ModelShape shape = DeviceModels().front().shape;
  FakeLayer layer({});
  DevicePipeline model(&layer, shape, 2);
  DevicePipeline::InFlight flight = model.Forward(RandomBatch(shape, 0), kScale);
  EXPECT_THROW(
      model.stage(0).InputGrad(std::move(flight.activations[1]), DeviceTensor(), &model.sums(0)),
      InvariantError);
  model.stage(0).parameters().set_version(1);
  DeviceTensor dy(model.stage(0).context(), TensorUse::kCommunication, ElementType::kFloat32,
                  shape.tokens(), shape.hidden);
  EXPECT_THROW(
      model.stage(0).InputGrad(std::move(flight.activations[0]), std::move(dy), &model.sums(0)),
      InvariantError);
}

TEST(DeviceState, OfATokenThatIsNoneIsOurFault) {
  const cpu::ModelShape shape = DeviceModels().front().shape;
  FakeLayer layer({});
  DevicePipeline model(&layer, shape, 1);
  for (const int32_t token : {-1, static_cast<int32_t>(shape.vocabulary)}) {
    ReferenceBatch batch = RandomBatch(shape, 0);
    batch.tokens[3] = token;
    EXPECT_THROW(model.Forward(batch, kScale), InvariantError);
  }
  ReferenceBatch batch = RandomBatch(shape, 0);
  batch.targets[3] = -1;  // does not count
  EXPECT_NO_THROW(model.Forward(batch, kScale));
  batch.targets[3] = -2;
  EXPECT_THROW(model.Forward(batch, kScale), InvariantError);
}

TEST(DeviceModelShape, WithAMixtureOfExpertsIsRefusedByName) {
  cpu::ModelShape shape = DeviceModels().front().shape;
  shape.mlp = cpu::MlpKind::kMixtureOfExperts;
  shape.experts = 4;
  shape.top_k = 2;
  FakeLayer layer({});
  BufferPool pool(&layer, 0, {});
  TestRank rank(&layer, &pool);
  try {
    DeviceStage stage(shape, cpu::EvenStages(shape, 1)[0], rank.context());
    FAIL() << "it was taken";
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("mixture of experts"));
  }
}

}  // namespace
}  // namespace spiritlevel::cuda
