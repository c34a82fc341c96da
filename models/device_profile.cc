#include "models/device_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/check.h"

namespace spiritlevel {
namespace {

const RateCurve& CurveOf(const DeviceProfile& profile, Gemm::Use use) {
  return profile.gemm[static_cast<size_t>(use)];
}

struct NanosecondsOn {
  const DeviceProfile& profile;

  double operator()(const Gemm& g) const {
    return CurveOf(profile, g.use)
        .At(PaddedFlops(g, profile.gemm_padding[static_cast<size_t>(g.use)]));
  }
  double operator()(const Attention& a) const {
    return (a.backward ? profile.attention_backward : profile.attention_forward).At(Flops(a));
  }
  double operator()(const Norm& n) const {
    switch (n.part) {
      case Norm::Part::kForward:
        return OfRows(profile.norm_forward, n);
      case Norm::Part::kInputGrad:
        return OfRows(profile.norm_input_grad, n);
      case Norm::Part::kWeightGrad:
        return OfRows(profile.norm_weight_grad, n);
      case Norm::Part::kBackward:
        break;
    }
    Norm half = n;
    half.part = Norm::Part::kInputGrad;
    const double input_grad = (*this)(half);
    half.part = Norm::Part::kWeightGrad;
    return input_grad + (*this)(half);
  }
  double operator()(const Elementwise& e) const { return profile.elementwise.At(Moved(e)); }
  double operator()(const Embedding& e) const {
    return OfRows(e.backward ? profile.embedding_backward : profile.embedding_forward, e);
  }
  double operator()(const Loss& l) const {
    return (l.backward ? profile.loss_backward : profile.loss_forward).At(Moved(l));
  }

  static double Moved(const Kernel& kernel) { return static_cast<double>(BytesMoved(kernel)); }
  static double OfRows(const SizeFit& row, const Kernel& kernel) {
    const auto rows = static_cast<double>(RowsOf(kernel));
    return rows > 0 ? rows * row.At(Moved(kernel) / rows) : 0;
  }
};

void CheckNumber(double value, std::string_view what, double least = 0) {
  if (std::isfinite(value) && value >= least) return;
  throw InputError(fmt::format("{}: {} is not a number from {}", what, value, least),
                   "measure again, or restore the file");
}

void CheckCurve(const RateCurve& curve, std::string_view what) {
  if (curve.points.empty()) {
    throw InputError(fmt::format("{}: has no points", what), "measure again");
  }
  double before = 0;
  for (const RateCurve::Point& point : curve.points) {
    CheckNumber(point.units, fmt::format("{}.units", what));
    CheckNumber(point.ns_per_unit, fmt::format("{}.ns_per_unit", what));
    if (point.ns_per_unit <= 0 || point.units <= before) {
      throw InputError(fmt::format("{}: sizes do not ascend, or a rate is 0", what),
                       "measure again, or restore the file");
    }
    before = point.units;
  }
}

void CheckLine(const LinearFit& line, std::string_view what) {
  CheckNumber(line.base_ns, fmt::format("{}.base_ns", what));
  CheckNumber(line.per_unit_ns, fmt::format("{}.per_unit_ns", what));
}

void CheckFit(const SizeFit& fit, std::string_view what) {
  if (fit.is_curve()) {
    CheckCurve(fit.curve, what);
  } else {
    CheckLine(fit.line, what);
  }
}

void CheckGpu(const GpuProfile& gpu) {
  for (const TransferFit& transfer : gpu.transfers) {
    CheckFit(transfer.time, fmt::format("gpu.{} by {}", Name(transfer.kind), Name(transfer.link)));
    CheckNumber(transfer.ranks, "gpu.transfers.ranks", 1);
  }
  if (!gpu.gemm_fp8.empty() && (gpu.gemm_fp8.size() != size_t{kNumGemmUses} ||
                                gpu.gemm_fp8_padding.size() != size_t{kNumGemmUses})) {
    throw InputError("gpu.gemm_fp8: not all three uses of a product are there", "measure again");
  }
  for (const RateCurve& curve : gpu.gemm_fp8) CheckCurve(curve, "gpu.gemm_fp8");
  for (const GemmPadding& padding : gpu.gemm_fp8_padding) {
    CheckNumber(padding.m + padding.n + padding.k, "gpu.gemm_fp8_padding");
  }
  CheckNumber(gpu.host_launch_ns, "gpu.host_launch_ns");
  CheckNumber(gpu.delay_behind_product_ns, "gpu.delay_behind_product_ns");
  for (const double factor : gpu.slowdown_beside_transfers) {
    CheckNumber(factor, "gpu.slowdown_beside_transfers", 1);
  }
}

void Slow(double factor, LinearFit* line) {
  line->base_ns *= factor;
  line->per_unit_ns *= factor;
}

void Slow(double factor, RateCurve* curve) {
  for (RateCurve::Point& point : curve->points) point.ns_per_unit *= factor;
}

void Slow(double factor, SizeFit* fit) {
  Slow(factor, &fit->line);
  Slow(factor, &fit->curve);
}

}  // namespace

double PaddedFlops(const Gemm& gemm, const GemmPadding& padding) {
  return 2 * (static_cast<double>(gemm.m) + padding.m) * (static_cast<double>(gemm.n) + padding.n) *
         (static_cast<double>(gemm.k) + padding.k);
}

double RateCurve::At(double units) const {
  if (points.empty() || units <= 0) return 0;
  const auto next = std::find_if(points.begin(), points.end(),
                                 [units](const Point& p) { return p.units >= units; });
  if (next == points.begin()) return units * points.front().ns_per_unit;
  if (next == points.end()) return units * points.back().ns_per_unit;
  const Point& low = *(next - 1);
  const double share = std::log(units / low.units) / std::log(next->units / low.units);
  const double rate =
      std::exp(std::log(low.ns_per_unit) + share * std::log(next->ns_per_unit / low.ns_per_unit));
  return units * rate;
}

void CheckProfile(const DeviceProfile& p) {
  CheckCurve(CurveOf(p, Gemm::Use::kForward), "gemm forward");
  CheckCurve(CurveOf(p, Gemm::Use::kInputGrad), "gemm input grad");
  CheckCurve(CurveOf(p, Gemm::Use::kWeightGrad), "gemm weight grad");
  for (const GemmPadding& padding : p.gemm_padding) {
    CheckNumber(padding.m, "gemm_padding.m");
    CheckNumber(padding.n, "gemm_padding.n");
    CheckNumber(padding.k, "gemm_padding.k");
  }
  CheckFit(p.attention_forward, "attention_forward");
  CheckFit(p.attention_backward, "attention_backward");
  CheckFit(p.norm_forward, "norm_forward");
  CheckFit(p.norm_input_grad, "norm_input_grad");
  CheckFit(p.norm_weight_grad, "norm_weight_grad");
  CheckFit(p.elementwise, "elementwise");
  CheckFit(p.embedding_forward, "embedding_forward");
  CheckFit(p.embedding_backward, "embedding_backward");
  CheckFit(p.loss_forward, "loss_forward");
  CheckFit(p.loss_backward, "loss_backward");
  CheckLine(p.optimizer, "optimizer");
  CheckNumber(p.launch_ns, "launch_ns");
  CheckNumber(p.transfer_latency_ns, "transfer_latency_ns");
  CheckNumber(p.transfer_ns_per_byte, "transfer_ns_per_byte");
  for (int i = 0; i < kNumKernelClasses; ++i) {
    CheckNumber(p.slowdown_all_cores[static_cast<size_t>(i)],
                fmt::format("slowdown_all_cores of {}", Name(static_cast<KernelClass>(i))), 1);
  }
  if (p.gpu) CheckGpu(*p.gpu);
}

std::string_view Name(TransferKind kind) {
  constexpr std::array<std::string_view, kNumTransferKinds> kNames = {
      "host_to_device", "device_to_host", "device_to_device", "message",
      "all_reduce",     "reduce_scatter", "all_gather",       "all_to_all"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view Name(LinkClass link) {
  constexpr std::array<std::string_view, kNumLinkClasses> kNames = {"same_device", "same_node",
                                                                    "other_node"};
  return kNames[static_cast<size_t>(link)];
}

const TransferFit* FindTransfer(const GpuProfile& profile, TransferKind kind, LinkClass link,
                                int ranks) {
  for (const TransferFit& fit : profile.transfers) {
    if (fit.kind == kind && fit.link == link && fit.ranks == ranks) return &fit;
  }
  return nullptr;
}

DeviceProfile WhileAllCoresAreBusy(const DeviceProfile& profile) {
  DeviceProfile busy = profile;
  const auto of = [&profile](KernelClass c) {
    return profile.slowdown_all_cores[static_cast<size_t>(c)];
  };
  for (RateCurve& curve : busy.gemm) Slow(of(KernelClass::kProduct), &curve);
  if (busy.gpu) {
    for (RateCurve& curve : busy.gpu->gemm_fp8) Slow(of(KernelClass::kProduct), &curve);
  }
  for (SizeFit* const fit : {&busy.attention_forward, &busy.attention_backward}) {
    Slow(of(KernelClass::kAttention), fit);
  }
  const double streaming = of(KernelClass::kStreaming);
  for (SizeFit* const fit :
       {&busy.norm_forward, &busy.norm_input_grad, &busy.norm_weight_grad, &busy.embedding_forward,
        &busy.embedding_backward, &busy.elementwise, &busy.loss_forward, &busy.loss_backward}) {
    Slow(streaming, fit);
  }
  Slow(streaming, &busy.optimizer);
  busy.slowdown_all_cores = {1, 1, 1};
  return busy;
}

double NanosecondsOf(const DeviceProfile& profile, const Kernel& kernel) {
  return std::visit(NanosecondsOn{profile}, kernel);
}

TimeNs TimeOf(const DeviceProfile& profile, const Kernel& kernel) {
  constexpr double kMost = 9e18;  // of what an int64 holds
  return static_cast<TimeNs>(std::min(kMost, std::floor(NanosecondsOf(profile, kernel) + 0.5)));
}

}  // namespace spiritlevel
