#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <array>

#include "base/check.h"
#include "calibrate/profile_file.h"
#include "proto/profile.pb.h"

namespace spiritlevel {
namespace {

namespace pb = profile_proto;

void Fill(const Machine& machine, pb::Machine* out) {
  out->set_cpu(machine.cpu);
  out->set_cores(machine.cores);
  out->set_usable_cores(machine.usable_cores);
  for (const Cache& cache : machine.caches) {
    pb::Cache* const one = out->add_cache();
    one->set_level(cache.level);
    one->set_type(cache.type);
    one->set_bytes(cache.bytes);
  }
  if (!machine.governor.empty()) out->set_governor(machine.governor);
}

void Fill(const Software& software, pb::Software* out) {
  out->set_blas(software.blas);
  out->set_compiler(software.compiler);
  out->set_instructions(software.instructions);
}

void Fill(const Validity& validity, pb::Validity* out) {
  out->set_contains(
      "times of one matrix product between the others; their largest over their smallest less 1; "
      "samples and those of them in which the core was somewhere else; for nine in ten shapes the "
      "second quietest visit came within revisit_p90 of the quietest");
  for (const double ns : validity.reference_ns) out->add_reference_ns(ns);
  out->set_drift(validity.drift);
  out->set_samples(validity.samples);
  out->set_disturbed(validity.disturbed);
  out->set_revisit_p90(validity.revisit_p90);
  out->set_noisy(validity.noisy());
}

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

void Fill(const DeviceProfile& profile, const PrimitiveResult& result, pb::Primitive* out) {
  const PrimitiveInfo& info = InfoOf(result.primitive);
  out->set_name(std::string(info.name));
  out->set_unit(std::string(info.unit));
  out->set_contains(std::string(info.contains));
  const SizeFit fit = FitOf(profile, info.primitive);
  if (fit.is_curve()) {
    Fill(fit.curve, out->mutable_curve());
  } else {
    out->mutable_line()->set_base_ns(fit.line.base_ns);
    out->mutable_line()->set_ns_per_unit(fit.line.per_unit_ns);
  }
  if (IsProduct(info.primitive)) {
    const GemmPadding padding = PaddingOf(profile, info.primitive);
    out->mutable_curve()->set_pad_m(padding.m);
    out->mutable_curve()->set_pad_n(padding.n);
    out->mutable_curve()->set_pad_k(padding.k);
  }
  Fill(result.fitted, out->mutable_fitted());
  Fill(result.held_out, out->mutable_held_out());
  for (const Measurement& m : result.measurements) Fill(m, out->add_measurement());
}

void FillLaunch(const Calibration& c, pb::Launch* out) {
  out->set_contains(
      "an op without its kernel: the call, its start and end read from the clock, the flag that "
      "others wait for");
  out->set_ns(c.profile.launch_ns);
  Fill(c.launch, out->mutable_samples());
}

void Fill(const std::array<double, kNumKernelClasses>& slowdown, pb::SlowdownByClass* out) {
  const auto of = [&slowdown](KernelClass c) { return slowdown[static_cast<size_t>(c)]; };
  out->set_contains(
      "how much longer a kernel takes while every other core runs the same; norm, activation, "
      "embedding, loss and optimizer are streaming");
  out->set_product(of(KernelClass::kProduct));
  out->set_attention(of(KernelClass::kAttention));
  out->set_streaming(of(KernelClass::kStreaming));
}

pb::Profile ToMessage(const Calibration& c) {
  pb::Profile out;
  out.set_device(c.profile.name);
  out.set_backend(c.backend);
  out.set_dtype(std::string(Name(c.profile.dtype)));
  out.set_date(c.date);
  out.set_seconds(c.seconds);
  out.set_complete(c.complete);
  out.set_left_out(c.left_out);
  Fill(c.machine, out.mutable_machine());
  Fill(c.software, out.mutable_software());
  Fill(c.validity, out.mutable_validity());
  FillLaunch(c, out.mutable_launch());
  Fill(c.profile.slowdown_all_cores, out.mutable_slowdown_by_class());
  for (const Slowdown& slowdown : c.slowdowns) {
    pb::Slowdown* const one = out.add_slowdown();
    one->set_what(slowdown.what);
    one->set_others(slowdown.others);
    one->set_alone_ns(slowdown.alone_ns);
    one->set_busy_ns(slowdown.busy_ns);
  }
  for (const PrimitiveResult& result : c.primitives) Fill(c.profile, result, out.add_primitive());
  return out;
}

}  // namespace

std::string ProfileText(const Calibration& calibration, ProfileFormat format) {
  const pb::Profile message = ToMessage(calibration);
  std::string text;
  if (format == ProfileFormat::kJson) {
    google::protobuf::util::JsonPrintOptions options;
    options.add_whitespace = true;
    options.preserve_proto_field_names = true;
    const bool ok = google::protobuf::util::MessageToJsonString(message, &text, options).ok();
    SPIRITLEVEL_CHECK(ok, "a profile can be written as JSON");
    return text;
  }
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  SPIRITLEVEL_CHECK(printer.PrintToString(message, &text), "a profile can be written as text");
  return "# A device profile, written by spiritlevel calibrate; docs/calibration.md explains "
         "it.\n" +
         text;
}

}  // namespace spiritlevel
