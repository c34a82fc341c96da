// A pass's scratch is what its pieces take: no less, or a check would end it, and no more.
#include <gtest/gtest.h>

#include <utility>

#include "kernels/cuda/model/block_pass.h"
#include "kernels/cuda/model/device_scratch_sizes.h"
#include "tests/kernels/cuda/model/device_pipeline.h"

namespace spiritlevel::cuda {
namespace {

using cpu::StageRange;

class DeviceScratch : public testing::TestWithParam<TinyModel> {
 protected:
  static constexpr Bytes kPlenty = Bytes{1} << 20;

  DeviceTensor Message() {
    DeviceTensor message(rank_.context(), TensorUse::kWaitingForB, StorageOf(shape_),
                         shape_.tokens(), shape_.hidden);
    rank_.context().Post(Fill{.to = message.view(), .value = 0.25f});
    return message;
  }
  PassContext Context(const DeviceParameters& parameters, const DeviceTensor& rotation,
                      Scratch* scratch) {
    return {.device = &rank_.context(),
            .shape = &shape_,
            .parameters = &parameters,
            .rotation = &rotation,
            .scratch = scratch};
  }
  WeightGradContext ContextOfW(DeviceGradients* sums, Scratch* scratch) {
    return {.device = &rank_.context(), .shape = &shape_, .scratch = scratch, .sums = sums};
  }

  const cpu::ModelShape shape_ = GetParam().shape;
  FakeLayer layer_{{}};
  BufferPool pool_{&layer_, 0, {}};
  TestRank rank_{&layer_, &pool_};
};

TEST_P(DeviceScratch, OfALayerIsWhatItsPassesTake) {
  const StageRange range{.first_layer = 0, .layers = 1};
  const DeviceScratchSizes sizes = DeviceScratchSizesOf(shape_, range);
  const DeviceParameters parameters(shape_, range, rank_.context());
  const LayerParameters at = cpu::LayerParametersAt(shape_, 0);
  DeviceTensor rotation(rank_.context(), TensorUse::kWorkspace, ElementType::kFloat32,
                        2 * shape_.sequence, shape_.head_dim / 2);
  rank_.context().Post(Fill{.to = rotation.view(), .value = 0.5f});

  LayerActivation kept;
  Scratch of_f(rank_.context(), kPlenty);
  const PassContext f = Context(parameters, rotation, &of_f);
  DeviceTensor stream =
      ForwardMlp(f, at, ForwardAttention(f, at, Message(), &kept.attention), &kept.mlp);
  EXPECT_EQ(of_f.most_used(), sizes.forward);

  LayerWeightState state;
  Scratch of_b(rank_.context(), kPlenty);
  const PassContext b = Context(parameters, rotation, &of_b);
  MlpInputGrad(b, at, &kept.mlp, &state, &stream);
  AttentionInputGrad(b, at, &kept.attention, &state, &stream);
  EXPECT_EQ(of_b.most_used(), sizes.input_grad);

  DeviceGradients sums(parameters);
  Scratch of_w(rank_.context(), kPlenty);
  LayerWeightGrad(ContextOfW(&sums, &of_w), at, state);
  EXPECT_EQ(of_w.most_used(), sizes.weight_grad);
}

TEST_P(DeviceScratch, OfTheHeadIsWhatItsPassesTake) {
  const StageRange range{.first_layer = shape_.layers, .layers = 0, .head = true};
  const DeviceScratchSizes sizes = DeviceScratchSizesOf(shape_, range);
  const DeviceParameters parameters(shape_, range, rank_.context());
  const HeadParameters at = cpu::HeadParametersAt(shape_, 0);
  const DeviceTensor no_rotation;

  HeadActivation kept;
  kept.targets = DeviceTensor(rank_.context(), TensorUse::kWaitingForB, ElementType::kInt32, 1,
                              shape_.tokens());
  const std::vector<int32_t> targets(static_cast<size_t>(shape_.tokens()), 1);
  SetBits(rank_.context(), targets.data(), &kept.targets);
  Scratch of_f(rank_.context(), kPlenty);
  ForwardHead(Context(parameters, no_rotation, &of_f), at, Message(), &kept);
  EXPECT_EQ(of_f.most_used(), sizes.forward);

  HeadWeightState state;
  DeviceTensor stream;
  Scratch of_b(rank_.context(), kPlenty);
  HeadInputGrad(Context(parameters, no_rotation, &of_b), at, 1, &kept, &state, &stream);
  EXPECT_EQ(of_b.most_used(), sizes.input_grad);

  DeviceGradients sums(parameters);
  Scratch of_w(rank_.context(), kPlenty);
  HeadWeightGrad(ContextOfW(&sums, &of_w), at, state);
  EXPECT_EQ(of_w.most_used(), sizes.weight_grad);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceScratch, testing::ValuesIn(DeviceModelsOfEveryStorage()),
                         spiritlevel::NameOf);

TEST(ScratchOfAPass, ThatIsTooSmallIsOurFault) {
  FakeLayer layer({});
  BufferPool pool(&layer, 0, {});
  TestRank rank(&layer, &pool);
  Scratch scratch(rank.context(), 512);
  Frame frame(&scratch);
  frame.New(ElementType::kFloat32, 1, 65);  // 260 bytes take 512
  EXPECT_THROW(frame.New(ElementType::kFloat32, 1, 1), InvariantError);
}

}  // namespace
}  // namespace spiritlevel::cuda
