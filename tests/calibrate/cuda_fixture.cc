#include "tests/calibrate/cuda_fixture.h"

#include <gtest/gtest.h>

#include "kernels/cuda/call_views.h"

namespace spiritlevel {

TimeNs MadeUpTime(const cuda::FakeCost& cost) {
  if (cost.call == nullptr) return 2'000 + cost.bytes;
  if (const auto* const fill = std::get_if<cuda::Fill>(cost.call)) {
    return fill->to.size() == 1 ? 900 : 50'000;
  }
  return 400'000 + 20 * cuda::ViewsOf(*cost.call).front().view->size();
}

cuda::FakeSettings MadeUpGpu(int devices) {
  cuda::FakeSettings settings{.devices = devices, .seed = 3};
  settings.device.name = "Made-up 100";
  settings.device.l2 = Bytes{32} << 10;
  settings.device.memory = Bytes{256} << 20;
  settings.algorithms = 2;
  settings.duration = MadeUpTime;
  return settings;
}

cuda::Communicator SpyLayer::MakeCommunicator(int device, const cuda::CommunicatorId& id, int size,
                                              int rank) {
  return FakeLayer::MakeCommunicator(device, id, size, rank);
}

void SpyLayer::Send(cuda::Communicator communicator, cuda::Stream stream, const void* data,
                    Bytes bytes, int peer) {
  if (sends_to_break_ > 0 && --sends_to_break_ == 0) Break(communicator, "the peer is gone");
  FakeLayer::Send(communicator, stream, data, bytes, peer);
}

void SpyLayer::Launch(cuda::Stream stream, const cuda::Call& call) {
  launched_.emplace(cuda::NameOf(call), std::pair{stream, cuda::ViewsOf(call).front().view->data});
  FakeLayer::Launch(stream, call);
}

std::vector<std::pair<cuda::Stream, const void*>> SpyLayer::launched(
    const std::string& name) const {
  std::vector<std::pair<cuda::Stream, const void*>> found;
  const auto [begin, end] = launched_.equal_range(name);
  for (auto at = begin; at != end; ++at) found.push_back(at->second);
  return found;
}

CudaDeviceSettings TinySettings(std::vector<int> peers, int partitions) {
  CudaDeviceSettings settings{.device = 0,
                              .peers = std::move(peers),
                              .partitions = partitions,
                              .product_workspace = Bytes{1} << 16,
                              .warm_up = 20'000'000};
  settings.references = {
      Gemm{.m = 16, .n = 16, .k = 16},
      Attention{.batch = 1, .heads = 1, .kv_heads = 1, .sequence = 8, .head_dim = 64},
      Elementwise{.bytes_moved = 3 << 10}};
  return settings;
}

CudaSurveyPlan TinySurvey() {
  CudaSurveyPlan plan;
  plan.copies = {{1 << 10}, {1 << 14}, {5'120, true}, {1 << 16}};
  plan.messages = plan.copies;
  plan.products_fp8 = {{{16, 16, 16}}, {{16, 32, 32}}, {{16, 16, 48}, true}};
  plan.beside = 1 << 12;
  plan.full_chip = {.m = 16, .n = 32, .k = 16};
  plan.behind = 1 << 10;
  return plan;
}

namespace {

void AddProducts(std::vector<PlannedWork>* plan) {
  for (int use = 0; use < kNumGemmUses; ++use) {
    const auto add = [&](int64_t m, int64_t n, int64_t k, bool held_out) {
      plan->push_back(PlanKernel(Gemm{m, n, k, static_cast<Gemm::Use>(use)}, 0, held_out));
    };
    add(16, 16, 16, false);
    add(16, 32, 32, false);
    add(16, 16, 48, true);
  }
}

}  // namespace

std::vector<PlannedWork> TinyPlan() {
  std::vector<PlannedWork> plan;
  AddProducts(&plan);
  constexpr int64_t kSizes[] = {8, 24, 16};
  for (const int64_t size : kSizes) {
    const bool held_out = size == kSizes[2];
    const auto add = [&](const Kernel& kernel) { plan.push_back(PlanKernel(kernel, 0, held_out)); };
    for (const bool backward : {false, true}) {
      add(Attention{.batch = 1,
                    .heads = 2,
                    .kv_heads = 1,
                    .sequence = size,
                    .head_dim = 64,
                    .backward = backward});
      add(Embedding{.tokens = size, .width = 8 * size, .backward = backward});
      add(Loss{.tokens = size, .vocabulary = 8 * size, .backward = backward});
    }
    for (const Norm::Part part :
         {Norm::Part::kForward, Norm::Part::kInputGrad, Norm::Part::kWeightGrad}) {
      add(Norm{.rows = size, .width = 8 * size, .part = part});
    }
    add(Elementwise{.bytes_moved = 600 * size});
    plan.push_back(PlanOptimizer(100 * size, 0, held_out));
    plan.push_back(PlanHandOver(512 * size, 0, held_out));
  }
  return plan;
}

CudaCalibrationOptions TinyOptions(std::vector<int> peers, int partitions) {
  return {.settings = TinySettings(std::move(peers), partitions), .survey = TinySurvey()};
}

Calibration TinyCalibration(cuda::Layer* layer, std::vector<int> peers,
                            const CalibrationObserver& observer) {
  return CalibrateCuda(layer, TinyOptions(std::move(peers)), {.seconds = 60, .plan = TinyPlan()},
                       observer);
}

void ExpectNothingLeft(const cuda::FakeLayer& layer, int devices) {
  for (int device = 0; device < devices; ++device) EXPECT_EQ(layer.allocated(device), 0);
  EXPECT_EQ(layer.live_streams(), 0);
  EXPECT_EQ(layer.live_events(), 0);
  EXPECT_EQ(layer.live_communicators(), 0);
}

}  // namespace spiritlevel
