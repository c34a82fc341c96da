#include "kernels/cpu/model/memory_meter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/model/tensor.h"

namespace spiritlevel {
namespace {

using cpu::DType;
using cpu::MemoryMeter;
using cpu::Tensor;
using cpu::TensorUse;

TEST(MemoryMeter, CountsTheBytesOfTensorsByUse) {
  MemoryMeter meter;
  Tensor a(&meter, TensorUse::kWaitingForB, DType::kFloat32, 3, 5);
  {
    const Tensor b(&meter, TensorUse::kWorkspace, DType::kBFloat16, 3, 5);
    EXPECT_EQ(meter.live(), 60 + 30);
    EXPECT_EQ(meter.live(TensorUse::kWorkspace), 30);
  }
  EXPECT_EQ(meter.live(), 60);
  a.Retag(TensorUse::kWaitingForW);
  EXPECT_EQ(meter.live(TensorUse::kWaitingForB), 0);
  EXPECT_EQ(meter.live(TensorUse::kWaitingForW), 60);
  const Tensor moved = std::move(a);
  EXPECT_EQ(meter.live(), 60);
  const Tensor copy = moved.Copy(TensorUse::kCommunication);
  EXPECT_EQ(meter.live(), 120);
  const cpu::BytesByUse by_use = meter.live_by_use();
  EXPECT_EQ(std::accumulate(by_use.begin(), by_use.end(), Bytes{0}), meter.live());
}

TEST(MemoryMeter, RemembersPeaksUntilTheyAreReset) {
  MemoryMeter meter;
  Tensor kept(&meter, TensorUse::kParameters, DType::kFloat32, 1, 10);
  { const Tensor first(&meter, TensorUse::kWorkspace, DType::kFloat32, 1, 100); }
  { const Tensor second(&meter, TensorUse::kGradients, DType::kFloat32, 1, 50); }
  EXPECT_EQ(meter.peak(), 440);
  EXPECT_EQ(meter.peak(TensorUse::kWorkspace), 400);
  EXPECT_EQ(meter.peak(TensorUse::kGradients), 200);
  EXPECT_EQ(meter.live_at_peak()[static_cast<size_t>(TensorUse::kWorkspace)], 400);
  EXPECT_EQ(meter.live_at_peak()[static_cast<size_t>(TensorUse::kGradients)], 0);
  meter.ResetPeaks();
  EXPECT_EQ(meter.peak(), 40);
  EXPECT_EQ(meter.peak(TensorUse::kWorkspace), 0);
}

TEST(MemoryMeter, RetaggingMakesNoPeak) {
  MemoryMeter meter;
  Tensor tensor(&meter, TensorUse::kWaitingForB, DType::kFloat32, 1, 100);
  tensor.Retag(TensorUse::kWaitingForW);
  EXPECT_EQ(meter.peak(), 400);
}

TEST(MemoryMeter, GivesAFreedBlockToTheNextOfItsSize) {
  MemoryMeter meter;
  for (const int64_t size : {100, 100'000}) {
    Tensor tensor(&meter, TensorUse::kWorkspace, DType::kFloat32, 1, size);
    const void* const block = tensor.data();
    tensor.Reset();
    const Tensor next(&meter, TensorUse::kWorkspace, DType::kFloat32, 1, size);
    EXPECT_EQ(next.data(), block);
  }
}

// However sizes change, the process has no more than a twentieth above what was live at the most.
TEST(MemoryMeter, KeepsNoMoreSpareBlocksThanATwentiethOfItsPeak) {
  MemoryMeter meter;
  for (int64_t size = 1 << 20; size < (1 << 20) + 40 * 4096; size += 4096) {
    const Tensor tensor(&meter, TensorUse::kWorkspace, DType::kFloat32, 1, size);
    EXPECT_LE(meter.held(), meter.peak() + meter.peak() / 20 + 8192);
  }
  EXPECT_LE(meter.held(), meter.peak() + meter.peak() / 20 + 8192);
}

TEST(MemoryMeter, BlocksBeginAtMultiplesOf64Bytes) {
  MemoryMeter meter;
  std::vector<Tensor> tensors;
  for (const int64_t size : {0, 1, 3, 17, 1000, 16'384, 16'385, 1'000'003}) {
    tensors.emplace_back(&meter, TensorUse::kWorkspace, DType::kFloat32, 1, size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors.back().data()) % 64, 0u);
  }
}

TEST(MemoryMeter, CountsRightWithSeveralThreads) {
  MemoryMeter meter;
  const auto work = [&meter] {
    for (int i = 1; i < 500; ++i) {
      Tensor tensor(&meter, TensorUse::kWaitingForB, DType::kFloat32, 1, i % 17 + 1);
      tensor.Retag(TensorUse::kWaitingForW);
    }
  };
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
  EXPECT_EQ(meter.live(), 0);
  EXPECT_LE(meter.peak(), 2 * 17 * 4);
}

TEST(Tensor, ReadAsAnotherTypeOrAfterItIsGoneIsOurFault) {
  MemoryMeter meter;
  Tensor tensor(&meter, TensorUse::kWorkspace, DType::kBFloat16, 2, 2);
  EXPECT_THROW(tensor.floats(), InvariantError);
  tensor.Reset();
  EXPECT_THROW(tensor.halves(), InvariantError);
  EXPECT_THROW(tensor.Retag(TensorUse::kParameters), InvariantError);
}

}  // namespace
}  // namespace spiritlevel
