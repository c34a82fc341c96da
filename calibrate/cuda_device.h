// CudaDevice: a GPU as calibration sees it, behind a cuda::Layer.
//
// bf16 with fp32 accumulation; events read the time; operands are cold; the algorithms of products
// are tuned. With `partitions` above 1 a rank is one of as many equal parts of the device's SMs:
// the first is measured, and others run on the rest.
//
// No clock, power limit or mode is ever changed; clocks and temperature are only read.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "calibrate/cuda_group.h"
#include "calibrate/cuda_timer.h"
#include "calibrate/device.h"

namespace spiritlevel {

struct CudaDeviceSettings {
  int device = 0;
  std::vector<int> peers{};  // other devices that it exchanges with
  int partitions = 1;
  Bytes product_workspace = Bytes{32} << 20;
  // Of work before anything is timed: an idle device's clock is low, and rises by and by.
  TimeNs warm_up = 500'000'000;
  // Some tenths of a millisecond each on a large GPU.
  std::array<Kernel, kNumKernelClasses> references = {
      Gemm{.m = 4096, .n = 4096, .k = 4096},
      Attention{.batch = 1, .heads = 32, .kv_heads = 8, .sequence = 2048, .head_dim = 128},
      Elementwise{.bytes_moved = 3 * (Bytes{1} << 27)}};
};

class CudaDevice : public Device {
 public:
  // Throws GpuError. The layer must outlive it.
  CudaDevice(cuda::Layer* layer, CudaDeviceSettings settings);
  ~CudaDevice() override;

  // --- Device
  std::string_view name() const override { return "cuda"; }
  MeasuredMachine machine() const override;
  Software software() const override;
  DType dtype() const override { return DType::kBFloat16; }
  std::array<Kernel, kNumKernelClasses> References() const override;
  std::optional<SensorReading> Sensors() override;
  std::unique_ptr<Workload> Prepare(const Work& work) override;
  Timing Time(Workload& workload, int repeats) override;
  int WhileOthersRun(const Work& work, const std::function<void()>& body) override;
  // By NCCL to the first peer; without one, by copies between two streams.
  std::unique_ptr<Workload> PrepareRoundTrip(Bytes bytes) override;

  // --- What only a GPU has
  void WarmUp();
  const cuda::DeviceInfo& info() const { return info_; }
  const CudaDeviceSettings& settings() const { return settings_; }
  cuda::Layer* layer() { return layer_; }
  CudaTimer& timer() { return *timer_; }
  const CudaShop& shop() const { return shops_.front(); }
  cuda::Stream stream() const { return streams_.front().get(); }
  std::unique_ptr<Workload> PrepareFloat8(const Gemm& gemm);
  int WhileBeside(CudaWorkload* other, const std::function<void()>& body);
  // Of this device, and as many of its peers as make `size`; of one alone, with itself.
  CudaGroup& Group(int size);
  const GpuMemory& memory() const { return memory_; }

 private:
  std::unique_ptr<CudaWorkload> PrepareOn(size_t part, const Work& work);
  std::unique_ptr<Workload> PrepareCopies(Bytes bytes);
  void MakeStreams();
  void MeasureProductsMemory();
  void MeasureRounding();
  Bytes Free();

  cuda::Layer* layer_;
  CudaDeviceSettings settings_;
  cuda::DeviceInfo info_;
  GpuMemory memory_;
  std::vector<CudaOwned<cuda::Stream>> streams_;  // by partition
  CudaOwned<cuda::Stream> echo_;                  // of the rank that sends back
  std::vector<CudaMemory> workspaces_;
  std::unique_ptr<cuda::ProductPlans> plans_;
  std::unique_ptr<CudaFiller> filler_;
  std::vector<CudaShop> shops_;  // by partition
  std::unique_ptr<CudaTimer> timer_;
  std::vector<std::unique_ptr<CudaGroup>> groups_;
};

// The largest that a plan's first round takes at a time, with what the device itself needs.
Bytes CudaBytesFor(const std::vector<Work>& works, const cuda::DeviceInfo& info,
                   const CudaDeviceSettings& settings);

}  // namespace spiritlevel
