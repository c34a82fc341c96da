#include "calibrate/table_gpu.h"

#include <fmt/format.h>

#include <algorithm>

namespace spiritlevel {
namespace {

double Percent(double share) { return 100 * share; }

std::string Time(double ns) { return FormatTime(static_cast<TimeNs>(ns + 0.5)); }

// What the largest measured size reaches.
std::string Speed(const TransferResult& result) {
  double units = 0;
  double rate = 0;
  for (const Measurement& m : result.measurements) {
    if (m.units <= units || m.samples.quiet_ns <= 0) continue;
    units = m.units;
    rate = m.units / m.samples.quiet_ns;
  }
  return units == 0 ? "-" : fmt::format("{:.4g} GB/s", rate);
}

std::string Smallest(const TransferResult& result) {
  const auto least = std::min_element(
      result.measurements.begin(), result.measurements.end(),
      [](const Measurement& a, const Measurement& b) { return a.units < b.units; });
  return least == result.measurements.end() ? "-" : Time(least->samples.quiet_ns);
}

std::string HeldOut(const Errors& errors) {
  if (errors.count == 0) return "-";
  return fmt::format("{:.1f} / {:.1f} %", Percent(errors.p50), Percent(errors.p90));
}

std::string Label(const TransferResult& result) {
  std::string label(Name(result.kind));
  if (result.ranks > 1) label += fmt::format(", {} ranks", result.ranks);
  if (result.kind == TransferKind::kMessage) label += fmt::format(", {}", Name(result.link));
  return label;
}

std::string Transfers(const GpuCalibration& gpu) {
  if (gpu.transfers.empty()) return "";
  std::string text = fmt::format("{:<32}{:>7}{:>17}{:>12}{:>18}\n", "transfer", "sizes",
                                 "speed when large", "smallest", "held out p50/p90");
  for (const TransferResult& result : gpu.transfers) {
    text +=
        fmt::format("{:<32}{:>7}{:>17}{:>12}{:>18}\n", Label(result), result.measurements.size(),
                    Speed(result), Smallest(result), HeldOut(result.held_out));
  }
  return text;
}

std::string Float8(const Calibration& c) {
  std::string text;
  for (size_t use = 0; use < c.profile.gpu->gemm_fp8.size(); ++use) {
    const RateCurve& curve = c.profile.gpu->gemm_fp8[use];
    text += fmt::format("{:<32}{:>24}\n",
                        fmt::format("{}, fp8", InfoOf(static_cast<Primitive>(use)).name),
                        fmt::format("{:.4g} GFLOP/s", 1 / curve.points.back().ns_per_unit));
  }
  return text;
}

std::string BesideTransfers(const GpuCalibration& gpu) {
  std::string text;
  for (const Slowdown& slowdown : gpu.beside_transfers) {
    text += fmt::format("  {:<56}{:>+7.1f} %\n", slowdown.what, Percent(slowdown.factor() - 1));
  }
  return text.empty() ? text : "While messages pass beside it:\n" + text;
}

std::string Clocks(const Validity& validity) {
  if (validity.sensors.empty()) return "";
  const SensorReading& first = validity.sensors.front();
  const SensorReading& last = validity.sensors.back();
  if (first.clock_mhz == 0) return "clocks and temperature: the system does not say\n";
  return fmt::format("clocks: SMs {} MHz at first and {} at last, memory {} and {}; {} and {} C\n",
                     first.clock_mhz, last.clock_mhz, first.memory_clock_mhz, last.memory_clock_mhz,
                     first.temperature, last.temperature);
}

}  // namespace

std::string GpuTable(const Calibration& c) {
  if (!c.gpu || !c.profile.gpu) return "";
  const GpuProfile& gpu = *c.profile.gpu;
  std::string text = Transfers(*c.gpu) + Float8(c);
  text += fmt::format("posting of a kernel by the host: {}\n", Time(gpu.host_launch_ns));
  if (!c.gpu->transfer_behind_product.ns.empty()) {
    text += fmt::format("a message behind a product that holds the chip: {} later\n",
                        Time(gpu.delay_behind_product_ns));
  }
  text += BesideTransfers(*c.gpu);
  text += fmt::format(
      "memory: context {}, products {}, communicator {}; allocations are rounded up to {}\n",
      FormatBytes(gpu.memory.context), FormatBytes(gpu.memory.products),
      gpu.memory.communicator > 0 ? FormatBytes(gpu.memory.communicator) : "not measured",
      FormatBytes(gpu.memory.rounding));
  if (c.gpu->partitions > 1) {
    text +=
        fmt::format("One of {} equal parts of the device's SMs was measured.\n", c.gpu->partitions);
  }
  return text + Clocks(c.validity);
}

std::string GpuWarnings(const Calibration& c) {
  std::string text;
  if (c.validity.throttled()) {
    text +=
        "warning: the device throttled itself: its times are doubtful\n"
        "    let it cool, or see to its power, and calibrate again\n";
  } else if (c.validity.doubtful_clocks()) {
    text += fmt::format(
        "warning: the SMs' clock changed by {:.1f} %, more than 2 %: the times are doubtful\n"
        "    calibrate again when the device is warm and nobody else uses it\n",
        Percent(c.validity.clock_change()));
  }
  const auto& sensors = c.validity.sensors;
  if (!sensors.empty() && sensors.front().clock_mhz == 0) {
    text += "warning: the clocks cannot be read, so nobody knows whether they held still\n";
  }
  if (!c.gpu) return text;
  for (const std::string& what : c.gpu->left_out) {
    text += fmt::format("warning: not measured: {}\n", what);
  }
  return text;
}

}  // namespace spiritlevel
