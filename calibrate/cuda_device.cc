#include "calibrate/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace spiritlevel {
namespace {

using cuda::GpuError;
using cuda::GpuErrorKind;

std::string DottedVersion(int64_t version, int64_t major, int64_t minor) {
  return fmt::format("{}.{}", version / major, version % major / minor);
}

// None where the device has no memory or no kernel for it: that shape is left out.
template <typename Make>
auto OrNull(Make make) -> decltype(make()) {
  try {
    return make();
  } catch (const GpuError& error) {
    if (error.kind() != GpuErrorKind::kOutOfMemory && error.kind() != GpuErrorKind::kUnsupported) {
      throw;
    }
    return nullptr;
  }
}

}  // namespace

CudaDevice::CudaDevice(cuda::Layer* layer, CudaDeviceSettings settings)
    : layer_(layer), settings_(std::move(settings)), info_(layer->Describe(settings_.device)) {
  SPIRITLEVEL_CHECK(settings_.partitions >= 1, "a device is in one part at least");
  const cuda::FreeMemory at_first = layer->Memory(settings_.device);
  memory_.context = at_first.total - at_first.free;
  MakeStreams();
  plans_ = std::make_unique<cuda::ProductPlans>(
      layer, settings_.device, cuda::ProductPlanSettings{.workspace = settings_.product_workspace});
  filler_ = std::make_unique<CudaFiller>(layer, settings_.device, stream());
  timer_ = std::make_unique<CudaTimer>(layer, settings_.device, info_.l2);
  for (size_t part = 0; part < streams_.size(); ++part) {
    workspaces_.push_back(
        CudaMemory::OnDevice(layer, settings_.device, settings_.product_workspace));
    shops_.push_back({.layer = layer,
                      .device = settings_.device,
                      .l2 = info_.l2,
                      .plans = plans_.get(),
                      .filler = filler_.get(),
                      .workspace = workspaces_.back().data()});
  }
  MeasureProductsMemory();
  MeasureRounding();
}

CudaDevice::~CudaDevice() = default;

void CudaDevice::MakeStreams() {
  if (settings_.partitions == 1) {
    streams_.push_back(OwnStream(layer_, settings_.device));
  } else {
    for (const cuda::Partition part : layer_->Split(settings_.device, settings_.partitions)) {
      streams_.push_back(OwnStream(layer_, settings_.device, part));
    }
  }
  echo_ = OwnStream(layer_, settings_.device, {}, /*urgent=*/true);
}

Bytes CudaDevice::Free() { return layer_->Memory(settings_.device).free; }

// The library takes its own when it first computes; it is not given back.
void CudaDevice::MeasureProductsMemory() {
  const Bytes before = Free();
  constexpr Gemm kSmall{.m = 256, .n = 256, .k = 256};
  {
    const std::unique_ptr<CudaWorkload> product = PrepareOn(0, Kernel(kSmall));
    timer_->Time(*product, 1);
  }
  memory_.products = settings_.product_workspace + std::max<Bytes>(0, before - Free());
}

// Of allocations that are a byte longer than a round number.
void CudaDevice::MeasureRounding() {
  constexpr int kPieces = 4;
  constexpr Bytes kRound = Bytes{4} << 20;
  const Bytes before = Free();
  std::vector<CudaMemory> pieces;
  for (int i = 0; i < kPieces; ++i) {
    pieces.push_back(CudaMemory::OnDevice(layer_, settings_.device, kRound + 1));
  }
  memory_.rounding = std::max<Bytes>(1, (before - Free()) / kPieces - kRound);
}

MeasuredMachine CudaDevice::machine() const {
  const cuda::Partition whole{};
  MeasuredMachine machine;
  machine.cpu = info_.name;
  machine.cores = layer_->Multiprocessors(settings_.device, whole);
  machine.usable_cores = machine.cores / settings_.partitions;
  machine.caches = {{.level = 2, .type = "Unified", .bytes = info_.l2}};
  return machine;
}

Software CudaDevice::software() const {
  const cuda::LibraryVersions versions = layer_->Versions();
  const std::string nccl = versions.nccl > 0 ? fmt::format(", NCCL {}.{}", versions.nccl / 10'000,
                                                           versions.nccl / 100 % 100)
                                             : "";
  return {
      .blas = fmt::format("cuBLASLt {}{}", DottedVersion(versions.cublas_lt, 10'000, 100), nccl),
      .compiler = fmt::format("CUDA {}, driver for {}", DottedVersion(versions.runtime, 1'000, 10),
                              DottedVersion(versions.driver, 1'000, 10)),
      .instructions = fmt::format("sm_{}{}", info_.major, info_.minor)};
}

std::array<Kernel, kNumKernelClasses> CudaDevice::References() const {
  return settings_.references;
}

std::optional<SensorReading> CudaDevice::Sensors() {
  const cuda::DeviceState state = layer_->State(settings_.device);
  return SensorReading{.clock_mhz = state.sm_clock_mhz,
                       .memory_clock_mhz = state.memory_clock_mhz,
                       .temperature = state.temperature,
                       .throttled = state.throttled};
}

std::unique_ptr<CudaWorkload> CudaDevice::PrepareOn(size_t part, const Work& work) {
  if (std::holds_alternative<EmptyOp>(work)) {
    return MakeEmptyCudaWorkload(shops_[part], streams_[part].get());
  }
  return MakeCudaWorkload(shops_[part], streams_[part].get(), CudaWorkOf(work, info_.l2));
}

std::unique_ptr<Workload> CudaDevice::Prepare(const Work& work) {
  return OrNull([&]() -> std::unique_ptr<Workload> { return PrepareOn(0, work); });
}

std::unique_ptr<Workload> CudaDevice::PrepareFloat8(const Gemm& gemm) {
  return OrNull([&]() -> std::unique_ptr<Workload> {
    return MakeCudaWorkload(shop(), stream(), Float8Work(gemm));
  });
}

Timing CudaDevice::Time(Workload& workload, int repeats) {
  return {.wall = timer_->Time(static_cast<CudaWorkload&>(workload), repeats)};
}

int CudaDevice::WhileOthersRun(const Work& work, const std::function<void()>& body) {
  std::vector<std::unique_ptr<CudaWorkload>> own;
  std::vector<CudaWorkload*> others;
  for (size_t part = 1; part < streams_.size(); ++part) {
    own.push_back(PrepareOn(part, work));
    others.push_back(own.back().get());
  }
  timer_->Beside(others, body);
  return static_cast<int>(others.size());
}

void CudaDevice::WarmUp() {
  const std::unique_ptr<CudaWorkload> workload = PrepareOn(0, settings_.references.front());
  constexpr int kAtOnce = 20;
  for (TimeNs spent = 0; spent < settings_.warm_up;) {
    spent += std::max<TimeNs>(1'000, timer_->Time(*workload, kAtOnce));
  }
}

int CudaDevice::WhileBeside(CudaWorkload* other, const std::function<void()>& body) {
  timer_->Beside({other}, body);
  return 1;
}

CudaGroup& CudaDevice::Group(int size) {
  for (const std::unique_ptr<CudaGroup>& group : groups_) {
    if (group->size() == size) return *group;
  }
  std::vector<int> devices = {settings_.device};
  SPIRITLEVEL_CHECK(size >= 1 && size <= static_cast<int>(settings_.peers.size()) + 1,
                    "a group is of devices that there are");
  devices.insert(devices.end(), settings_.peers.begin(), settings_.peers.begin() + (size - 1));
  const Bytes before = Free();
  groups_.push_back(std::make_unique<CudaGroup>(layer_, timer_.get(), devices, info_.l2));
  // Its buffers are made when it first sends.
  timer_->Time(*groups_.back()->Prepare(TransferKind::kMessage, Bytes{1} << 20), 1);
  const Bytes taken = std::max<Bytes>(0, before - Free());
  memory_.communicator = std::max(memory_.communicator, taken);
  return *groups_.back();
}

std::unique_ptr<Workload> CudaDevice::PrepareRoundTrip(Bytes bytes) {
  return OrNull([&]() -> std::unique_ptr<Workload> {
    if (settings_.peers.empty()) return PrepareCopies(bytes);
    return Group(2).Prepare(TransferKind::kMessage, bytes);
  });
}

// From one rank's memory to another's and back, each copy on the stream of who gets it.
std::unique_ptr<Workload> CudaDevice::PrepareCopies(Bytes bytes) {
  struct Ends {
    CudaBuffers here;
    CudaBuffers there;
    CudaOwned<cuda::Event> sent;
    CudaOwned<cuda::Event> returned;
  };
  const auto ends = std::make_shared<Ends>(Ends{
      .here = CudaBuffers(shop(), bytes),
      .there = CudaBuffers(shop(), bytes),
      .sent = {layer_, layer_->MakeEvent(settings_.device, false)},
      .returned = {layer_, layer_->MakeEvent(settings_.device, false)},
  });
  return MakeCudaWorkload(stream(), 2, [this, ends, bytes] {
    std::byte* const there = ends->there.Next();
    layer_->Record(ends->sent.get(), stream());
    layer_->Wait(echo_.get(), ends->sent.get());
    layer_->Copy(echo_.get(), there, ends->here.Next(), bytes);
    layer_->Record(ends->returned.get(), echo_.get());
    layer_->Wait(stream(), ends->returned.get());
    layer_->Copy(stream(), ends->here.Next(), there, bytes);
  });
}

Bytes CudaBytesFor(const std::vector<Work>& works, const cuda::DeviceInfo& info,
                   const CudaDeviceSettings& settings) {
  Bytes most = 0;
  for (const Work& work : works) {
    if (std::holds_alternative<EmptyOp>(work)) continue;
    most = std::max(most, BytesOf(CudaWorkOf(work, info.l2).operands, info.l2));
  }
  // The same beside it on every other partition; the reference stays while others are measured.
  const Bytes reference =
      BytesOf(CudaWorkOf(settings.references.front(), info.l2).operands, info.l2);
  constexpr Bytes kOwn = Bytes{16} << 20;  // blocks of numbers, and pieces to see the rounding by
  return settings.partitions * (most + settings.product_workspace) + reference + info.l2 + kOwn +
         (Bytes{4} << 20);
}

}  // namespace spiritlevel
