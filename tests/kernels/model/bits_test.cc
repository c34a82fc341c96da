// Whatever may differ between two runs of one training step, and must not change a bit of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/blas.h"
#include "tests/kernels/model/tiny_models.h"

namespace spiritlevel {
namespace {

constexpr float kScale = 0.0625f;
constexpr int kMicroBatches = 3;

struct StepBits {
  std::vector<double> losses;
  std::vector<std::string> token_losses;
  std::map<std::string, std::string> gradients;

  friend bool operator==(const StepBits&, const StepBits&) = default;
};

class ModelBits : public testing::TestWithParam<TinyModel> {
 protected:
  const cpu::ModelShape shape_ = GetParam().shape;
  std::vector<ReferenceBatch> batches_;

  void SetUp() override {
    for (int i = 0; i < kMicroBatches; ++i) batches_.push_back(RandomBatch(shape_, i));
  }

  // One micro-batch after the other, B and W apart or as one.
  StepBits Step(const cpu::ModelShape& shape, int stages, bool fused) {
    TinyPipeline model(shape, stages);
    StepBits bits;
    for (const ReferenceBatch& batch : batches_) {
      TinyPipeline::InFlight flight = model.Forward(batch, kScale);
      bits.losses.push_back(flight.loss_sum);
      bits.token_losses.push_back(flight.token_losses);
      if (fused) {
        model.FusedBackward(std::move(flight));
        continue;
      }
      std::vector<cpu::WeightState> states = model.InputGrads(std::move(flight));
      for (int i = 0; i < stages; ++i) {
        model.stage(i).WeightGrad(std::move(states[static_cast<size_t>(i)]));
      }
    }
    bits.gradients = model.GradientBits();
    return bits;
  }
};

TEST_P(ModelBits, DoNotDependOnTheNumberOfStages) {
  const StepBits one = Step(shape_, 1, false);
  EXPECT_EQ(Step(shape_, 2, false), one);
  EXPECT_EQ(Step(shape_, 3, false), one);
  EXPECT_EQ(Step(shape_, 4, false), one);
}

TEST_P(ModelBits, OfBwAreThoseOfBThenW) {
  EXPECT_EQ(Step(shape_, 2, true), Step(shape_, 2, false));
}

TEST_P(ModelBits, DoNotDependOnWhetherFIsRunAgain) {
  cpu::ModelShape kept = shape_;
  cpu::ModelShape again = shape_;
  kept.recompute = false;
  again.recompute = true;
  StepBits bits = Step(again, 2, false);
  StepBits expected = Step(kept, 2, false);
  expected.token_losses = bits.token_losses;  // not there before B where F is run again
  EXPECT_EQ(bits, expected);
}

// Any legal order: F of a micro-batch up the stages, B down, W any time later, but the W of each
// stage in the order of micro-batches. Also Recompute() as a pass of its own, now and then.
class RandomOrder {
 public:
  RandomOrder(TinyPipeline* model, const std::vector<ReferenceBatch>& batches, uint32_t seed)
      : model_(*model), batches_(batches), random_(seed), in_flight_(batches.size()) {
    for (InFlight& batch : in_flight_) {
      batch.activations.resize(static_cast<size_t>(model->size()));
      batch.states.resize(static_cast<size_t>(model->size()));
    }
    next_w_.resize(static_cast<size_t>(model->size()), 0);
  }

  std::vector<double> Run() {
    std::vector<double> losses(in_flight_.size());
    for (auto ready = Ready(); !ready.empty(); ready = Ready()) {
      const Choice choice = ready[random_() % ready.size()];
      if (choice.pass == 'F') {
        losses[choice.batch] = Forward(choice.batch, &in_flight_[choice.batch]);
      } else if (choice.pass == 'B') {
        InputGrad(&in_flight_[choice.batch]);
      } else {
        model_.stage(choice.stage)
            .WeightGrad(
                std::move(in_flight_[choice.batch].states[static_cast<size_t>(choice.stage)]));
        ++next_w_[static_cast<size_t>(choice.stage)];
      }
    }
    return losses;
  }

 private:
  struct InFlight {
    int forwards = 0;
    int backwards = 0;
    cpu::Tensor message;
    std::vector<cpu::Activation> activations;
    std::vector<cpu::WeightState> states;
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

  double Forward(size_t i, InFlight* batch) {
    const int s = batch->forwards++;
    cpu::Stage::Forwarded done =
        model_.stage(s).Forward(ViewOf(batches_[i], kScale), std::move(batch->message));
    batch->message = std::move(done.output);
    batch->activations[static_cast<size_t>(s)] = std::move(done.activation);
    return done.loss_sum;
  }

  void InputGrad(InFlight* batch) {
    const int s = model_.size() - 1 - batch->backwards++;
    cpu::Activation& activation = batch->activations[static_cast<size_t>(s)];
    if (!activation.is_whole() && random_() % 2 == 0) model_.stage(s).Recompute(&activation);
    cpu::Stage::Backwarded done = model_.stage(s).InputGrad(
        std::move(activation), std::move(batch->message), &model_.sums(s));
    batch->message = std::move(done.dx);
    batch->states[static_cast<size_t>(s)] = std::move(done.weight_state);
  }

  TinyPipeline& model_;
  const std::vector<ReferenceBatch>& batches_;
  std::mt19937 random_;
  std::vector<InFlight> in_flight_;
  std::vector<size_t> next_w_;
};

TEST_P(ModelBits, DoNotDependOnTheOrderOfPassesWhileEachStagesWComeInOneOrder) {
  const StepBits expected = Step(shape_, 2, false);
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    TinyPipeline model(shape_, 2);
    EXPECT_EQ(RandomOrder(&model, batches_, seed).Run(), expected.losses) << "seed " << seed;
    EXPECT_EQ(model.GradientBits(), expected.gradients) << "seed " << seed;
    EXPECT_EQ(model.meter().live(cpu::TensorUse::kWaitingForB), 0);
    EXPECT_EQ(model.meter().live(cpu::TensorUse::kWaitingForW), 0);
    EXPECT_EQ(model.meter().live(cpu::TensorUse::kCommunication), 0);
  }
}

TEST_P(ModelBits, OfWBlockByBlockInAnyOrderAreThoseOfW) {
  TinyPipeline whole(shape_, 1);
  TinyPipeline parts(shape_, 1);
  std::vector<cpu::WeightState> of_whole = whole.InputGrads(whole.Forward(batches_[0], kScale));
  std::vector<cpu::WeightState> of_parts = parts.InputGrads(parts.Forward(batches_[0], kScale));
  whole.stage(0).WeightGrad(std::move(of_whole[0]));
  for (const int block : {3, 0, 5, 1, 4, 2}) {
    parts.stage(0).WeightGradOfBlock(&of_parts[0], block);
  }
  EXPECT_EQ(of_parts[0].bytes(), 0);
  EXPECT_EQ(parts.GradientBits(), whole.GradientBits());
}

TEST_P(ModelBits, OfBwInPartsAreThoseOfBw) {
  TinyPipeline whole(shape_, 1);
  TinyPipeline parts(shape_, 1);
  whole.FusedBackward(whole.Forward(batches_[0], kScale));
  TinyPipeline::InFlight flight = parts.Forward(batches_[0], kScale);
  cpu::Stage::BackwardInParts backward = parts.stage(0).BeginFusedBackward(
      std::move(flight.activations[0]), cpu::Tensor(), &parts.sums(0));
  EXPECT_EQ(backward.blocks_left, 6);
  while (backward.blocks_left > 0) parts.stage(0).FusedBackwardOfNextBlock(&backward);
  EXPECT_EQ(parts.GradientBits(), whole.GradientBits());
}

// A second accumulator (DualPipe) gets what it is the target of, and no other does.
TEST_P(ModelBits, OfTwoAccumulatorsSumToThoseOfTwoSteps) {
  TinyPipeline model(shape_, 1);
  cpu::GradientStore second(model.stage(0).parameters());
  for (int i = 0; i < 2; ++i) {
    TinyPipeline::InFlight flight = model.Forward(batches_[static_cast<size_t>(i)], kScale);
    cpu::Stage::Backwarded done = model.stage(0).InputGrad(
        std::move(flight.activations[0]), cpu::Tensor(), i == 0 ? &model.sums(0) : &second);
    EXPECT_EQ(done.weight_state.target(), i == 0 ? &model.sums(0) : &second);
    model.stage(0).WeightGrad(std::move(done.weight_state));
  }
  TinyPipeline alone(shape_, 1);
  alone.FusedBackward(alone.Forward(batches_[1], kScale));
  for (int i = 0; i < second.size(); ++i) {
    EXPECT_EQ(BitsOf(second.sum(i)), BitsOf(alone.sums(0).sum(i)));
  }
  model.sums(0).Add(second);
  TinyPipeline one(shape_, 1);
  one.FusedBackward(one.Forward(batches_[0], kScale));
  one.FusedBackward(one.Forward(batches_[1], kScale));
  const NamedValues sums = one.Gradients();
  for (const auto& [name, values] : model.Gradients()) {
    EXPECT_LT(RelativeError(values, sums.at(name)), 1e-6) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ModelBits, testing::ValuesIn(TinyModelsOfEveryStorage()), NameOf);

TEST(StateIdentity, NamesTheOpThatAStateBelongsTo) {
  const cpu::ModelShape shape = TinyModels().front().shape;
  TinyPipeline model(shape, 2);
  model.stage(1).parameters().set_version(7);
  TinyPipeline::InFlight flight = model.Forward(RandomBatch(shape, 9), kScale);
  const cpu::StateIdentity expected{.iteration = 3,
                                    .micro_batch = 9,
                                    .stage = cpu::EvenStages(shape, 2)[1],
                                    .parameter_version = 7};
  EXPECT_EQ(flight.activations[1].identity(), expected);
  const std::vector<cpu::WeightState> states = model.InputGrads(std::move(flight));
  EXPECT_EQ(states[1].identity(), expected);
  EXPECT_EQ(states[1].target(), &model.sums(1));
}

TEST(StateIdentity, OfAnotherVersionOrStageIsOurFault) {
  const cpu::ModelShape shape = TinyModels().front().shape;
  TinyPipeline model(shape, 2);
  TinyPipeline::InFlight flight = model.Forward(RandomBatch(shape, 0), kScale);
  EXPECT_THROW(
      model.stage(0).InputGrad(std::move(flight.activations[1]), cpu::Tensor(), &model.sums(0)),
      InvariantError);
  model.stage(0).parameters().set_version(1);
  cpu::Tensor dy(&model.meter(), cpu::TensorUse::kCommunication, cpu::DType::kFloat32,
                 shape.tokens(), shape.hidden);
  EXPECT_THROW(
      model.stage(0).InputGrad(std::move(flight.activations[0]), std::move(dy), &model.sums(0)),
      InvariantError);
}

TEST(Parameters, BeginWithTheSameBitsWhateverTheCut) {
  for (const TinyModel& model : TinyModelsOfEveryStorage()) {
    SCOPED_TRACE(model.name);
    cpu::MemoryMeter meter;
    const cpu::ParameterStore whole(model.shape, cpu::EvenStages(model.shape, 1)[0], &meter);
    int next = 0;
    for (const cpu::StageRange& range : cpu::EvenStages(model.shape, 4)) {
      const cpu::ParameterStore part(model.shape, range, &meter);
      for (int i = 0; i < part.size(); ++i, ++next) {
        EXPECT_EQ(part.info(i).name, whole.info(next).name);
        EXPECT_EQ(BitsOf(part.value(i)), BitsOf(whole.value(next))) << part.info(i).name;
      }
    }
    EXPECT_EQ(next, whole.size());
    const bool alike = BitsOf(whole.value(whole.Find("embedding.weight"))) ==
                       BitsOf(whole.value(whole.Find("head.weight")));
    EXPECT_EQ(alike, model.shape.tied_embeddings);
  }
}

// Ranks are threads of one process and share OpenBLAS.
TEST(Ranks, SideBySideComputeTheBitsThatTheyComputeAlone) {
  cpu::ModelShape shape = TinyModels()[2].shape;
  shape.hidden = 96;
  shape.intermediate = 160;
  shape.head_dim = 16;
  shape.sequence = 80;
  const auto step = [&shape](int64_t index) {
    TinyPipeline model(shape, 1);
    const ReferenceBatch batch = RandomBatch(shape, index);
    for (int i = 0; i < 3; ++i) model.FusedBackward(model.Forward(batch, kScale));
    return model.GradientBits();
  };
  const std::vector<std::map<std::string, std::string>> alone = {step(0), step(1)};
  std::vector<std::map<std::string, std::string>> together(2);
  std::thread first([&] { together[0] = step(0); });
  std::thread second([&] { together[1] = step(1); });
  first.join();
  second.join();
  EXPECT_EQ(together, alone);
}

// What all of the above rests on: the same product of the same numbers has the same bits wherever
// they lie. Tensors begin at multiples of 64 bytes; their parts do not.
TEST(MatrixProducts, HaveTheSameBitsWhereverTheirOperandsLie) {
  cpu::UseOneBlasThread();
  struct Sizes {
    int64_t m, n, k;
  };
  for (const Sizes& s : {Sizes{3, 5, 7}, {64, 64, 32}, {100, 30, 65}, {257, 129, 300}}) {
    for (const cpu::Transpose ta : {cpu::Transpose::kNo, cpu::Transpose::kYes}) {
      std::mt19937 random(5);
      std::uniform_real_distribution<float> between(-1, 1);
      std::vector<float> numbers(static_cast<size_t>(s.m * s.k + s.k * s.n));
      for (float& number : numbers) number = between(random);
      std::vector<std::vector<float>> results;
      for (const int64_t offset : {0, 16, 1, 3, 8}) {
        std::vector<float> room(numbers.size() + static_cast<size_t>(s.m * s.n + 4 * offset + 64));
        float* const a = room.data() + offset;
        float* const b = a + s.m * s.k + offset;
        float* const c = b + s.k * s.n + offset;
        std::copy_n(numbers.data(), s.m * s.k, a);
        std::copy_n(numbers.data() + s.m * s.k, s.k * s.n, b);
        std::fill_n(c, s.m * s.n, 0.5f);
        const bool flip = ta == cpu::Transpose::kYes;
        cpu::Gemm(1, cpu::ConstMatrix(a, flip ? s.k : s.m, flip ? s.m : s.k), ta,
                  cpu::ConstMatrix(b, s.k, s.n), cpu::Transpose::kNo, 1, cpu::Matrix(c, s.m, s.n));
        results.emplace_back(c, c + s.m * s.n);
      }
      for (const std::vector<float>& result : results) EXPECT_EQ(result, results.front());
    }
  }
}

}  // namespace
}  // namespace spiritlevel
