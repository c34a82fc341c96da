// What a stage will hold on a device, by formula, against what its pool counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <utility>

#include "kernels/cuda/model/device_stage_optimizer.h"
#include "kernels/cuda/model/device_stage_sizes.h"
#include "tests/kernels/cuda/model/device_pipeline.h"

namespace spiritlevel {
namespace cpu {

void PrintTo(const PassBytes& pass, std::ostream* out) {
  *out << "before " << pass.before << ", after " << pass.after << ", peak " << pass.peak;
}

}  // namespace cpu
namespace cuda {
namespace {

using cpu::PassBytes;
using cpu::StageRange;
using testing::IsEmpty;

class DeviceBytes : public testing::TestWithParam<TinyModel> {
 protected:
  const cpu::ModelShape shape_ = GetParam().shape;

  std::vector<StageRange> Ranges() const {
    return {{.first_layer = 0, .layers = 1, .embedding = true},
            {.first_layer = 0, .layers = shape_.layers},
            {.first_layer = shape_.layers - 2, .layers = 2, .head = true},
            {.first_layer = 0, .layers = shape_.layers, .embedding = true, .head = true},
            {.first_layer = 0, .layers = 0, .embedding = true},
            {.first_layer = shape_.layers, .layers = 0, .head = true}};
  }
};

// One stage alone, fed with made-up messages.
class Fed {
 public:
  Fed(const cpu::ModelShape& shape, const StageRange& range)
      : layer_({.seed = 17}),
        range_(range),
        batch_(RandomBatch(shape, 0)),
        alone_(&layer_, shape, range),
        sums_(alone_.stage.parameters()),
        fixed_(alone_.pool.live()),
        fixed_workspace_(alone_.pool.live(TensorUse::kWorkspace)) {}
  ~Fed() { EXPECT_THAT(layer_.misuses(), IsEmpty()); }

  DeviceTensor Input() { return alone_.Message(!range_.embedding); }
  DeviceTensor Gradient() { return alone_.Message(!range_.head); }
  DeviceStage::Forwarded Forward(DeviceTensor input) {
    return stage().Forward(ViewOf(batch_, 1), std::move(input));
  }

  // What `pass` does to the live bytes, the stage's own aside.
  template <class Pass>
  PassBytes Measure(Pass&& pass) {
    pool().ResetPeaks();
    PassBytes bytes{.before = pool().live() - fixed_};
    pass();
    bytes.after = pool().live() - fixed_;
    bytes.peak = pool().peak() - fixed_;
    return bytes;
  }
  Bytes live_workspace() { return pool().live(TensorUse::kWorkspace) - fixed_workspace_; }

  DeviceStage& stage() { return alone_.stage; }
  DeviceGradients* sums() { return &sums_; }
  BufferPool& pool() { return alone_.pool; }

 private:
  FakeLayer layer_;
  StageRange range_;
  ReferenceBatch batch_;
  StageAlone alone_;
  DeviceGradients sums_;
  Bytes fixed_;
  Bytes fixed_workspace_;
};

TEST_P(DeviceBytes, OfParametersGradientsAndOptimizerAreThoseOfTheFormula) {
  for (const StageRange& range : Ranges()) {
    const DeviceStageSizes sizes = DeviceSizesOf(shape_, range);
    FakeLayer layer({});
    BufferPool pool(&layer, 0, {});
    TestRank rank(&layer, &pool);
    const Bytes before = pool.live(TensorUse::kWorkspace);
    DeviceStage stage(shape_, range, rank.context());
    const DeviceGradients sums(stage.parameters());
    DeviceStageOptimizer optimizer(&stage.parameters());
    EXPECT_EQ(pool.live(TensorUse::kParameters), sizes.stage.parameters);
    EXPECT_EQ(pool.live(TensorUse::kGradients), sizes.stage.gradients);
    EXPECT_EQ(pool.live(TensorUse::kOptimizer), sizes.stage.optimizer);
    EXPECT_EQ(pool.live(TensorUse::kWorkspace) - before, sizes.stage.constants);
    const DeviceStageOptimizer::Snapshot snapshot = optimizer.TakeSnapshot();
    EXPECT_EQ(pool.live(TensorUse::kOptimizer), sizes.stage.optimizer + sizes.stage.snapshot);
    pool.ResetPeaks();
    const Bytes live = pool.live();
    optimizer.SquaredNorms(sums);
    EXPECT_EQ(pool.peak() - live, sizes.squared_norms);
    EXPECT_EQ(pool.live(), live);
  }
}

TEST_P(DeviceBytes, OfFBAndWAreThoseOfTheFormula) {
  for (const StageRange& range : Ranges()) {
    SCOPED_TRACE(testing::Message() << "layers " << range.first_layer << " + " << range.layers);
    const DeviceStageSizes all = DeviceSizesOf(shape_, range);
    const cpu::StageSizes& sizes = all.stage;
    Fed fed(shape_, range);
    DeviceTensor input = fed.Input();
    DeviceStage::Forwarded f;
    EXPECT_EQ(fed.Measure([&] { f = fed.Forward(std::move(input)); }), sizes.forward);
    EXPECT_EQ(f.output.bytes(), sizes.output);
    EXPECT_EQ(f.losses.bytes(), all.losses);
    EXPECT_EQ(f.activation.bytes(), sizes.kept);
    EXPECT_EQ(fed.pool().live(TensorUse::kWaitingForB), sizes.kept);
    EXPECT_EQ(fed.pool().live(TensorUse::kCommunication), sizes.output + all.losses);
    f.output.Reset();
    f.losses.Reset();
    if (shape_.recompute) {
      EXPECT_EQ(fed.Measure([&] { fed.stage().Recompute(&f.activation); }), sizes.recompute);
    }
    EXPECT_EQ(f.activation.bytes(), sizes.activation);
    EXPECT_EQ(fed.pool().live(TensorUse::kWaitingForB), sizes.activation);
    DeviceTensor dy = fed.Gradient();
    DeviceStage::Backwarded b;
    EXPECT_EQ(fed.Measure([&] {
      b = fed.stage().InputGrad(std::move(f.activation), std::move(dy), fed.sums());
    }),
              sizes.input_grad);
    EXPECT_EQ(b.dx.bytes(), sizes.input);
    EXPECT_EQ(b.weight_state.bytes(), sizes.weight_state);
    EXPECT_EQ(fed.pool().live(TensorUse::kWaitingForB), 0);
    EXPECT_EQ(fed.pool().live(TensorUse::kWaitingForW), sizes.weight_state);
    EXPECT_EQ(fed.pool().live(TensorUse::kCommunication), sizes.input);
    EXPECT_EQ(fed.live_workspace(), 0);
    b.dx.Reset();
    EXPECT_EQ(fed.Measure([&] { fed.stage().WeightGrad(std::move(b.weight_state)); }),
              sizes.weight_grad);
  }
}

TEST_P(DeviceBytes, OfBwAreThoseOfTheFormula) {
  for (const StageRange& range : Ranges()) {
    SCOPED_TRACE(testing::Message() << "layers " << range.first_layer << " + " << range.layers);
    const cpu::StageSizes sizes = DeviceSizesOf(shape_, range).stage;
    for (const bool from_kept : {true, false}) {
      Fed fed(shape_, range);
      DeviceStage::Forwarded f = fed.Forward(fed.Input());
      f.output.Reset();
      f.losses.Reset();
      if (shape_.recompute && !from_kept) fed.stage().Recompute(&f.activation);
      DeviceTensor dy = fed.Gradient();
      DeviceTensor dx;
      EXPECT_EQ(fed.Measure([&] {
        dx = fed.stage().FusedBackward(std::move(f.activation), std::move(dy), fed.sums());
      }),
                from_kept ? sizes.fused_backward_from_kept : sizes.fused_backward);
    }
  }
}

TEST_P(DeviceBytes, OfBThatRunsFAgainAreThoseOfTheFormula) {
  for (const StageRange& range : Ranges()) {
    const cpu::StageSizes sizes = DeviceSizesOf(shape_, range).stage;
    EXPECT_EQ(sizes.input_grad_from_kept == sizes.input_grad, !shape_.recompute);
    Fed fed(shape_, range);
    DeviceStage::Forwarded f = fed.Forward(fed.Input());
    f.output.Reset();
    f.losses.Reset();
    DeviceTensor dy = fed.Gradient();
    DeviceStage::Backwarded b;
    EXPECT_EQ(fed.Measure([&] {
      b = fed.stage().InputGrad(std::move(f.activation), std::move(dy), fed.sums());
    }),
              sizes.input_grad_from_kept);
  }
}

TEST_P(DeviceBytes, OfWBlockByBlockAreThoseOfTheFormula) {
  const StageRange range = Ranges()[3];
  Fed fed(shape_, range);
  DeviceStage::Forwarded f = fed.Forward(DeviceTensor());
  DeviceStage::Backwarded b =
      fed.stage().InputGrad(std::move(f.activation), DeviceTensor(), fed.sums());
  Bytes left = b.weight_state.bytes();
  for (int block = 0; block < range.num_blocks(); ++block) {
    fed.stage().WeightGradOfBlock(&b.weight_state, block);
    left -= DeviceWeightStateOfBlock(shape_, range, block);
    EXPECT_EQ(b.weight_state.bytes(), left);
    EXPECT_EQ(fed.pool().live(TensorUse::kWaitingForW), left);
  }
  EXPECT_EQ(left, 0);
}

// A second opinion on what waits: in fp32 it is what the CPU keeps, but for the losses, which on a
// device are the caller's.
TEST_P(DeviceBytes, ThatWaitInFloat32AreThoseOfTheCpus) {
  cpu::ModelShape shape = shape_;
  shape.storage = cpu::DType::kFloat32;
  for (const StageRange& range : Ranges()) {
    const DeviceStageSizes sizes = DeviceSizesOf(shape, range);
    const cpu::StageSizes expected = cpu::SizesOf(shape, range);
    EXPECT_EQ(sizes.stage.activation, expected.activation - sizes.losses);
    EXPECT_EQ(sizes.stage.kept, expected.kept - (shape.recompute ? 0 : sizes.losses));
    EXPECT_EQ(sizes.stage.weight_state, expected.weight_state);
    EXPECT_EQ(sizes.stage.input, expected.input);
    EXPECT_EQ(sizes.stage.output, expected.output);
  }
}

// An aborted iteration drops what it has.
TEST_P(DeviceBytes, OfDroppedStatesAreFree) {
  FakeLayer layer({.seed = 23});
  DevicePipeline model(&layer, shape_, 2);
  const Bytes fixed = model.pool().live();
  {
    DevicePipeline::InFlight flight = model.Forward(RandomBatch(shape_, 0), 1);
    const std::vector<DeviceWeightState> states =
        model.InputGrads(model.Forward(RandomBatch(shape_, 1), 1));
    EXPECT_GT(model.pool().live(), fixed);
  }
  EXPECT_EQ(model.pool().live(), fixed);
  EXPECT_THAT(layer.misuses(), IsEmpty());
}

// Blocks come back: a second micro-batch asks the device for nothing.
TEST_P(DeviceBytes, OfALaterMicroBatchAreThoseOfTheFirst) {
  FakeLayer layer({.seed = 29});
  DevicePipeline model(&layer, shape_, 1);
  model.WeightGrads(model.InputGrads(model.Forward(RandomBatch(shape_, 0), 1)));
  const int64_t allocations = model.pool().allocations();
  model.WeightGrads(model.InputGrads(model.Forward(RandomBatch(shape_, 1), 1)));
  EXPECT_EQ(model.pool().allocations(), allocations);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceBytes, testing::ValuesIn(DeviceModelsOfEveryStorage()),
                         spiritlevel::NameOf);

}  // namespace
}  // namespace cuda
}  // namespace spiritlevel
