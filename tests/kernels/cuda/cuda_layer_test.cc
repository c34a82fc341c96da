// The real layer, on whatever devices there are; skipped where there is none. What it shares with
// the fake is claimed of both in the same words: see fake_layer_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/buffer_pool.h"
#include "kernels/cuda/host_kernels.h"
#include "kernels/cuda/layer.h"
#include "kernels/cuda/product_plans.h"

namespace spiritlevel::cuda {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Without a device, too.
TEST(CudaLayerWithoutDevice, CountsDevicesWithoutAnError) {
  const std::unique_ptr<Layer> layer = MakeCudaLayer();
  ASSERT_NE(layer, nullptr) << "this build has the toolkit";
  EXPECT_GE(layer->NumDevices(), 0);
  EXPECT_GT(layer->Versions().runtime, 0);
  EXPECT_GT(layer->Versions().cublas_lt, 0);
  EXPECT_EQ(WhyNoDevice(layer.get()).empty(), layer->NumDevices() > 0);
}

TEST(CudaLayerWithoutDevice, ADeviceThatIsNotThereIsAnErrorOfThatKind) {
  const std::unique_ptr<Layer> layer = MakeCudaLayer();
  const int none = layer->NumDevices();
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [&] { layer->Describe(none); },
           [&] { layer->Allocate(none, 8); },
           [&] { layer->MakeStream(none, Partition{}, false); },
           [&] { layer->MakeEvent(none, true); },
           [&] { layer->Memory(none); },
           [&] { layer->Split(none, 2); },
           [&] { layer->State(none); },
       }) {
    try {
      call();
      ADD_FAILURE() << "there is no device " << none;
    } catch (const GpuError& e) {
      EXPECT_EQ(e.kind(), GpuErrorKind::kNoDevice) << e.what();
    }
  }
}

class CudaLayer : public testing::Test {
 protected:
  void SetUp() override {
    layer_ = MakeCudaLayer();
    const std::string why = WhyNoDevice(layer_.get());
    if (!why.empty()) GTEST_SKIP() << "no CUDA device: " << why;
    stream_ = layer_->MakeStream(0, Partition{}, false);
  }
  void TearDown() override {
    if (stream_ != Stream{}) layer_->Destroy(stream_);
    for (void* memory : memory_) layer_->Free(0, memory);
  }

  View OnDevice(const std::vector<float>& values, int64_t rows, int64_t cols) {
    const View view = Space(ElementType::kFloat32, rows, cols);
    layer_->Copy(stream_, view.data, values.data(), static_cast<Bytes>(values.size() * 4));
    layer_->Synchronize(stream_);
    return view;
  }
  View Space(ElementType type, int64_t rows, int64_t cols) {
    memory_.push_back(layer_->Allocate(0, rows * cols * SizeOf(type)));
    return Dense(memory_.back(), type, rows, cols);
  }
  std::vector<float> Of(View view) {
    std::vector<float> values(static_cast<size_t>(view.size()));
    layer_->Copy(stream_, values.data(), view.data, view.size() * 4);
    layer_->Synchronize(stream_);
    return values;
  }

  std::unique_ptr<Layer> layer_;
  Stream stream_{};
  std::vector<void*> memory_;
};

TEST_F(CudaLayer, DescribesItsDevices) {
  for (int device = 0; device < layer_->NumDevices(); ++device) {
    const DeviceInfo info = layer_->Describe(device);
    EXPECT_FALSE(info.name.empty());
    EXPECT_GE(info.major, 1);
    EXPECT_GT(info.multiprocessors, 0);
    EXPECT_EQ(info.multiprocessors, layer_->Multiprocessors(device, Partition{}));
    EXPECT_THAT(info.pci, HasSubstr(":"));
    const FreeMemory memory = layer_->Memory(device);
    EXPECT_LE(memory.free, memory.total);
    EXPECT_GE(layer_->State(device).sm_clock_mhz, 0);
  }
}

TEST_F(CudaLayer, MoreMemoryThanThereIsIsAnErrorOfThatKind) {
  try {
    layer_->Allocate(0, layer_->Memory(0).total + 1);
    FAIL();
  } catch (const GpuError& e) {
    EXPECT_EQ(e.kind(), GpuErrorKind::kOutOfMemory);
    EXPECT_THAT(e.what(), HasSubstr("cudaMalloc of"));
  }
  EXPECT_NO_THROW(layer_->Free(0, layer_->Allocate(0, 256))) << "the next call is not told of it";
}

TEST_F(CudaLayer, AnEventThatWasNeverRecordedIsDoneAndNoWait) {
  const Event event = layer_->MakeEvent(0, false);
  EXPECT_TRUE(layer_->IsDone(event));
  layer_->Wait(stream_, event);
  EXPECT_NO_THROW(layer_->Synchronize(stream_));
  layer_->Destroy(event);
}

TEST_F(CudaLayer, AWaitIsForTheRecordBeforeIt) {
  const Stream other = layer_->MakeStream(0, Partition{}, true);
  const Event event = layer_->MakeEvent(0, false);
  const View x = Space(ElementType::kFloat32, 1024, 1024);
  for (int round = 0; round < 20; ++round) {
    const auto value = static_cast<float>(round);
    for (int i = 0; i < 20; ++i) layer_->Launch(stream_, Fill{x, -1});
    layer_->Launch(stream_, Fill{x, value});
    layer_->Record(event, stream_);
    layer_->Wait(other, event);
    layer_->Launch(other, Add{x, x, x});
    layer_->Synchronize(other);
    EXPECT_THAT(Of(x.Rows(1023, 1)), Each(2 * value));
  }
  layer_->Destroy(event);
  layer_->Destroy(other);
}

TEST_F(CudaLayer, TimeGoesForward) {
  const Event begin = layer_->MakeEvent(0, true);
  const Event end = layer_->MakeEvent(0, true);
  const View x = Space(ElementType::kFloat32, 4096, 4096);
  layer_->Record(begin, stream_);
  layer_->Launch(stream_, Fill{x, 1});
  layer_->Record(end, stream_);
  layer_->Synchronize(stream_);
  EXPECT_GT(layer_->Between(begin, end), 0);
  EXPECT_LT(layer_->Between(end, begin), 0);
  layer_->Destroy(begin);
  layer_->Destroy(end);
}

TEST_F(CudaLayer, PartitionsAreDisjointAndRunKernels) {
  std::vector<Partition> parts;
  try {
    parts = layer_->Split(0, 2);
  } catch (const GpuError& e) {
    ASSERT_EQ(e.kind(), GpuErrorKind::kUnsupported) << e.what();
    GTEST_SKIP() << e.what();
  }
  const int first = layer_->Multiprocessors(0, parts[0]);
  const int second = layer_->Multiprocessors(0, parts[1]);
  EXPECT_GT(first, 0);
  EXPECT_LE(first + second, layer_->Multiprocessors(0, Partition{}));
  EXPECT_EQ(first, second);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Stream stream = layer_->MakeStream(0, parts[i], i == 1);
    const View x = Space(ElementType::kFloat32, 64, 64);
    const auto value = static_cast<float>(i + 1);
    layer_->Launch(stream, Fill{x, value});
    layer_->Synchronize(stream);
    EXPECT_THAT(Of(x), Each(value));
    layer_->Destroy(stream);
  }
}

// Against the plain loops, for each way to lay the operands out; beta 1 adds to what C holds.
TEST_F(CudaLayer, ProductsOfEveryLayoutAreRowMajor) {
  constexpr int64_t m = 24, n = 40, k = 56;
  std::mt19937_64 random(7);
  const auto numbers = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(random() % 17) - 8;
    return values;
  };
  ProductPlans plans(layer_.get(), 0, {});
  void* const workspace = Space(ElementType::kFloat32, 1, plans.settings().workspace / 4).data;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const float beta : {0.0f, 1.0f}) {
        std::vector<float> a = numbers(m * k), b = numbers(k * n), c = numbers(m * n);
        const int64_t a_rows = ta ? k : m, b_rows = tb ? n : k;
        const Product product{.a = OnDevice(a, a_rows, m * k / a_rows),
                              .transpose_a = ta,
                              .b = OnDevice(b, b_rows, k * n / b_rows),
                              .transpose_b = tb,
                              .c = OnDevice(c, m, n),
                              .alpha = 0.5f,
                              .beta = beta};
        layer_->Multiply(stream_, product, plans.For(product), workspace);
        Product on_host = product;
        on_host.a.data = a.data();
        on_host.b.data = b.data();
        on_host.c.data = c.data();
        RunOnHost(on_host);
        // Small whole numbers and halves: every order of summing gives the same.
        EXPECT_EQ(Of(product.c), c) << ta << tb << beta;
      }
    }
  }
}

TEST_F(CudaLayer, Bf16ProductsAddToAnFp32Gradient) {
  const View x = OnDevice(std::vector<float>(64 * 32, 0.5f), 64, 32);
  const View dy = OnDevice(std::vector<float>(64 * 48, 2.0f), 64, 48);
  const View x16 = Space(ElementType::kBFloat16, 64, 32);
  const View dy16 = Space(ElementType::kBFloat16, 64, 48);
  layer_->Launch(stream_, Convert{x, x16});
  layer_->Launch(stream_, Convert{dy, dy16});
  const Product product{.a = x16,
                        .transpose_a = true,
                        .b = dy16,
                        .c = OnDevice(std::vector<float>(32 * 48, 3.0f), 32, 48),
                        .beta = 1};
  ProductPlans plans(layer_.get(), 0, {});
  void* const workspace = Space(ElementType::kFloat32, 1, plans.settings().workspace / 4).data;
  plans.Tune({.a = x16,
              .transpose_a = true,
              .b = dy16,
              .c = Space(ElementType::kFloat32, 32, 48),
              .beta = 1},
             stream_, workspace);
  layer_->Multiply(stream_, product, plans.For(product), workspace);
  EXPECT_THAT(Of(product.c), Each(67.0f));  // 3 + 64 * 0.5 * 2
}

// fp8 operands: rows of both are along k, as every device that has fp8 can take them.
TEST_F(CudaLayer, Fp8ProductsAreMultipliedByTheirScales) {
  if (!layer_->Describe(0).has_fp8()) GTEST_SKIP() << "this device has no fp8";
  const View a = OnDevice(std::vector<float>(32 * 64, 1.5f), 32, 64);
  const View b = OnDevice(std::vector<float>(48 * 64, 2.0f), 48, 64);
  const View a8 = Space(ElementType::kFloat8E4M3, 32, 64);
  const View b8 = Space(ElementType::kFloat8E4M3, 48, 64);
  layer_->Launch(stream_, Convert{a, a8});
  layer_->Launch(stream_, Convert{b, b8});
  const View scales = OnDevice({2.0f, 0.25f}, 1, 2);
  const auto* scale = static_cast<const float*>(scales.data);
  const View c16 = Space(ElementType::kBFloat16, 32, 48);
  const View c = Space(ElementType::kFloat32, 32, 48);
  const Product product{
      .a = a8, .b = b8, .transpose_b = true, .c = c16, .scale_a = scale, .scale_b = scale + 1};
  ProductPlans plans(layer_.get(), 0, {});
  void* const workspace = Space(ElementType::kFloat32, 1, plans.settings().workspace / 4).data;
  layer_->Multiply(stream_, product, plans.For(product), workspace);
  layer_->Launch(stream_, Convert{c16, c});
  EXPECT_THAT(Of(c), Each(96.0f));  // 64 * 1.5 * 2 * 2 * 0.25
}

TEST_F(CudaLayer, ThePoolReusesMemoryAcrossStreams) {
  const Stream other = layer_->MakeStream(0, Partition{}, false);
  {
    BufferPool pool(layer_.get(), 0, {});
    const View out = Space(ElementType::kFloat32, 1, 64);
    for (int round = 0; round < 64; ++round) {
      const Stream writer = round % 2 == 0 ? stream_ : other;
      const Buffer x = pool.Take(TensorUse::kWorkspace, 1 << 20, writer);
      layer_->Launch(writer,
                     Fill{x.As(ElementType::kFloat32, 1, 1 << 18), static_cast<float>(round)});
      layer_->Copy(writer, out.Columns(round, 1).data, x.data(), 4);
    }
    layer_->Synchronize(other);
    const std::vector<float> values = Of(out);
    for (int round = 0; round < 64; ++round) EXPECT_EQ(values[round], round);
    EXPECT_EQ(pool.allocations(), 1);
  }
  layer_->Destroy(other);
}

class CudaCommunication : public CudaLayer {
 protected:
  void SetUp() override {
    CudaLayer::SetUp();
    if (IsSkipped()) return;
    if (layer_->Versions().nccl == 0) GTEST_SKIP() << "this build is without NCCL";
  }
};

TEST_F(CudaCommunication, ARankSendsToItselfInAGroup) {
  const Communicator self = layer_->MakeCommunicator(0, layer_->MakeCommunicatorId(), 1, 0);
  const View x = OnDevice({1, 2, 3}, 1, 3);
  const View y = OnDevice({0, 0, 0}, 1, 3);
  layer_->BeginGroup();
  layer_->Send(self, stream_, x.data, 12, 0);
  layer_->Receive(self, stream_, y.data, 12, 0);
  layer_->EndGroup();
  EXPECT_THAT(Of(y), ElementsAre(1, 2, 3));
  EXPECT_EQ(layer_->Failure(self), std::nullopt);
  layer_->Destroy(self);
}

TEST_F(CudaCommunication, CollectivesOfOneRankCopy) {
  const Communicator self = layer_->MakeCommunicator(0, layer_->MakeCommunicatorId(), 1, 0);
  const View x = OnDevice({1, 2}, 1, 2);
  const View y = OnDevice({0, 0}, 1, 2);
  layer_->AllReduce(self, stream_, x, Reduction::kSum);
  EXPECT_THAT(Of(x), ElementsAre(1, 2));
  layer_->AllGather(self, stream_, x.data, y.data, 8);
  EXPECT_THAT(Of(y), ElementsAre(1, 2));
  layer_->Launch(stream_, Fill{y, 0});
  layer_->ReduceScatter(self, stream_, x, y);
  EXPECT_THAT(Of(y), ElementsAre(1, 2));
  layer_->Launch(stream_, Fill{y, 0});
  layer_->AllToAll(self, stream_, x.data, y.data, 8);
  EXPECT_THAT(Of(y), ElementsAre(1, 2));
  layer_->Destroy(self);
}

TEST_F(CudaCommunication, OneThatWasAbortedSaysSoAndPostsNothing) {
  const Communicator self = layer_->MakeCommunicator(0, layer_->MakeCommunicatorId(), 1, 0);
  layer_->Abort(self);
  EXPECT_TRUE(layer_->Failure(self).has_value());
  const View x = OnDevice({1}, 1, 1);
  try {
    layer_->AllReduce(self, stream_, x, Reduction::kSum);
    FAIL();
  } catch (const GpuError& e) {
    EXPECT_EQ(e.kind(), GpuErrorKind::kCommunication);
  }
  EXPECT_NO_THROW(layer_->Synchronize(stream_)) << "the device is as before";
  layer_->Destroy(self);
}

// A receive whose send never comes keeps its stream busy; the abort sets it free.
TEST_F(CudaCommunication, AnAbortSetsAWaitingStreamFree) {
  if (layer_->NumDevices() < 2) GTEST_SKIP() << "one device alone has no peer to lose";
  const CommunicatorId id = layer_->MakeCommunicatorId();
  Communicator ends[2];
  layer_->BeginGroup();
  for (int rank = 0; rank < 2; ++rank) ends[rank] = layer_->MakeCommunicator(rank, id, 2, rank);
  layer_->EndGroup();
  const View x = OnDevice({1}, 1, 1);
  layer_->AllReduce(ends[0], stream_, x, Reduction::kSum);  // rank 1 does not come
  layer_->Abort(ends[0]);
  layer_->Abort(ends[1]);
  EXPECT_NO_THROW(layer_->Synchronize(stream_));
  for (const Communicator end : ends) layer_->Destroy(end);
}

TEST_F(CudaCommunication, TwoDevicesExchange) {
  if (layer_->NumDevices() < 2) GTEST_SKIP() << "there is one device alone";
  const CommunicatorId id = layer_->MakeCommunicatorId();
  Communicator ends[2];
  layer_->BeginGroup();
  for (int rank = 0; rank < 2; ++rank) ends[rank] = layer_->MakeCommunicator(rank, id, 2, rank);
  layer_->EndGroup();
  const Stream other = layer_->MakeStream(1, Partition{}, true);
  const View x = OnDevice({4, 5}, 1, 2);
  void* const y = layer_->Allocate(1, 8);
  layer_->BeginGroup();
  layer_->Send(ends[0], stream_, x.data, 8, 1);
  layer_->Receive(ends[1], other, y, 8, 0);
  layer_->EndGroup();
  std::vector<float> values(2);
  layer_->Copy(other, values.data(), y, 8);
  layer_->Synchronize(other);
  layer_->Synchronize(stream_);
  EXPECT_THAT(values, ElementsAre(4, 5));
  for (const Communicator end : ends) layer_->Destroy(end);
  layer_->Free(1, y);
  layer_->Destroy(other);
}

}  // namespace
}  // namespace spiritlevel::cuda
