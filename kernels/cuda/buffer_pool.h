// BufferPool: a rank's memory on a device, plainly allocated, and handed out again in the order of
// streams.
//
// The host frees a buffer when it has posted the last use, long before the device has done it. It
// may then be handed out for another stream, which first waits for what the old ones had posted:
//
//   {
//     Buffer x = pool.Take(TensorUse::kWorkspace, bytes, compute);   // first used on `compute`
//     layer->Launch(compute, ...x.data()...);
//     layer->Wait(send, ...);
//     layer->Send(..., send, x.data(), ...);
//     x.UsedOn(send);
//   }                                // events are recorded on compute and send
//   Buffer y = pool.Take(use, bytes, copy);     // may be x's memory; `copy` waits for both
//
// Work on other streams than the first is to be ordered behind the first one's by the caller's
// events, as for any memory.
//
// It counts as a MemoryMeter does: the bytes that were asked for, by use, from the host's Take() to
// its end of the buffer, which is the ledger's order of events. What blocks are larger than what
// was asked for, and what is kept for later, is told apart. No more than `capacity` is held; where
// that, or the device, has no more, what is unused is given back first.
//
// One thread at a time, as with a layer's streams. It must outlive its buffers.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cpu/model/memory_meter.h"
#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

using cpu::BytesByUse;
using cpu::kNumTensorUses;
using cpu::TensorUse;

struct BufferPoolSettings {
  Bytes capacity = 0;  // 0: what the device has
  Bytes rounding = 512;
  // How long to wait, where memory is short, for work that still uses a block that was freed.
  int patience_ms = 30'000;
};

class BufferPool;

// Move-only; its end gives the memory back.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const;
  Bytes bytes() const { return bytes_; }
  TensorUse use() const { return use_; }
  bool empty() const { return pool_ == nullptr; }
  View As(ElementType type, int64_t rows, int64_t cols) const;  // dense, and no larger than it is

  // Beside the stream that it was taken for: work on `stream` that was posted, or will be.
  void UsedOn(Stream stream);
  void Retag(TensorUse use);  // it now counts as this
  void Reset();

 private:
  friend class BufferPool;
  struct Block;

  BufferPool* pool_ = nullptr;
  Block* block_ = nullptr;
  Bytes bytes_ = 0;
  TensorUse use_ = TensorUse::kWorkspace;
};

class BufferPool {
 public:
  BufferPool(Layer* layer, int device, BufferPoolSettings settings);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Throws GpuError, kOutOfMemory where there is no more; the message says what is held and why.
  Buffer Take(TensorUse use, Bytes bytes, Stream first);

  // As MemoryMeter's.
  Bytes live() const { return live_; }
  Bytes live(TensorUse use) const { return live_by_use_[Index(use)]; }
  BytesByUse live_by_use() const { return live_by_use_; }
  Bytes peak() const { return peak_; }
  Bytes peak(TensorUse use) const { return peaks_[Index(use)]; }
  BytesByUse live_at_peak() const { return at_peak_; }
  void ResetPeaks();

  Bytes held() const { return held_; }  // of the device, in use and unused
  Bytes peak_held() const { return peak_held_; }
  Bytes unused() const { return held_ - used_blocks_; }
  Bytes rounding() const { return used_blocks_ - live_; }  // of blocks beyond what was asked for
  int64_t allocations() const { return allocations_; }     // that the device was asked for

  // Gives unused blocks back to the device: all that the device is done with.
  void ReturnUnused();

 private:
  friend class Buffer;

  static size_t Index(TensorUse use) { return static_cast<size_t>(use); }
  Bytes SizeOfBlock(Bytes bytes) const;
  Buffer::Block* TakeUnused(Bytes size, Stream first);
  Buffer::Block* NewBlock(Bytes size);
  void* TryAllocate(Bytes size);
  void Return(Buffer* buffer) noexcept;
  void RecordUses(Buffer::Block* block);
  bool IsDone(Buffer::Block* block);
  void ForgetUses(Buffer::Block* block);
  void FreeBlock(Buffer::Block* block);
  bool WaitForOldest();
  void Count(TensorUse use, Bytes change);
  [[noreturn]] void ThrowFull(Bytes size) const;

  Layer* layer_;
  int device_;
  BufferPoolSettings settings_;
  std::map<Buffer::Block*, std::unique_ptr<Buffer::Block>> blocks_;
  std::map<Bytes, std::deque<Buffer::Block*>> unused_;  // by size, first freed first
  std::vector<Event> spare_events_;
  Bytes live_ = 0;
  Bytes peak_ = 0;
  BytesByUse live_by_use_{};
  BytesByUse peaks_{};
  BytesByUse at_peak_{};
  Bytes held_ = 0;
  Bytes peak_held_ = 0;
  Bytes used_blocks_ = 0;
  int64_t allocations_ = 0;
};

}  // namespace spiritlevel::cuda
