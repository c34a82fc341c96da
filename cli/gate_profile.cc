#include "cli/gate_profile.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>

namespace spiritlevel {
namespace {

// FNV-1a, 64 bits. It need not withstand anybody: who wants another baseline writes one.
class Digest {
 public:
  void Add(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash_ = (hash_ ^ ((value >> (8 * byte)) & 0xff)) * 0x100000001b3;
    }
  }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value + 0.0)); }  // -0 is 0
  void Add(const LinearFit& fit) {
    const auto& [base, per_unit] = fit;
    Add(base);
    Add(per_unit);
  }
  void Add(const RateCurve& curve) {
    Add(uint64_t{curve.points.size()});
    for (const auto& [units, rate] : curve.points) {
      Add(units);
      Add(rate);
    }
  }
  void Add(const SizeFit& fit) {
    const auto& [line, curve] = fit;
    Add(line);
    Add(curve);
  }
  void Add(const GemmPadding& padding) {
    const auto& [m, n, k] = padding;
    Add(m);
    Add(n);
    Add(k);
  }

  std::string ToString() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

// As below, by position.
void AddGpu(const GpuProfile& profile, Digest* digest) {
  const auto& [transfers, fp8, fp8_padding, host_launch, slowdown, delay, memory] = profile;
  for (const TransferFit& transfer : transfers) {
    digest->Add(static_cast<uint64_t>(transfer.kind));
    digest->Add(static_cast<uint64_t>(transfer.link));
    digest->Add(static_cast<uint64_t>(transfer.ranks));
    digest->Add(transfer.time);
  }
  for (const RateCurve& curve : fp8) digest->Add(curve);
  for (const GemmPadding& padding : fp8_padding) digest->Add(padding);
  for (const double number : {host_launch, delay}) digest->Add(number);
  for (const double factor : slowdown) digest->Add(factor);
  for (const Bytes bytes :
       {memory.context, memory.products, memory.communicator, memory.rounding}) {
    digest->Add(static_cast<uint64_t>(bytes));
  }
}

}  // namespace

std::string ProfileDigest(const DeviceProfile& profile) {
  // All fields by position: one that is added later does not compile until it is counted in.
  const auto& [name, dtype, gemm, gemm_padding, attention_forward, attention_backward, norm_forward,
               norm_input_grad, norm_weight_grad, embedding_forward, embedding_backward,
               elementwise, loss_forward, loss_backward, optimizer, launch, latency, per_byte,
               slowdown, gpu] = profile;
  static_cast<void>(name);
  Digest digest;
  digest.Add(static_cast<uint64_t>(dtype));
  for (const RateCurve& curve : gemm) digest.Add(curve);
  for (const GemmPadding& padding : gemm_padding) digest.Add(padding);
  for (const SizeFit* fit :
       {&attention_forward, &attention_backward, &norm_forward, &norm_input_grad, &norm_weight_grad,
        &embedding_forward, &embedding_backward, &elementwise, &loss_forward, &loss_backward}) {
    digest.Add(*fit);
  }
  digest.Add(optimizer);
  for (const double number : {launch, latency, per_byte}) digest.Add(number);
  for (const double factor : slowdown) digest.Add(factor);
  if (gpu) AddGpu(*gpu, &digest);
  return digest.ToString();
}

}  // namespace spiritlevel
