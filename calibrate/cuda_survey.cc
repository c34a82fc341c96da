#include "calibrate/cuda_survey.h"

#include <fmt/format.h>

#include <algorithm>

namespace spiritlevel {
namespace {

using cuda::GpuError;
using cuda::GpuErrorKind;

constexpr SizeToTake kSizes[] = {
    {1 << 12}, {1 << 16},         {50'176, true}, {1 << 18}, {1 << 20},          {700'416, true},
    {1 << 22}, {6'000'640, true}, {1 << 24},      {1 << 26}, {40'000'512, true}, {Bytes{1} << 28},
};
constexpr int kQuickSizes = 9;

constexpr CudaSurveyPlan::Product kProducts[] = {
    {{512, 1024, 1024}},   {{2048, 4096, 4096}},       {{1536, 4608, 1536}, true},
    {{1024, 2048, 2048}},  {{3072, 3072, 3072}, true}, {{4096, 4096, 4096}},
    {{4096, 14336, 4096}}, {{8192, 8192, 8192}},
};

// Whether a device, or its libraries, may lack it, or an exchange failed: the rest is of use
// without.
bool MayBeLeftOut(GpuErrorKind kind) {
  return kind == GpuErrorKind::kUnsupported || kind == GpuErrorKind::kOutOfMemory ||
         kind == GpuErrorKind::kCommunication || kind == GpuErrorKind::kTimeout;
}

class Survey {
 public:
  Survey(CudaDevice* device, const CudaSurveyPlan& plan, double seconds,
         const std::atomic<bool>* stop, const CalibrationObserver& observer, Calibration* c)
      : device_(*device),
        plan_(plan),
        stop_(stop),
        observer_(observer),
        c_(*c),
        gpu_(c->gpu.emplace()),
        total_(CountAll()),
        budget_(static_cast<TimeNs>(seconds * 1e9) / std::max(1, total_)) {
    gpu_.partitions = device->settings().partitions;
    c->profile.gpu.emplace();
  }

  void Do() {
    Part("what posting costs the host", [&] { MeasurePosting(); });
    Part("copies", [&] { MeasureCopies(); });
    Part("messages", [&] { MeasureMessages(); });
    for (const int size : GroupSizes()) {
      Part(fmt::format("collectives of {} ranks", size), [&] { MeasureCollectives(size); });
    }
    Part("compute beside transfers", [&] { MeasureBeside(); });
    Part("a transfer behind a product", [&] { MeasureBehind(); });
    if (device_.info().has_fp8()) Part("fp8 products", [&] { MeasureFloat8(); });
    c_.profile.gpu->memory = device_.memory();
    FitGpu(&c_);
  }

 private:
  bool Stopped() const { return stop_ != nullptr && stop_->load(); }

  void Part(const std::string& name, const std::function<void()>& measure) {
    if (Stopped()) return;
    try {
      measure();
    } catch (const GpuError& error) {
      if (!MayBeLeftOut(error.kind())) throw;
      gpu_.left_out.push_back(fmt::format("{}: {}", name, error.what()));
    }
  }

  void Tell(const std::string& what) {
    if (observer_) observer_(std::min(done_, total_ - 1), total_, what);
    ++done_;
  }

  int CountAll() const {
    const auto sizes = static_cast<int>(plan_.messages.size());
    const int products =
        device_.info().has_fp8() ? kNumGemmUses * static_cast<int>(plan_.products_fp8.size()) : 0;
    return 1 + 3 * static_cast<int>(plan_.copies.size()) + sizes +
           4 * sizes * static_cast<int>(GroupSizes().size()) + kNumKernelClasses + 1 + products;
  }

  // Two, four, and all there are.
  std::vector<int> GroupSizes() const {
    const int all = static_cast<int>(device_.settings().peers.size()) + 1;
    std::vector<int> sizes;
    for (const int size : {2, 4}) {
      if (size < all) sizes.push_back(size);
    }
    if (all > 1) sizes.push_back(all);
    return sizes;
  }

  StoppingRule Rule() const { return {.budget = std::max<TimeNs>(1'000'000, budget_)}; }

  Samples Time(CudaWorkload& workload) {
    return Measure(
        [&](int repeats) { return Timing{.wall = device_.timer().Time(workload, repeats)}; },
        Rule());
  }

  // The smallest kernel, posted as fast as the host can.
  void MeasurePosting() {
    Tell("posting of kernels");
    const CudaMemory memory = CudaMemory::OnDevice(device_.layer(), device_.settings().device, 512);
    const cuda::Fill fill{.to = cuda::Dense(memory.data(), cuda::ElementType::kFloat32, 1, 1)};
    const std::unique_ptr<CudaWorkload> workload = MakeCudaWorkload(
        device_.stream(), 1, [&] { device_.layer()->Launch(device_.stream(), fill); });
    gpu_.host_launch = Measure(
        [&](int repeats) {
          return Timing{.wall = device_.timer().TimeOfPosting(*workload, repeats)};
        },
        Rule());
    c_.profile.gpu->host_launch_ns = gpu_.host_launch.median_ns;
  }

  // --- Copies

  void MeasureCopies() {
    for (const TransferKind kind : {TransferKind::kHostToDevice, TransferKind::kDeviceToHost,
                                    TransferKind::kDeviceToDevice}) {
      TransferResult result{.kind = kind, .link = LinkClass::kSameDevice, .ranks = 1};
      for (const SizeToTake& size : plan_.copies) {
        if (Stopped()) break;
        Tell(fmt::format("{} {} bytes", Name(kind), size.bytes));
        Keep(kind, size, size.bytes, TimeCopy(kind, size.bytes), &result);
      }
      gpu_.transfers.push_back(std::move(result));
    }
  }

  Samples TimeCopy(TransferKind kind, Bytes bytes) {
    cuda::Layer* const layer = device_.layer();
    CudaBuffers first(device_.shop(), bytes);
    const bool within = kind == TransferKind::kDeviceToDevice;
    std::optional<CudaBuffers> second;
    CudaMemory host;
    if (within) {
      second.emplace(device_.shop(), bytes);
    } else {
      host = CudaMemory::OnHost(layer, bytes);
    }
    const std::unique_ptr<CudaWorkload> workload = MakeCudaWorkload(device_.stream(), 1, [&] {
      std::byte* const here = first.Next();
      std::byte* const there = within ? second->Next() : host.data();
      const bool up = kind != TransferKind::kDeviceToHost;
      layer->Copy(device_.stream(), up ? here : there, up ? there : here, bytes);
    });
    return Time(*workload);
  }

  static void Keep(TransferKind kind, const SizeToTake& size, Bytes moved, Samples samples,
                   TransferResult* result) {
    result->measurements.push_back({.what = fmt::format("{} {} bytes", Name(kind), moved),
                                    .units = static_cast<double>(moved),
                                    .held_out = size.held_out,
                                    .samples = std::move(samples)});
  }

  // --- Exchanges

  // Without a peer: by copies, as two ranks on one device exchange.
  void MeasureMessages() {
    constexpr TransferKind kKind = TransferKind::kMessage;
    const bool alone = device_.settings().peers.empty();
    TransferResult result{.kind = kKind,
                          .link = alone ? LinkClass::kSameDevice : device_.Group(2).link(),
                          .ranks = 2};
    for (const SizeToTake& size : plan_.messages) {
      if (Stopped()) break;
      Tell(fmt::format("message of {} bytes", size.bytes));
      Keep(kKind, size, size.bytes,
           alone ? TimeCopiedMessage(size.bytes) : device_.Group(2).Measure(kKind, size.bytes),
           &result);
    }
    gpu_.transfers.push_back(std::move(result));
  }

  Samples TimeCopiedMessage(Bytes bytes) {
    const std::unique_ptr<Workload> round_trip = device_.PrepareRoundTrip(bytes);
    if (round_trip == nullptr) {
      throw GpuError(GpuErrorKind::kOutOfMemory, fmt::format("a message of {} bytes", bytes),
                     "the device has no memory for it");
    }
    return Measure(
        [&](int repeats) {
          return Timing{.wall = DivideHalfUp(device_.Time(*round_trip, repeats).wall, 2)};
        },
        Rule());
  }

  void MeasureCollectives(int ranks) {
    CudaGroup& group = device_.Group(ranks);
    for (const TransferKind kind : {TransferKind::kAllReduce, TransferKind::kReduceScatter,
                                    TransferKind::kAllGather, TransferKind::kAllToAll}) {
      TransferResult result{.kind = kind, .link = group.link(), .ranks = ranks};
      for (const SizeToTake& size : plan_.messages) {
        if (Stopped()) break;
        const Bytes bytes = group.RoundedUp(kind, size.bytes);
        Tell(fmt::format("{} of {} bytes, {} ranks", Name(kind), bytes, ranks));
        Keep(kind, size, bytes, group.Measure(kind, bytes), &result);
      }
      gpu_.transfers.push_back(std::move(result));
    }
  }

  // --- Compute and communication in each other's way

  // With the nearest peer, or with itself: the same kernels of NCCL pass the same bytes.
  CudaGroup& Talkers() { return device_.Group(device_.settings().peers.empty() ? 1 : 2); }

  void MeasureBeside() {
    const std::unique_ptr<CudaWorkload> messages =
        Talkers().Prepare(TransferKind::kMessage, plan_.beside);
    for (const Kernel& kernel : device_.References()) {
      if (Stopped()) return;
      Tell("beside messages: " + ToString(kernel));
      const std::unique_ptr<Workload> workload = device_.Prepare(kernel);
      if (workload == nullptr) continue;
      Slowdown slowdown{.what = ToString(kernel), .others = 1};
      auto& timed = static_cast<CudaWorkload&>(*workload);
      slowdown.alone_ns = Time(timed).median_ns;
      device_.WhileBeside(messages.get(), [&] { slowdown.busy_ns = Time(timed).median_ns; });
      // None is faster beside others; where one seems so, that is noise.
      c_.profile.gpu->slowdown_beside_transfers[static_cast<size_t>(ClassOf(kernel))] =
          std::max(1.0, slowdown.factor());
      gpu_.beside_transfers.push_back(slowdown);
    }
  }

  void MeasureBehind() {
    Tell("a message behind a product");
    const std::unique_ptr<Workload> product = device_.Prepare(Kernel(plan_.full_chip));
    if (product == nullptr) {
      throw GpuError(GpuErrorKind::kOutOfMemory, ToString(Kernel(plan_.full_chip)),
                     "the device has no memory for it");
    }
    const std::unique_ptr<CudaWorkload> message =
        Talkers().Prepare(TransferKind::kMessage, plan_.behind);
    device_.timer().Time(*message, 1);
    gpu_.transfer_alone = TimeEach([&] { return device_.timer().Time(*message, 1); });
    gpu_.transfer_behind_product = TimeEach(
        [&] { return device_.timer().TimeBehind(static_cast<CudaWorkload&>(*product), *message); });
    const double delay = gpu_.transfer_behind_product.median_ns - gpu_.transfer_alone.median_ns;
    c_.profile.gpu->delay_behind_product_ns = std::max(0.0, delay);
  }

  static Samples TimeEach(const std::function<TimeNs()>& time) {
    constexpr int kSamples = 15;
    Samples samples;
    samples.repeats = 1;
    samples.cold_ns = static_cast<double>(time());
    for (int i = 0; i < kSamples; ++i) samples.ns.push_back(static_cast<double>(time()));
    SumUp(&samples);
    return samples;
  }

  // --- fp8

  void MeasureFloat8() {
    std::vector<PrimitiveResult> results;
    for (int use = 0; use < kNumGemmUses; ++use) {
      PrimitiveResult result{.primitive = static_cast<Primitive>(use)};
      for (const CudaSurveyPlan::Product& planned : plan_.products_fp8) {
        if (Stopped()) return;
        Gemm gemm = planned.gemm;
        gemm.use = static_cast<Gemm::Use>(use);
        const std::string what = "fp8 " + ToString(Kernel(gemm));
        Tell(what);
        const std::unique_ptr<Workload> workload = device_.PrepareFloat8(gemm);
        if (workload == nullptr) continue;
        result.measurements.push_back({.what = what,
                                       .units = Flops(Kernel(gemm)),
                                       .held_out = planned.held_out,
                                       .gemm = gemm,
                                       .samples = Time(static_cast<CudaWorkload&>(*workload))});
      }
      if (result.measurements.empty()) {
        throw GpuError(GpuErrorKind::kUnsupported, std::string(InfoOf(result.primitive).name),
                       "cuBLASLt has no fp8 product for this device");
      }
      results.push_back(std::move(result));
    }
    gpu_.products_fp8 = std::move(results);
  }

  CudaDevice& device_;
  const CudaSurveyPlan& plan_;
  const std::atomic<bool>* stop_;
  const CalibrationObserver& observer_;
  Calibration& c_;
  GpuCalibration& gpu_;
  int total_;
  int done_ = 0;
  TimeNs budget_;
};

}  // namespace

CudaSurveyPlan MakeCudaSurveyPlan(bool quick) {
  CudaSurveyPlan plan;
  const auto sizes = std::begin(kSizes);
  plan.copies.assign(sizes, quick ? sizes + kQuickSizes : std::end(kSizes));
  plan.messages = plan.copies;
  plan.products_fp8.assign(std::begin(kProducts), std::end(kProducts));
  return plan;
}

void SurveyCuda(CudaDevice* device, const CudaSurveyPlan& plan, double seconds,
                const std::atomic<bool>* stop, const CalibrationObserver& observer,
                Calibration* c) {
  Survey(device, plan, seconds, stop, observer, c).Do();
}

}  // namespace spiritlevel
