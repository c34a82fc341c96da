#include "calibrate/table.h"

#include <fmt/format.h>

#include <vector>

#include "calibrate/table_gpu.h"

namespace spiritlevel {
namespace {

double Percent(double share) { return 100 * share; }

// What the largest measured shapes reach: "93.1 GFLOP/s", "24.9 GB/s", "0.96 G/s".
std::string Speed(const DeviceProfile& profile, const PrimitiveResult& result) {
  const PrimitiveInfo& info = InfoOf(result.primitive);
  const SizeFit fit = FitOf(profile, result.primitive);
  const double ns_per_unit =
      fit.is_curve() ? fit.curve.points.back().ns_per_unit : fit.line.per_unit_ns;
  if (ns_per_unit <= 0) return "-";
  const char* const unit = info.unit == "FLOP"             ? "GFLOP/s"
                           : info.unit.starts_with("byte") ? "GB/s"
                                                           : "G/s";
  return fmt::format("{:.4g} {}", 1 / ns_per_unit, unit);
}

std::string Base(const DeviceProfile& profile, Primitive primitive) {
  const SizeFit fit = FitOf(profile, primitive);
  if (fit.is_curve()) return "curve";
  return FormatTime(static_cast<TimeNs>(fit.line.base_ns + 0.5));
}

std::string HeldOut(const Errors& errors) {
  if (errors.count == 0) return "-";
  return fmt::format("{:.1f} / {:.1f} %", Percent(errors.p50), Percent(errors.p90));
}

// Of half of the shapes: one that somebody disturbed says nothing of the primitive. A typed-in
// profile has none.
std::string Spread(const PrimitiveResult& result) {
  if (result.measurements.empty()) return "-";
  std::vector<double> spreads;
  for (const Measurement& m : result.measurements) spreads.push_back(m.samples.spread);
  return fmt::format("{:.1f} %", Percent(Median(spreads)));
}

std::string Slowdowns(const Calibration& c) {
  std::string text;
  for (const Slowdown& slowdown : c.slowdowns) {
    if (slowdown.others == 0) continue;
    text += fmt::format("  {:<44}{:>+7.1f} %\n", slowdown.what, Percent(slowdown.factor() - 1));
  }
  return text.empty() ? text
                      : std::string(c.gpu ? "While all parts of the device run the same kernel:\n"
                                          : "While all cores are busy with the same kernel:\n") +
                            text;
}

}  // namespace

std::string CalibrationTable(const Calibration& c) {
  std::string text = fmt::format("{:<20}{:>7}{:>17}{:>12}{:>10}{:>18}\n", "primitive", "shapes",
                                 "speed when large", "base", "spread", "held out p50/p90");
  for (const PrimitiveResult& result : c.primitives) {
    text +=
        fmt::format("{:<20}{:>7}{:>17}{:>12}{:>10}{:>18}\n", InfoOf(result.primitive).name,
                    result.measurements.size(), Speed(c.profile, result),
                    Base(c.profile, result.primitive), Spread(result), HeldOut(result.held_out));
  }
  const Errors held_out = InTotal(c, /*held_out=*/true);
  text += fmt::format("{:<20}{:>7}{:>17}{:>12}{:>10}{:>18}\n", "in all",
                      InTotal(c, /*held_out=*/false).count + held_out.count, "", "", "",
                      HeldOut(held_out));
  text += fmt::format("{:<20}{:>7}{:>17}{:>12}{:>8.1f} %\n", "launch of an op", "", "",
                      FormatTime(static_cast<TimeNs>(c.profile.launch_ns + 0.5)),
                      Percent(c.launch.spread));
  text += Slowdowns(c);
  text += GpuTable(c);
  if (held_out.count > 0) {
    text += fmt::format(
        "{} shapes that no fit has seen are predicted within {:.1f} % (half of them) and {:.1f} % "
        "(nine in ten).\n",
        held_out.count, Percent(held_out.p50), Percent(held_out.p90));
  }
  return text;
}

std::string CalibrationWarnings(const Calibration& c) {
  std::string text;
  if (!c.complete) {
    text +=
        fmt::format("warning: stopped early; {} planned shapes were not measured\n", c.left_out);
  } else if (c.left_out > 0) {
    text += fmt::format("warning: there was no time for {} planned shapes\n", c.left_out);
  }
  text += GpuWarnings(c);
  if (c.validity.unsteady()) {
    text += fmt::format(
        "warning: the machine was noisy: one kernel timed again and again took up to {:.1f} % "
        "longer, and {} of {} samples were interrupted\n"
        "    end what else runs here and calibrate again\n",
        Percent(c.validity.drift), c.validity.disturbed, c.validity.samples);
  }
  constexpr double kGoodFit = 0.15;
  const Errors held_out = InTotal(c, /*held_out=*/true);
  if (held_out.count > 0 && held_out.p90 > kGoodFit) {
    text += fmt::format(
        "warning: nine in ten unseen shapes are predicted only within {:.1f} %, more than 15 %\n",
        Percent(held_out.p90));
  }
  return text;
}

}  // namespace spiritlevel
