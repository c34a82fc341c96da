#include "calibrate/profile_fields.h"

#include <fmt/format.h>

#include <cmath>

namespace spiritlevel {

namespace pb = profile_proto;

namespace {

// Neither a kernel nor a rate of ours is above this; sums of them stay far from overflow.
constexpr double kMost = 1e15;

}  // namespace

std::string ProfileFields::Way(std::string_view parent, std::string_view field) {
  return parent.empty() ? std::string(field) : fmt::format("{}.{}", parent, field);
}

double ProfileFields::Number(std::string_view parent, std::string_view field, double value) const {
  if (std::isfinite(value) && value >= 0 && value <= kMost) return value;
  source_.Refuse(Way(parent, field), fmt::format("{} is no number from 0 to 1e15", value),
                 kMeasure);
}

int ProfileFields::Count(std::string_view parent, std::string_view field, int value) const {
  if (value >= 0) return value;
  source_.Refuse(Way(parent, field), fmt::format("{} is negative", value), kMeasure);
}

double ProfileFields::Required(std::string_view parent, std::string_view field, bool there,
                               double value) const {
  if (!there) source_.Refuse(Way(parent, field), "is missing", kMeasure);
  return Number(parent, field, value);
}

double ProfileFields::Factor(std::string_view parent, std::string_view field, bool there,
                             double value) const {
  if (Required(parent, field, there, value) >= 1) return value;
  source_.Refuse(Way(parent, field), "is below 1",
                 "kernels do not become faster beside others; use 1 or more");
}

std::array<double, kNumKernelClasses> ProfileFields::ReadByClass(
    std::string_view way, const pb::SlowdownByClass& in) const {
  return {Factor(way, "product", in.has_product(), in.product()),
          Factor(way, "attention", in.has_attention(), in.attention()),
          Factor(way, "streaming", in.has_streaming(), in.streaming())};
}

Samples ProfileFields::Read(const std::string& way, const pb::Samples& in) const {
  Samples samples;
  samples.cold_ns = Number(way, "cold_ns", in.cold_ns());
  samples.repeats = Count(way, "repeats", in.repeats());
  samples.disturbed = Count(way, "disturbed", in.disturbed());
  samples.median_ns = Number(way, "median_ns", in.median_ns());
  samples.quiet_ns = Number(way, "quiet_ns", in.quiet_ns());
  samples.spread = Number(way, "spread", in.spread());
  samples.interval = Number(way, "interval", in.interval());
  samples.steady = in.steady();
  for (const double ns : in.sample_ns()) samples.ns.push_back(Number(way, "sample_ns", ns));
  return samples;
}

Errors ProfileFields::Read(const std::string& way, const pb::Errors& in) const {
  return {.count = Count(way, "count", in.count()),
          .p50 = Number(way, "p50", in.p50()),
          .p90 = Number(way, "p90", in.p90()),
          .worst = Number(way, "worst", in.worst())};
}

Slowdown ProfileFields::Read(const std::string& way, const pb::Slowdown& in) const {
  return {.what = in.what(),
          .others = Count(way, "others", in.others()),
          .alone_ns = Number(way, "alone_ns", in.alone_ns()),
          .busy_ns = Number(way, "busy_ns", in.busy_ns())};
}

LinearFit ProfileFields::ReadLine(const std::string& line, const pb::Line& in) const {
  return {.base_ns = Required(line, "base_ns", in.has_base_ns(), in.base_ns()),
          .per_unit_ns = Required(line, "ns_per_unit", in.has_ns_per_unit(), in.ns_per_unit())};
}

GemmPadding ProfileFields::ReadPadding(const std::string& curve, const pb::Curve& in) const {
  return {.m = Number(curve, "pad_m", in.pad_m()),
          .n = Number(curve, "pad_n", in.pad_n()),
          .k = Number(curve, "pad_k", in.pad_k())};
}

RateCurve ProfileFields::ReadCurve(const std::string& curve, const pb::Curve& in) const {
  if (in.point_size() == 0) source_.Refuse(curve, "has no points", kMeasure);
  RateCurve read;
  for (int i = 0; i < in.point_size(); ++i) {
    const std::string point = fmt::format("{}.point[{}]", curve, i);
    const double units = Number(point, "units", in.point(i).units());
    const double rate = Number(point, "ns_per_unit", in.point(i).ns_per_unit());
    if (rate <= 0) source_.Refuse(point + ".ns_per_unit", "is not above 0", kMeasure);
    if (units <= (read.points.empty() ? 0 : read.points.back().units)) {
      source_.Refuse(point + ".units", "does not ascend", "sort the points by their size");
    }
    read.points.push_back({.units = units, .ns_per_unit = rate});
  }
  return read;
}

Measurement ProfileFields::Read(const std::string& way, const pb::Measurement& in) const {
  Measurement m{.what = in.what(),
                .units = Number(way, "units", in.units()),
                .rows = in.has_rows() ? in.rows() : 1,
                .held_out = in.held_out()};
  if (m.rows < 1) source_.Refuse(way + ".rows", "is below 1", "leave it out for one row");
  m.predicted_ns = Number(way, "predicted_ns", in.predicted_ns());
  m.revisit_ns = Number(way, "revisit_ns", in.revisit_ns());
  m.samples = Read(way + ".samples", in.samples());
  return m;
}

Measurement ProfileFields::Read(Primitive primitive, const std::string& way,
                                const pb::Measurement& in) const {
  Measurement m = Read(way, in);
  if (IsProduct(primitive) && in.has_shape()) {
    const pb::Shape& shape = in.shape();
    if (shape.m() < 0 || shape.n() < 0 || shape.k() < 0) {
      source_.Refuse(way + ".shape", "has a negative side", kMeasure);
    }
    m.gemm = Gemm{.m = in.shape().m(),
                  .n = in.shape().n(),
                  .k = in.shape().k(),
                  .use = static_cast<Gemm::Use>(primitive)};
  }
  return m;
}

}  // namespace spiritlevel
