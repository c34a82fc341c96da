#include <fmt/format.h>

#include <vector>

#include "base/utf8.h"
#include "calibrate/profile_fields.h"
#include "calibrate/profile_gpu.h"

namespace spiritlevel {
namespace {

namespace pb = profile_proto;

class GpuReader : private ProfileFields {
 public:
  explicit GpuReader(const ProfileSource& source) : ProfileFields(source) {}

  void Read(const pb::Gpu& in, Calibration* c) const {
    GpuCalibration& measured = c->gpu.emplace();
    GpuProfile& gpu = c->profile.gpu.emplace();
    measured.partitions = in.has_partitions() ? in.partitions() : 1;
    if (measured.partitions < 1) {
      source_.Refuse("gpu.partitions", "is below 1", "leave it out for the whole device");
    }
    for (int i = 0; i < in.transfer_size(); ++i) ReadTransfer(i, in.transfer(i), &measured, &gpu);
    ReadFloat8(in, &measured, &gpu);
    gpu.host_launch_ns = Number("gpu.host_launch", "ns", in.host_launch().ns());
    measured.host_launch = Read("gpu.host_launch.samples", in.host_launch().samples());
    if (in.has_slowdown_beside_transfers()) {
      gpu.slowdown_beside_transfers =
          ReadByClass("gpu.slowdown_beside_transfers", in.slowdown_beside_transfers());
    }
    for (int i = 0; i < in.beside_transfers_size(); ++i) {
      measured.beside_transfers.push_back(
          Read(fmt::format("gpu.beside_transfers[{}]", i), in.beside_transfers(i)));
    }
    const pb::Delay& delay = in.delay_behind_product();
    gpu.delay_behind_product_ns = Number("gpu.delay_behind_product", "ns", delay.ns());
    measured.transfer_alone = Read("gpu.delay_behind_product.alone", delay.alone());
    measured.transfer_behind_product = Read("gpu.delay_behind_product.behind", delay.behind());
    ReadMemory(in.memory(), &gpu.memory);
    measured.left_out.assign(in.left_out().begin(), in.left_out().end());
  }

 private:
  using ProfileFields::Read;

  template <typename Enum>
  Enum Named(const std::string& way, const std::string& name, int count) const {
    std::string all;
    for (int i = 0; i < count; ++i) {
      const std::string_view known = Name(static_cast<Enum>(i));
      if (known == name) return static_cast<Enum>(i);
      all += (i == 0 ? "" : ", ") + std::string(known);
    }
    source_.Refuse(way, fmt::format("there is no \"{}\"", Shown(name)), "there are " + all);
  }

  void ReadTransfer(int i, const pb::Transfer& in, GpuCalibration* measured,
                    GpuProfile* gpu) const {
    const std::string way = fmt::format("gpu.transfer[{}]", i);
    TransferFit fit{.kind = Named<TransferKind>(way + ".kind", in.kind(), kNumTransferKinds),
                    .link = Named<LinkClass>(way + ".link", in.link(), kNumLinkClasses),
                    .ranks = in.has_ranks() ? in.ranks() : 1};
    if (fit.ranks < 1) source_.Refuse(way + ".ranks", "is below 1", "say how many exchange");
    if (FindTransfer(*gpu, fit.kind, fit.link, fit.ranks) != nullptr) {
      source_.Refuse(way, fmt::format("{} is there twice", Name(fit.kind)), "keep one of the two");
    }
    if (in.has_line() == in.has_curve()) {
      source_.Refuse(way, "has not one line or one curve", "give it one of the two");
    }
    if (in.curve().has_pad_m() || in.curve().has_pad_n() || in.curve().has_pad_k()) {
      source_.Refuse(way + ".curve", "has a padding, which is for matrix products",
                     "leave out pad_m, pad_n and pad_k");
    }
    fit.time = in.has_curve() ? SizeFit{.curve = ReadCurve(way + ".curve", in.curve())}
                              : SizeFit{.line = ReadLine(way + ".line", in.line())};
    TransferResult result{.kind = fit.kind, .link = fit.link, .ranks = fit.ranks};
    result.fitted = Read(way + ".fitted", in.fitted());
    result.held_out = Read(way + ".held_out", in.held_out());
    for (int m = 0; m < in.measurement_size(); ++m) {
      result.measurements.push_back(
          Read(fmt::format("{}.measurement[{}]", way, m), in.measurement(m)));
    }
    measured->transfers.push_back(std::move(result));
    gpu->transfers.push_back(std::move(fit));
  }

  // None, or all three in their order.
  void ReadFloat8(const pb::Gpu& in, GpuCalibration* measured, GpuProfile* gpu) const {
    if (in.product_fp8_size() == 0) return;
    if (in.product_fp8_size() != kNumGemmUses) {
      source_.Refuse("gpu.product_fp8", "not all three uses of a product are there", kMeasure);
    }
    for (int i = 0; i < kNumGemmUses; ++i) {
      const pb::Primitive& one = in.product_fp8(i);
      const std::string way = fmt::format("gpu.product_fp8[{}]", i);
      const auto primitive = static_cast<Primitive>(i);
      if (one.name() != InfoOf(primitive).name) {
        source_.Refuse(way + ".name",
                       fmt::format("\"{}\" stands where {} belongs", Shown(one.name()),
                                   InfoOf(primitive).name),
                       "have gemm_forward, gemm_input_grad and gemm_weight_grad, in this order");
      }
      if (!one.has_curve()) source_.Refuse(way + ".curve", "is missing", kMeasure);
      gpu->gemm_fp8.push_back(ReadCurve(way + ".curve", one.curve()));
      gpu->gemm_fp8_padding.push_back(ReadPadding(way + ".curve", one.curve()));
      PrimitiveResult result{.primitive = primitive};
      result.fitted = Read(way + ".fitted", one.fitted());
      result.held_out = Read(way + ".held_out", one.held_out());
      for (int m = 0; m < one.measurement_size(); ++m) {
        result.measurements.push_back(
            Read(primitive, fmt::format("{}.measurement[{}]", way, m), one.measurement(m)));
      }
      measured->products_fp8.push_back(std::move(result));
    }
  }

  void ReadMemory(const pb::GpuMemory& in, GpuMemory* memory) const {
    const auto read = [this](std::string_view field, Bytes bytes) {
      if (bytes >= 0 && bytes <= kMaxBytes) return bytes;
      source_.Refuse(Way("gpu.memory", field), fmt::format("{} is no size of memory", bytes),
                     kMeasure);
    };
    memory->context = read("context", in.context());
    memory->products = read("products", in.products());
    memory->communicator = read("communicator", in.communicator());
    memory->rounding = read("rounding", in.rounding());
  }
};

}  // namespace

void ReadGpu(const ProfileSource& source, const pb::Gpu& in, Calibration* c) {
  GpuReader(source).Read(in, c);
}

}  // namespace spiritlevel
