#include <string>

#include "calibrate/profile_fill.h"
#include "calibrate/profile_gpu.h"

namespace spiritlevel {
namespace {

namespace pb = profile_proto;
using spiritlevel::Fill;  // beside those here

std::string ContentsOf(TransferKind kind) {
  switch (kind) {
    case TransferKind::kHostToDevice:
    case TransferKind::kDeviceToHost:
      return "a copy between the device and page-locked memory of the host";
    case TransferKind::kDeviceToDevice:
      return "a copy within the device's memory, cold";
    case TransferKind::kMessage:
      return "one way between two ranks, half of a round trip: by NCCL, or on one device by copies "
             "between two streams";
    case TransferKind::kAllReduce:
      return "a sum in bf16; bytes of each rank's tensor";
    case TransferKind::kReduceScatter:
      return "a sum in bf16, of which each rank gets a part; bytes of the whole";
    case TransferKind::kAllGather:
      return "the parts of all ranks; bytes of the whole";
    case TransferKind::kAllToAll:
      return "a part to each rank; bytes of all that one sends";
  }
  return "";
}

void Fill(const SizeFit& fit, pb::Transfer* out) {
  if (fit.is_curve()) {
    Fill(fit.curve, out->mutable_curve());
  } else {
    Fill(fit.line, out->mutable_line());
  }
}

void FillTransfers(const Calibration& c, pb::Gpu* out) {
  for (const TransferFit& fit : c.profile.gpu->transfers) {
    pb::Transfer* const one = out->add_transfer();
    one->set_kind(std::string(Name(fit.kind)));
    one->set_link(std::string(Name(fit.link)));
    one->set_ranks(fit.ranks);
    one->set_contains(ContentsOf(fit.kind));
    Fill(fit.time, one);
    for (const TransferResult& result : c.gpu->transfers) {
      if (result.kind != fit.kind || result.link != fit.link || result.ranks != fit.ranks) continue;
      Fill(result.fitted, one->mutable_fitted());
      Fill(result.held_out, one->mutable_held_out());
      for (const Measurement& m : result.measurements) {
        Fill(m, one->add_measurement());
      }
    }
  }
}

void FillFloat8(const Calibration& c, pb::Gpu* out) {
  const GpuProfile& gpu = *c.profile.gpu;
  for (size_t use = 0; use < gpu.gemm_fp8.size(); ++use) {
    const PrimitiveInfo& info = InfoOf(static_cast<Primitive>(use));
    pb::Primitive* const one = out->add_product_fp8();
    one->set_name(std::string(info.name));
    one->set_unit(std::string(info.unit));
    one->set_contains("of fp8 operands, the second one transposed in memory; fp32 accumulation");
    Fill(gpu.gemm_fp8[use], one->mutable_curve());
    Fill(gpu.gemm_fp8_padding[use], one->mutable_curve());
    if (use >= c.gpu->products_fp8.size()) continue;
    const PrimitiveResult& result = c.gpu->products_fp8[use];
    Fill(result.fitted, one->mutable_fitted());
    Fill(result.held_out, one->mutable_held_out());
    for (const Measurement& m : result.measurements) Fill(m, one->add_measurement());
  }
}

void FillMemory(const GpuMemory& memory, pb::GpuMemory* out) {
  out->set_contains(
      "bytes that were no longer free: before anything was asked for, other processes' included; "
      "of "
      "the library of products with its workspace; of one communicator that has sent something; "
      "and "
      "what an allocation is rounded up to");
  out->set_context(memory.context);
  out->set_products(memory.products);
  out->set_communicator(memory.communicator);
  out->set_rounding(memory.rounding);
}

}  // namespace

void FillGpu(const Calibration& c, pb::Gpu* out) {
  const GpuProfile& gpu = *c.profile.gpu;
  out->set_partitions(c.gpu->partitions);
  FillTransfers(c, out);
  FillFloat8(c, out);
  out->mutable_host_launch()->set_contains("the host's posting of the smallest kernel");
  out->mutable_host_launch()->set_ns(gpu.host_launch_ns);
  Fill(c.gpu->host_launch, out->mutable_host_launch()->mutable_samples());
  out->mutable_slowdown_beside_transfers()->set_contains(
      "how much longer a kernel takes while messages pass beside it");
  Fill(gpu.slowdown_beside_transfers, out->mutable_slowdown_beside_transfers());
  for (const Slowdown& slowdown : c.gpu->beside_transfers) {
    Fill(slowdown, out->add_beside_transfers());
  }
  pb::Delay* const delay = out->mutable_delay_behind_product();
  delay->set_contains(
      "by how much later a message is done that is posted while products hold the whole chip");
  delay->set_ns(gpu.delay_behind_product_ns);
  Fill(c.gpu->transfer_alone, delay->mutable_alone());
  Fill(c.gpu->transfer_behind_product, delay->mutable_behind());
  FillMemory(gpu.memory, out->mutable_memory());
  for (const std::string& what : c.gpu->left_out) out->add_left_out(what);
}

}  // namespace spiritlevel
