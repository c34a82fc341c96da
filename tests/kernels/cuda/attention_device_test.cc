// Attention on a device, against the same tiles on the host and against float64.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>

#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/attention_graph.h"
#include "kernels/cuda/attention_host.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/math/attention_arguments.h"
#include "tests/kernels/cuda/attention_problem.h"

namespace spiritlevel::cuda {
namespace {

void Expect(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

bool HasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};

class OwnKernels {
 public:
  void Run(const AttentionForward& call) { LaunchAttentionForward(call, nullptr); }
  void Run(const AttentionBackward& call) { LaunchAttentionBackward(call, nullptr); }
};

constexpr Bytes kMostWorkspace = Bytes{1} << 30;

class CudnnKernels {
 public:
  template <typename CallOf>
  std::optional<std::string> WhyNot(const CallOf& call) {
    return cudnn_.WhyNot(call);
  }
  template <typename CallOf>
  void Run(const CallOf& call) {
    void* workspace = nullptr;
    Expect(cudaMalloc(&workspace, static_cast<size_t>(cudnn_.Workspace(call)) + 1));
    const std::unique_ptr<void, Free> owner(workspace);
    cudnn_.Launch(call, workspace, nullptr);
    Expect(cudaDeviceSynchronize());
  }

 private:
  CudnnAttention cudnn_{kMostWorkspace};
};

// Forward and backward with a copy of the problem's memory on the device, and back.
template <typename Kernels>
void RunOnDevice(AttentionProblem* problem, Kernels* kernels) {
  void* memory = nullptr;
  const size_t bytes = problem->memory().size();
  Expect(cudaMalloc(&memory, bytes));
  const std::unique_ptr<void, Free> owner(memory);
  Expect(cudaMemcpy(memory, problem->memory().data(), bytes, cudaMemcpyHostToDevice));
  kernels->Run(problem->Forward(memory));
  Expect(cudaGetLastError());
  kernels->Run(problem->Backward(memory));
  Expect(cudaGetLastError());
  Expect(cudaDeviceSynchronize());
  Expect(cudaMemcpy(problem->memory().data(), memory, bytes, cudaMemcpyDeviceToHost));
}
void RunOnDevice(AttentionProblem* problem) {
  OwnKernels kernels;
  RunOnDevice(problem, &kernels);
}

class AttentionOnDevice : public testing::TestWithParam<AttentionCase> {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_P(AttentionOnDevice, IsTheTextbooksInFloat64AndTheHostsToRounding) {
  const bool is_bf16 = GetParam().type == ElementType::kBFloat16;
  AttentionProblem device(GetParam());
  RunOnDevice(&device);
  EXPECT_LT(WorstError(device.Results(), device.InFloat64()), is_bf16 ? 1.2e-2 : 5e-6);
  EXPECT_TRUE(device.OnlyResultsAreWritten());
  AttentionProblem host(GetParam());
  RunAttentionOnHost(host.Forward());
  RunAttentionOnHost(host.Backward());
  EXPECT_LT(WorstError(device.Results(), host.Results()), is_bf16 ? 8e-3 : 5e-6);
}

TEST_P(AttentionOnDevice, RunTwiceGivesTheSameBits) {
  AttentionProblem first(GetParam());
  AttentionProblem second(GetParam());
  RunOnDevice(&first);
  RunOnDevice(&second);
  RunOnDevice(&second);  // and whatever was there before
  EXPECT_EQ(first.memory(), second.memory());
}

// Below, at and beyond the ends of tiles of each size; the last ones are left to plain arithmetic.
std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases;
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    for (const bool causal : {true, false}) {
      for (const int64_t sequence : {1, 3, 63, 65, 257}) {
        cases.push_back({.shape = {1, sequence, 2, 1, 64, causal}, .type = type});
      }
      for (const int64_t head_dim : {8, 64, 80, 96, 128, 256}) {
        cases.push_back({.shape = {2, 200, 4, 2, head_dim, causal}, .type = type});
      }
      cases.push_back({.shape = {1, 130, 3, 3, 64, causal, 0.3f}, .type = type});
      cases.push_back({.shape = {2, 70, 2, 1, 5, causal}, .type = type, .gap = 3});
      cases.push_back({.shape = {1, 70, 2, 1, 64, causal}, .type = type, .gap = 4});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionOnDevice, testing::ValuesIn(Cases()),
                         [](const auto& test) { return NameOf(test.param); });

class CudnnOnDevice : public testing::TestWithParam<AttentionCase> {};

TEST_P(CudnnOnDevice, IsTheTextbooksInFloat64TwiceInTheSameBitsOrSaysWhyItIsNotUsed) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  CudnnKernels cudnn;
  AttentionProblem first(GetParam());
  AttentionProblem second(GetParam());
  for (const auto& reason : {cudnn.WhyNot(first.Forward()), cudnn.WhyNot(first.Backward())}) {
    if (!reason) continue;
    EXPECT_FALSE(reason->empty());
    GTEST_SKIP() << "cuDNN is not used: " << *reason;
  }
  RunOnDevice(&first, &cudnn);
  EXPECT_LT(WorstError(first.Results(), first.InFloat64()), 1.2e-2);
  EXPECT_TRUE(first.OnlyResultsAreWritten());
  RunOnDevice(&second, &cudnn);
  EXPECT_EQ(first.memory(), second.memory());
}

std::vector<AttentionCase> CudnnCases() {
  std::vector<AttentionCase> cases;
  for (const bool causal : {true, false}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const int64_t kv_heads : {4, 2}) {
        cases.push_back(
            {.shape = {2, 256, 4, kv_heads, head_dim, causal}, .type = ElementType::kBFloat16});
      }
    }
    cases.push_back({.shape = {1, 200, 2, 1, 80, causal}, .type = ElementType::kBFloat16});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudnnOnDevice, testing::ValuesIn(CudnnCases()),
                         [](const auto& test) { return NameOf(test.param); });

// No device is needed for it, but the library.
TEST(CudnnGraphs, AreMadeOfWhatCudnnAccepts) {
  for (const AttentionCase& c : CudnnCases()) {
    AttentionProblem problem(c);
    for (const AttentionGraph& graph : {GraphOf(problem.Forward()), GraphOf(problem.Backward())}) {
      const std::optional<std::string> objection = CudnnObjection(graph);
      if (objection && (objection->find("no cuDNN") != std::string::npos ||
                        objection->find("cannot be loaded") != std::string::npos)) {
        GTEST_SKIP() << *objection;
      }
      EXPECT_FALSE(objection.has_value()) << NameOf(c) << ": " << *objection;
    }
  }
}

TEST(CudnnGraphs, AreNotEvenMadeOfWhatItDoesNotTake) {
  CudnnKernels cudnn;
  AttentionProblem fp32({.shape = {1, 64, 2, 1, 64, true}, .type = ElementType::kFloat32});
  AttentionProblem odd({.shape = {1, 64, 2, 1, 60, true}, .type = ElementType::kBFloat16});
  AttentionProblem one({.shape = {1, 1, 2, 1, 64, true}, .type = ElementType::kBFloat16});
  for (AttentionProblem* const problem : {&fp32, &odd, &one}) {
    EXPECT_TRUE(cudnn.WhyNot(problem->Forward()).has_value());
    EXPECT_TRUE(cudnn.WhyNot(problem->Backward()).has_value());
  }
}

TEST(AttentionOnDeviceLimits, LargeScoresDoNotOverflow) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  AttentionProblem problem(
      {.shape = {1, 200, 1, 1, 8, true}, .type = ElementType::kBFloat16, .size = 10});
  RunOnDevice(&problem);
  EXPECT_LT(WorstError(problem.Results(), problem.InFloat64()), 3e-2);
}

}  // namespace
}  // namespace spiritlevel::cuda
