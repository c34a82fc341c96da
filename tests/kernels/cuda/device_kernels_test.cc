// The kernels on a device, against the same arithmetic on the host.
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>

#include "kernels/cuda/cuda_launch.h"
#include "kernels/cuda/host_kernels.h"
#include "kernels/cuda/math/numbers.h"
#include "tests/kernels/cuda/examples.h"

namespace spiritlevel {
namespace {

using cuda::ElementType;
using cuda::View;

void Expect(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// A copy of a call's operands on the device for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(Example* example) : host_(example->call()), device_(example->call()) {
    const std::vector<cuda::NamedView> operands = ViewsOf(host_);
    const std::vector<cuda::NamedView> copies = ViewsOf(device_);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].view->empty()) continue;
      // device_ is not const. One operand may be two of a call.
      const_cast<View*>(copies[i].view)->data = CopyOf(*operands[i].view);
    }
  }

  // And writes the results back, with what lies between their rows.
  void Run() {
    CheckCall(device_);
    LaunchCall(device_, nullptr);
    Expect(cudaGetLastError());
    Expect(cudaDeviceSynchronize());
    for (const cuda::NamedView& operand : ViewsOf(host_)) {
      const View& view = *operand.view;
      if (!operand.written || view.empty()) continue;
      Expect(cudaMemcpy(view.data, copies_.at(view.data).get(), BytesOf(view),
                        cudaMemcpyDeviceToHost));
    }
  }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };

  static size_t BytesOf(const View& view) {
    return static_cast<size_t>(((view.rows - 1) * view.stride + view.cols) * SizeOf(view.type));
  }

  void* CopyOf(const View& view) {
    auto& copy = copies_[view.data];
    if (copy == nullptr) {
      void* memory = nullptr;
      Expect(cudaMalloc(&memory, BytesOf(view)));
      copy.reset(memory);
      Expect(cudaMemcpy(memory, view.data, BytesOf(view), cudaMemcpyHostToDevice));
    }
    return copy.get();
  }

  cuda::Call host_;
  cuda::Call device_;
  std::map<void*, std::unique_ptr<void, Free>> copies_;
};

void RunOnDevice(Example* example) { OnDevice(example).Run(); }

std::vector<ExampleShape> Shapes() {
  std::vector<ExampleShape> shapes;
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    for (const int64_t gap : {0, 3, 8}) {
      shapes.push_back({type, 1, 1, gap});
      shapes.push_back({type, 3, 3, gap});
      shapes.push_back({type, 33, 16, gap});
      shapes.push_back({type, 5, 33, gap});
      shapes.push_back({type, 2, 1025, gap});
      shapes.push_back({type, 130, 4096, gap});
    }
    shapes.push_back({type, 2113, 9, 0});
    shapes.push_back({type, 3, 100003, 0});
  }
  return shapes;
}

// All that takes no exponential or logarithm, of which the device has its own.
bool HasTheHostsBits(const std::string& kind) {
  return !kind.starts_with("swiglu") && !kind.starts_with("gelu") &&
         !kind.starts_with("cross_entropy");
}

std::vector<std::string> KindsOfKernels() {
  std::vector<std::string> kinds = Example::Kinds();
  std::erase(kinds, "product");  // cuBLASLt's
  return kinds;
}

void ExpectClose(const Doubles& actual, const Doubles& expected, ElementType type) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  const double rounding = type == ElementType::kBFloat16 ? 0x1p-7 : 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double bound = rounding * std::abs(expected[i]) + 4e-6 * largest;
    ASSERT_LE(std::abs(actual[i] - expected[i]), bound) << "element " << i << ": " << expected[i];
  }
}

class DeviceKernels : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

TEST_P(DeviceKernels, DoWhatTheHostDoes) {
  for (const ExampleShape& shape : Shapes()) {
    SCOPED_TRACE(ToString(shape));
    Example device(GetParam(), shape);
    Example host(GetParam(), shape);
    RunOnDevice(&device);
    RunOnHost(host.call());
    EXPECT_TRUE(device.OnlyResultsHaveChanged());
    for (const std::string& name : host.results()) {
      SCOPED_TRACE(name);
      if (HasTheHostsBits(GetParam())) {
        ASSERT_EQ(device.values(name), host.values(name));
      } else {
        ExpectClose(device.values(name), host.values(name), host.view(name).type);
      }
    }
  }
}

TEST_P(DeviceKernels, GiveTheSameBitsEachTime) {
  for (const ExampleShape& shape : Shapes()) {
    Example once(GetParam(), shape);
    Example again(GetParam(), shape);
    RunOnDevice(&once);
    RunOnDevice(&again);
    EXPECT_TRUE(once.HasTheBitsOf(again)) << ToString(shape);
  }
}

INSTANTIATE_TEST_SUITE_P(OfTheList, DeviceKernels, testing::ValuesIn(KindsOfKernels()),
                         [](const auto& kind) { return kind.param; });

class DeviceLimits : public DeviceKernels {};

// Each kind's own tokens or targets, with ones that do not exist, or do not count.
TEST_P(DeviceLimits, AreThoseOfTheHost) {
  const ExampleShape shape{ElementType::kFloat32, 5, 33, 3};
  Example device(GetParam(), shape);
  Example host(GetParam(), shape);
  const char* const indices = GetParam().starts_with("embedding") ? "tokens" : "targets";
  for (Example* const example : {&device, &host}) {
    SetValues(example->view(indices), {-1, 33, 2, 1 << 30, -7});
  }
  RunOnDevice(&device);
  RunOnHost(host.call());
  for (const std::string& name : host.results()) {
    const Doubles actual = device.values(name);
    const Doubles expected = host.values(name);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(std::isnan(actual[i]), std::isnan(expected[i])) << name << " " << i;
      EXPECT_EQ(actual[i] == 0, expected[i] == 0) << name << " " << i;
    }
  }
  EXPECT_TRUE(device.OnlyResultsHaveChanged());
}

INSTANTIATE_TEST_SUITE_P(OfIndices, DeviceLimits,
                         testing::Values("embedding_forward", "embedding_weight_grad",
                                         "cross_entropy_forward", "cross_entropy_backward"),
                         [](const auto& kind) { return kind.param; });

// Rounds to fp8 by the toolkit's own functions, which need no device.
TEST(Float8OfTheToolkit, IsOursWhereNumbersAreFinite) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x8000u, 0xFFFFu}) {
      const float value = cuda::FloatOf(upper << 16 | lower);
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(cuda::FromFloat<cuda::Float8E4M3>(value).bits,
                __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3))
          << value;
      ASSERT_EQ(cuda::FromFloat<cuda::Float8E5M2>(value).bits,
                __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2))
          << value;
    }
  }
}

}  // namespace
}  // namespace spiritlevel
