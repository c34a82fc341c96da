#include "calibrate/profile_fill.h"

namespace spiritlevel {

namespace pb = profile_proto;

void Fill(const Samples& samples, pb::Samples* out) {
  out->set_cold_ns(samples.cold_ns);
  out->set_repeats(samples.repeats);
  out->set_disturbed(samples.disturbed);
  out->set_median_ns(samples.median_ns);
  out->set_quiet_ns(samples.quiet_ns);
  out->set_spread(samples.spread);
  out->set_interval(samples.interval);
  out->set_steady(samples.steady);
  for (const double ns : samples.ns) out->add_sample_ns(ns);
}

void Fill(const Errors& errors, pb::Errors* out) {
  out->set_count(errors.count);
  out->set_p50(errors.p50);
  out->set_p90(errors.p90);
  out->set_worst(errors.worst);
}

void Fill(const Measurement& m, pb::Measurement* out) {
  out->set_what(m.what);
  out->set_units(m.units);
  if (m.rows != 1) out->set_rows(m.rows);
  out->set_held_out(m.held_out);
  if (m.gemm) {
    out->mutable_shape()->set_m(m.gemm->m);
    out->mutable_shape()->set_n(m.gemm->n);
    out->mutable_shape()->set_k(m.gemm->k);
  }
  out->set_predicted_ns(m.predicted_ns);
  out->set_revisit_ns(m.revisit_ns);
  Fill(m.samples, out->mutable_samples());
}

void Fill(const RateCurve& curve, pb::Curve* out) {
  for (const RateCurve::Point& point : curve.points) {
    pb::Point* const one = out->add_point();
    one->set_units(point.units);
    one->set_ns_per_unit(point.ns_per_unit);
  }
}

void Fill(const GemmPadding& padding, pb::Curve* out) {
  out->set_pad_m(padding.m);
  out->set_pad_n(padding.n);
  out->set_pad_k(padding.k);
}

void Fill(const LinearFit& line, pb::Line* out) {
  out->set_base_ns(line.base_ns);
  out->set_ns_per_unit(line.per_unit_ns);
}

void Fill(const Slowdown& slowdown, pb::Slowdown* out) {
  out->set_what(slowdown.what);
  out->set_others(slowdown.others);
  out->set_alone_ns(slowdown.alone_ns);
  out->set_busy_ns(slowdown.busy_ns);
}

void Fill(const std::array<double, kNumKernelClasses>& slowdown, pb::SlowdownByClass* out) {
  const auto of = [&slowdown](KernelClass c) { return slowdown[static_cast<size_t>(c)]; };
  out->set_product(of(KernelClass::kProduct));
  out->set_attention(of(KernelClass::kAttention));
  out->set_streaming(of(KernelClass::kStreaming));
}

}  // namespace spiritlevel
