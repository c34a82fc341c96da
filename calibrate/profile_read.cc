#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/utf8.h"
#include "calibrate/profile_fields.h"
#include "calibrate/profile_file.h"
#include "calibrate/profile_gpu.h"
#include "calibrate/profile_source.h"
#include "proto/profile.pb.h"

namespace spiritlevel {
namespace {

namespace pb = profile_proto;

// A full calibration is some 200 kB; what is much larger takes long to find fault with.
constexpr size_t kMaxFileBytes = size_t{2} << 20;

class Reader : private ProfileFields {
 public:
  explicit Reader(const ProfileSource& source) : ProfileFields(source) {}

  Calibration Read(const pb::Profile& in) {
    Calibration c;
    c.profile.name = in.device();
    c.profile.dtype = Type(in);
    c.backend = in.backend();
    c.date = in.date();
    c.seconds = Number("", "seconds", in.seconds());
    c.complete = !in.has_complete() || in.complete();
    c.left_out = Count("", "left_out", in.left_out());
    c.machine = Read(in.machine());
    c.software = {.blas = in.software().blas(),
                  .compiler = in.software().compiler(),
                  .instructions = in.software().instructions()};
    c.validity = Read(in.validity());
    if (!in.has_launch()) source_.Refuse("launch", "is missing", kMeasure);
    c.launch = Read("launch.samples", in.launch().samples());
    c.profile.launch_ns = Required("launch", "ns", in.launch().has_ns(), in.launch().ns());
    c.profile.slowdown_all_cores = ReadFactors(in);
    ReadSlowdowns(in, &c);
    ReadPrimitives(in, &c);
    if (in.has_gpu()) ReadGpu(source_, in.gpu(), &c);
    return c;
  }

 private:
  using ProfileFields::Read;

  DType Type(const pb::Profile& in) const {
    if (!in.has_dtype()) source_.Refuse("dtype", "is missing", "add it, for example \"float32\"");
    try {
      return ParseDType(Shown(in.dtype()));
    } catch (const InputError& error) {
      source_.Refuse("dtype", error.problem(), error.way_out());
    }
  }

  MeasuredMachine Read(const pb::Machine& in) const {
    MeasuredMachine machine{.cpu = in.cpu(),
                            .cores = Count("machine", "cores", in.cores()),
                            .usable_cores = Count("machine", "usable_cores", in.usable_cores()),
                            .caches = {},
                            .governor = in.governor()};
    for (int i = 0; i < in.cache_size(); ++i) {
      const pb::Cache& cache = in.cache(i);
      const std::string way = fmt::format("machine.cache[{}]", i);
      if (cache.bytes() < 0) {
        source_.Refuse(way + ".bytes", fmt::format("{} is negative", cache.bytes()), kMeasure);
      }
      machine.caches.push_back({.level = Count(way, "level", cache.level()),
                                .type = cache.type(),
                                .bytes = cache.bytes()});
    }
    return machine;
  }

  Validity Read(const pb::Validity& in) const {
    Validity validity;
    for (const double ns : in.reference_ns()) {
      validity.reference_ns.push_back(Number("validity", "reference_ns", ns));
    }
    validity.drift = Number("validity", "drift", in.drift());
    validity.samples = Count("validity", "samples", in.samples());
    validity.disturbed = Count("validity", "disturbed", in.disturbed());
    validity.revisit_p90 = Number("validity", "revisit_p90", in.revisit_p90());
    for (int i = 0; i < in.sensors_size(); ++i) {
      const pb::Sensors& one = in.sensors(i);
      const std::string way = fmt::format("validity.sensors[{}]", i);
      validity.sensors.push_back(
          {.clock_mhz = Count(way, "clock_mhz", one.clock_mhz()),
           .memory_clock_mhz = Count(way, "memory_clock_mhz", one.memory_clock_mhz()),
           .temperature = one.temperature(),
           .throttled = one.throttled()});
    }
    return validity;
  }

  // One that holds for all kernels, or one for each class of them.
  std::array<double, kNumKernelClasses> ReadFactors(const pb::Profile& in) const {
    if (!in.has_slowdown_by_class()) {
      const double all =
          Factor("", "slowdown_all_cores", in.has_slowdown_all_cores(), in.slowdown_all_cores());
      return {all, all, all};
    }
    if (in.has_slowdown_all_cores()) {
      source_.Refuse("slowdown_all_cores", "slowdown_by_class is there too",
                     "keep one of the two: the first is one factor for all kernels");
    }
    return ReadByClass("slowdown_by_class", in.slowdown_by_class());
  }

  void ReadSlowdowns(const pb::Profile& in, Calibration* c) const {
    for (int i = 0; i < in.slowdown_size(); ++i) {
      c->slowdowns.push_back(Read(fmt::format("slowdown[{}]", i), in.slowdown(i)));
    }
  }

  void ReadPrimitives(const pb::Profile& in, Calibration* c) const {
    std::vector<int> place(kNumPrimitives, -1);  // in the file
    for (int i = 0; i < in.primitive_size(); ++i) {
      const std::string way = fmt::format("primitive[{}]", i);
      const PrimitiveInfo* const info = FindPrimitive(in.primitive(i).name());
      if (info == nullptr) RefuseName(way, in.primitive(i).name());
      int& at = place[static_cast<size_t>(info->primitive)];
      if (at >= 0) {
        source_.Refuse(way, fmt::format("{} is there twice", info->name), "keep one of the two");
      }
      at = i;
    }
    for (const PrimitiveInfo& info : Primitives()) {
      const int at = place[static_cast<size_t>(info.primitive)];
      if (at < 0) source_.Refuse("primitive", fmt::format("{} is missing", info.name), kMeasure);
      ReadPrimitive(info.primitive, fmt::format("primitive[{}]", at), in.primitive(at), c);
    }
  }

  [[noreturn]] void RefuseName(const std::string& way, const std::string& name) const {
    std::vector<std::string_view> names;
    for (const PrimitiveInfo& info : Primitives()) names.push_back(info.name);
    source_.Refuse(way + ".name", fmt::format("there is no primitive \"{}\"", Shown(name)),
                   fmt::format("there are {}", fmt::join(names, ", ")));
  }

  void ReadPrimitive(Primitive primitive, const std::string& way, const pb::Primitive& in,
                     Calibration* c) const {
    CheckForm(primitive, way, in);
    SetFit(&c->profile, primitive,
           in.has_curve() ? SizeFit{.curve = ReadCurve(way + ".curve", in.curve())}
                          : SizeFit{.line = ReadLine(way + ".line", in.line())});
    if (IsProduct(primitive)) {
      SetPadding(&c->profile, primitive, ReadPadding(way + ".curve", in.curve()));
    }
    PrimitiveResult result{.primitive = primitive};
    result.fitted = Read(way + ".fitted", in.fitted());
    result.held_out = Read(way + ".held_out", in.held_out());
    for (int i = 0; i < in.measurement_size(); ++i) {
      result.measurements.push_back(
          Read(primitive, fmt::format("{}.measurement[{}]", way, i), in.measurement(i)));
    }
    c->primitives.push_back(std::move(result));
  }

  // One of the two, and one that the primitive may have.
  void CheckForm(Primitive primitive, const std::string& way, const pb::Primitive& in) const {
    const std::string_view name = InfoOf(primitive).name;
    if (in.has_line() && !MayBeLine(primitive)) {
      source_.Refuse(way + ".line", fmt::format("{} has no line", name), "give its curve");
    }
    if (in.has_curve() && !MayBeCurve(primitive)) {
      source_.Refuse(way + ".curve", fmt::format("{} has no curve", name),
                     "give its line: base_ns and ns_per_unit");
    }
    if (in.has_line() && in.has_curve()) {
      source_.Refuse(way + ".curve", fmt::format("{} has a line too", name), "keep one of the two");
    }
    if (in.has_line() || in.has_curve()) {
      if (!IsProduct(primitive) && HasPadding(in.curve())) {
        source_.Refuse(way + ".curve", fmt::format("{} has no padding", name),
                       "leave out pad_m, pad_n and pad_k, which are for matrix products");
      }
      return;
    }
    if (!MayBeLine(primitive)) {
      source_.Refuse(way + ".curve", fmt::format("of {} is missing", name), kMeasure);
    }
    source_.Refuse(way + ".line", fmt::format("of {} is missing", name), kMeasure);
  }

  static bool HasPadding(const pb::Curve& in) {
    return in.has_pad_m() || in.has_pad_n() || in.has_pad_k();
  }
};

}  // namespace

ProfileFormat ProfileFormatOf(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (ending == ".json") return ProfileFormat::kJson;
  if (ending == ".textproto" || ending == ".txtpb" || ending == ".pbtxt") {
    return ProfileFormat::kText;
  }
  throw InputError(
      fmt::format("{}: does not say by its ending which format it is in", Shown(path.string())),
      "name it .textproto (or .txtpb, .pbtxt) for protobuf text format, or .json");
}

Calibration ParseProfile(std::string_view text, ProfileFormat format,
                         std::string_view name_for_errors) {
  const ProfileSource source{.text = text, .format = format, .name = name_for_errors};
  pb::Profile message;
  ReadProfileMessage(source, &message);
  Calibration c = Reader(source).Read(message);
  try {
    CheckProfile(c.profile);
  } catch (const InputError& error) {
    throw error.At(name_for_errors);
  }
  return c;
}

namespace {

std::string ReadProfileFile(const std::filesystem::path& path) {
  try {
    return ReadFile(path, kMaxFileBytes);
  } catch (const InputError& error) {
    throw InputError(error.problem(),
                     "name a profile that `spiritlevel calibrate -o FILE` has written");
  }
}

}  // namespace

Calibration LoadProfile(const std::filesystem::path& path) {
  // A file that is not there is told so, whatever it is called.
  const std::string text = ReadProfileFile(path);
  return ParseProfile(text, ProfileFormatOf(path), path.string());
}

}  // namespace spiritlevel
