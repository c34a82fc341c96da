// The model on a real device, where there is one, against the CPU's.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/kernels/cuda/model/device_results.h"

namespace spiritlevel::cuda {
namespace {

constexpr Bytes kWorkspace = Bytes{32} << 20;

class ModelOnGpu : public testing::TestWithParam<TinyModel> {
 protected:
  void SetUp() override {
    layer_ = MakeCudaLayer();
    const std::string why = WhyNoDevice(layer_.get());
    if (!why.empty()) GTEST_SKIP() << "no CUDA device: " << why;
  }

  const cpu::ModelShape shape_ = GetParam().shape;
  std::unique_ptr<Layer> layer_;
};

TEST_P(ModelOnGpu, HasTheLossesAndGradientsOfTheCpus) {
  const bool in_bf16 = shape_.storage == cpu::DType::kBFloat16;
  Results expected;
  if (in_bf16) {
    expected = WithoutRounding(shape_);
  } else {
    TinyPipeline model(shape_, 2);
    expected = OnCpu(&model);
  }
  const Results results = OnDevice(layer_.get(), shape_, false, kWorkspace);
  EXPECT_LT(RelativeError(results.losses, expected.losses), in_bf16 ? 5e-3 : 1e-5);
  const Doubles all = AllOf(expected.gradients);
  EXPECT_GT(Cosine(AllOf(results.gradients), all), in_bf16 ? 0.97 : 1 - 1e-8);
  if (in_bf16) return;
  for (const auto& [name, values] : expected.gradients) {
    EXPECT_LT(RelativeError(results.gradients.at(name), values), 5e-5) << name;
  }
}

TEST_P(ModelOnGpu, HasTheSameBitsEachTime) {
  const Results first = OnDevice(layer_.get(), shape_, true, kWorkspace);
  const Results second = OnDevice(layer_.get(), shape_, false, kWorkspace);
  EXPECT_EQ(second.losses, first.losses);
  EXPECT_EQ(second.gradients, first.gradients);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ModelOnGpu, testing::ValuesIn(DeviceModelsOfEveryStorage()),
                         spiritlevel::NameOf);

}  // namespace
}  // namespace spiritlevel::cuda
