// MemoryMeter: where a rank's tensors come from, and how many bytes of them are live, by use.
//
// Counts what tensors hold, not what the system gave: a freed block is kept for the next tensor of
// its size, so that passes do not wait for fresh pages; no more is kept than would bring the rank a
// twentieth above its own peak.
//
//   MemoryMeter meter;
//   Tensor t(&meter, TensorUse::kWaitingForB, DType::kFloat32, 128, 512);
//   meter.live();                          // 262144
//   meter.live(TensorUse::kWaitingForB);   // 262144
//
// All functions may be called from several threads. It must outlive its tensors.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/units.h"

namespace spiritlevel::cpu {

// The first categories of a memory ledger, in its order.
enum class TensorUse : uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kWaitingForB,
  kWaitingForW,
  kCommunication,
  kWorkspace,
};
inline constexpr int kNumTensorUses = 7;

using BytesByUse = std::array<Bytes, kNumTensorUses>;

class MemoryMeter {
 public:
  MemoryMeter() = default;
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  Bytes live() const;
  Bytes live(TensorUse use) const;
  BytesByUse live_by_use() const;

  // Since the start, or the last ResetPeaks(), which begins again from what is live.
  Bytes peak() const;
  Bytes peak(TensorUse use) const;  // each at its own instant
  BytesByUse live_at_peak() const;  // at the first instant at which the total was peak()
  void ResetPeaks();

  // For Tensor. Blocks begin at multiples of 64 bytes, so that no result depends on where they lie.
  void* Allocate(TensorUse use, Bytes bytes);
  void Free(TensorUse use, void* block, Bytes bytes);
  void Retag(TensorUse from, TensorUse to, Bytes bytes);

  // Live, and kept for reuse: what the process has on this rank's account.
  Bytes held() const;

 private:
  void Count(TensorUse use, Bytes change);
  void ReturnBlocksAbove(Bytes most);

  mutable std::mutex mutex_;
  Bytes live_ = 0;
  Bytes peak_ = 0;
  BytesByUse live_by_use_{};
  BytesByUse peaks_{};
  BytesByUse at_peak_{};
  // Of the blocks, which are a little larger than their tensors.
  Bytes used_blocks_ = 0;
  Bytes spare_blocks_ = 0;
  Bytes most_used_blocks_ = 0;
  std::unordered_map<Bytes, std::vector<void*>> spare_;  // by size
};

}  // namespace spiritlevel::cpu
