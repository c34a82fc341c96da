// What a stage will hold, by formula, against what its meter counts.
#include <gtest/gtest.h>

#include <ostream>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/model/stage_optimizer.h"
#include "kernels/cpu/model/stage_sizes.h"
#include "tests/kernels/model/tiny_models.h"

namespace spiritlevel {
namespace cpu {

void PrintTo(const PassBytes& pass, std::ostream* out) {
  *out << "before " << pass.before << ", after " << pass.after << ", peak " << pass.peak;
}

}  // namespace cpu
namespace {

using cpu::PassBytes;
using cpu::StageRange;
using cpu::StageSizes;
using cpu::TensorUse;

class StageBytes : public testing::TestWithParam<TinyModel> {
 protected:
  const cpu::ModelShape shape_ = GetParam().shape;

  std::vector<StageRange> Ranges() const {
    return {{.first_layer = 0, .layers = 2, .embedding = true},
            {.first_layer = 1, .layers = 2},
            {.first_layer = 2, .layers = 2, .head = true},
            {.first_layer = 0, .layers = 4, .embedding = true, .head = true},
            {.first_layer = 0, .layers = 0, .embedding = true},
            {.first_layer = 4, .layers = 0, .head = true},
            {.first_layer = 0, .layers = 1}};
  }
};

// One stage alone, fed with made-up messages, and its meter.
class Alone {
 public:
  Alone(const cpu::ModelShape& shape, const StageRange& range)
      : shape_(shape), range_(range), batch_(RandomBatch(shape, 0)), stage_(shape, range, &meter_) {
    cpu::UseOneBlasThread();
    sums_.emplace_back(stage_.parameters());
    fixed_ = meter_.live();
  }

  cpu::Tensor Message(bool there) {
    if (!there) return cpu::Tensor();
    cpu::Tensor message(&meter_, TensorUse::kCommunication, shape_.storage, shape_.tokens(),
                        shape_.hidden);
    std::fill_n(static_cast<char*>(message.data()), message.bytes(), char{0x3C});
    return message;
  }
  cpu::Tensor Input() { return Message(!range_.embedding); }
  cpu::Tensor Gradient() { return Message(!range_.head); }

  cpu::Stage::Forwarded Forward(cpu::Tensor input) {
    return stage_.Forward(ViewOf(batch_, 1), std::move(input));
  }

  // What `pass` does to the live bytes, the stage's own aside.
  template <class Pass>
  PassBytes Measure(Pass&& pass) {
    meter_.ResetPeaks();
    PassBytes bytes{.before = meter_.live() - fixed_};
    pass();
    bytes.after = meter_.live() - fixed_;
    bytes.peak = meter_.peak() - fixed_;
    return bytes;
  }

  cpu::Stage& stage() { return stage_; }
  cpu::GradientStore* sums() { return &sums_.front(); }
  cpu::MemoryMeter& meter() { return meter_; }

 private:
  cpu::ModelShape shape_;
  StageRange range_;
  ReferenceBatch batch_;
  cpu::MemoryMeter meter_;
  cpu::Stage stage_;
  std::vector<cpu::GradientStore> sums_;
  Bytes fixed_ = 0;
};

TEST_P(StageBytes, OfParametersGradientsAndOptimizerAreThoseOfTheFormula) {
  for (const StageRange& range : Ranges()) {
    const StageSizes sizes = cpu::SizesOf(shape_, range);
    cpu::MemoryMeter meter;
    cpu::Stage stage(shape_, range, &meter);
    const cpu::GradientStore sums(stage.parameters());
    cpu::StageOptimizer optimizer(&stage.parameters());
    EXPECT_EQ(meter.live(TensorUse::kParameters), sizes.parameters);
    EXPECT_EQ(meter.live(TensorUse::kGradients), sizes.gradients);
    EXPECT_EQ(meter.live(TensorUse::kOptimizer), sizes.optimizer);
    EXPECT_EQ(meter.live(TensorUse::kWorkspace), sizes.constants);
    const cpu::StageOptimizer::Snapshot snapshot = optimizer.TakeSnapshot();
    EXPECT_EQ(meter.live(TensorUse::kOptimizer), sizes.optimizer + sizes.snapshot);
  }
}

TEST_P(StageBytes, OfFBAndWAreThoseOfTheFormula) {
  for (const StageRange& range : Ranges()) {
    SCOPED_TRACE(testing::Message() << "layers " << range.first_layer << " + " << range.layers);
    const StageSizes sizes = cpu::SizesOf(shape_, range);
    Alone alone(shape_, range);
    cpu::Tensor input = alone.Input();
    cpu::Stage::Forwarded f;
    EXPECT_EQ(alone.Measure([&] { f = alone.Forward(std::move(input)); }), sizes.forward);
    EXPECT_EQ(f.output.bytes(), sizes.output);
    EXPECT_EQ(f.activation.bytes(), sizes.kept);
    EXPECT_EQ(alone.meter().live(TensorUse::kWaitingForB), sizes.kept);
    EXPECT_EQ(alone.meter().live(TensorUse::kCommunication), sizes.output);
    f.output.Reset();
    if (shape_.recompute) {
      EXPECT_EQ(alone.Measure([&] { alone.stage().Recompute(&f.activation); }), sizes.recompute);
    }
    EXPECT_EQ(f.activation.bytes(), sizes.activation);
    EXPECT_EQ(alone.meter().live(TensorUse::kWaitingForB), sizes.activation);
    cpu::Tensor dy = alone.Gradient();
    cpu::Stage::Backwarded b;
    EXPECT_EQ(alone.Measure([&] {
      b = alone.stage().InputGrad(std::move(f.activation), std::move(dy), alone.sums());
    }),
              sizes.input_grad);
    EXPECT_EQ(b.dx.bytes(), sizes.input);
    EXPECT_EQ(b.weight_state.bytes(), sizes.weight_state);
    EXPECT_EQ(alone.meter().live(TensorUse::kWaitingForB), 0);
    EXPECT_EQ(alone.meter().live(TensorUse::kWaitingForW), sizes.weight_state);
    EXPECT_EQ(alone.meter().live(TensorUse::kCommunication), sizes.input);
    EXPECT_EQ(alone.meter().live(TensorUse::kWorkspace), sizes.constants);
    b.dx.Reset();
    EXPECT_EQ(alone.Measure([&] { alone.stage().WeightGrad(std::move(b.weight_state)); }),
              sizes.weight_grad);
  }
}

TEST_P(StageBytes, OfBwAreThoseOfTheFormula) {
  for (const StageRange& range : Ranges()) {
    SCOPED_TRACE(testing::Message() << "layers " << range.first_layer << " + " << range.layers);
    const StageSizes sizes = cpu::SizesOf(shape_, range);
    Alone alone(shape_, range);
    cpu::Stage::Forwarded f = alone.Forward(alone.Input());
    f.output.Reset();
    cpu::Tensor dy = alone.Gradient();
    cpu::Tensor dx;
    EXPECT_EQ(alone.Measure([&] {
      dx = alone.stage().FusedBackward(std::move(f.activation), std::move(dy), alone.sums());
    }),
              sizes.fused_backward_from_kept);
    if (!shape_.recompute) {
      EXPECT_EQ(sizes.fused_backward, sizes.fused_backward_from_kept);
      continue;
    }
    dx.Reset();
    f = alone.Forward(alone.Input());
    f.output.Reset();
    alone.stage().Recompute(&f.activation);
    dy = alone.Gradient();
    EXPECT_EQ(alone.Measure([&] {
      dx = alone.stage().FusedBackward(std::move(f.activation), std::move(dy), alone.sums());
    }),
              sizes.fused_backward);
  }
}

TEST_P(StageBytes, OfBThatRunsFAgainAreThoseOfTheFormula) {
  for (const StageRange& range : Ranges()) {
    const StageSizes sizes = cpu::SizesOf(shape_, range);
    EXPECT_EQ(sizes.input_grad_from_kept == sizes.input_grad, !shape_.recompute);
    Alone alone(shape_, range);
    cpu::Stage::Forwarded f = alone.Forward(alone.Input());
    f.output.Reset();
    cpu::Tensor dy = alone.Gradient();
    cpu::Stage::Backwarded b;
    EXPECT_EQ(alone.Measure([&] {
      b = alone.stage().InputGrad(std::move(f.activation), std::move(dy), alone.sums());
    }),
              sizes.input_grad_from_kept);
  }
}

TEST_P(StageBytes, OfWBlockByBlockAreThoseOfTheFormula) {
  const StageRange range = Ranges()[3];
  Alone alone(shape_, range);
  cpu::Stage::Forwarded f = alone.Forward(cpu::Tensor());
  cpu::Stage::Backwarded b =
      alone.stage().InputGrad(std::move(f.activation), cpu::Tensor(), alone.sums());
  Bytes left = b.weight_state.bytes();
  for (int block = 0; block < range.num_blocks(); ++block) {
    alone.stage().WeightGradOfBlock(&b.weight_state, block);
    left -= cpu::WeightStateOfBlock(shape_, range, block);
    EXPECT_EQ(b.weight_state.bytes(), left);
    EXPECT_EQ(alone.meter().live(TensorUse::kWaitingForW), left);
  }
  EXPECT_EQ(left, 0);
}

// An aborted iteration drops what it has.
TEST_P(StageBytes, OfDroppedStatesAreFree) {
  TinyPipeline model(shape_, 2);
  const Bytes fixed = model.meter().live();
  {
    TinyPipeline::InFlight flight = model.Forward(RandomBatch(shape_, 0), 1);
    const std::vector<cpu::WeightState> states =
        model.InputGrads(model.Forward(RandomBatch(shape_, 1), 1));
    EXPECT_GT(model.meter().live(), fixed);
  }
  EXPECT_EQ(model.meter().live(), fixed);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StageBytes, testing::ValuesIn(TinyModelsOfEveryStorage()), NameOf);

}  // namespace
}  // namespace spiritlevel
