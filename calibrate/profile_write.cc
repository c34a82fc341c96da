#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include "base/check.h"
#include "calibrate/profile_file.h"
#include "calibrate/profile_fill.h"
#include "calibrate/profile_gpu.h"
#include "proto/profile.pb.h"

namespace spiritlevel {
namespace {

namespace pb = profile_proto;
using spiritlevel::Fill;  // beside those here

void Fill(const MeasuredMachine& machine, pb::Machine* out) {
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
  for (const SensorReading& reading : validity.sensors) {
    pb::Sensors* const one = out->add_sensors();
    one->set_clock_mhz(reading.clock_mhz);
    one->set_memory_clock_mhz(reading.memory_clock_mhz);
    one->set_temperature(reading.temperature);
    one->set_throttled(reading.throttled);
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
    Fill(fit.line, out->mutable_line());
  }
  if (IsProduct(info.primitive)) {
    Fill(PaddingOf(profile, info.primitive), out->mutable_curve());
  }
  Fill(result.fitted, out->mutable_fitted());
  Fill(result.held_out, out->mutable_held_out());
  for (const Measurement& m : result.measurements) Fill(m, out->add_measurement());
}

void FillLaunch(const Calibration& c, pb::Launch* out) {
  out->set_contains(c.gpu ? "the smallest kernel, an event recorded behind it and a wait for that: "
                            "the device's time, with the host ahead"
                          : "an op without its kernel: the call, its start and end read from the "
                            "clock, the flag that others wait for");
  out->set_ns(c.profile.launch_ns);
  Fill(c.launch, out->mutable_samples());
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
  out.mutable_slowdown_by_class()->set_contains(
      c.gpu
          ? "how much longer a kernel takes while every other part of the device runs the same; 1 "
            "for a rank that has the whole of it"
          : "how much longer a kernel takes while every other core runs the same; norm, "
            "activation, embedding, loss and optimizer are streaming");
  Fill(c.profile.slowdown_all_cores, out.mutable_slowdown_by_class());
  for (const Slowdown& slowdown : c.slowdowns) Fill(slowdown, out.add_slowdown());
  for (const PrimitiveResult& result : c.primitives) Fill(c.profile, result, out.add_primitive());
  if (c.gpu) FillGpu(c, out.mutable_gpu());
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
