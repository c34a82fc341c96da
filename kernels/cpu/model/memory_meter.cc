#include "kernels/cpu/model/memory_meter.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/check.h"

namespace spiritlevel::cpu {
namespace {

constexpr Bytes kAlignment = 64;
constexpr Bytes kPage = 4096;
// From here on blocks are whole pages of the system's, which has them back when they are returned;
// malloc would keep them.
constexpr Bytes kMapped = Bytes{1} << 16;

constexpr Bytes RoundUp(Bytes bytes, Bytes unit) { return (bytes + unit - 1) / unit * unit; }

Bytes BlockSize(Bytes bytes) {
  const Bytes least = std::max(bytes, kAlignment);
  return RoundUp(least, least >= kMapped ? kPage : kAlignment);
}

void* NewBlock(Bytes size) {
  const auto count = static_cast<size_t>(size);
  if (size < kMapped) {
    void* const block = std::aligned_alloc(kAlignment, count);
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  void* const block =
      ::mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();
  return block;
}

void DeleteBlock(void* block, Bytes size) {
  if (size < kMapped) {
    std::free(block);
  } else {
    ::munmap(block, static_cast<size_t>(size));
  }
}

constexpr size_t Index(TensorUse use) { return static_cast<size_t>(use); }

}  // namespace

MemoryMeter::~MemoryMeter() { ReturnBlocksAbove(0); }

Bytes MemoryMeter::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

Bytes MemoryMeter::live(TensorUse use) const {
  const std::lock_guard lock(mutex_);
  return live_by_use_[Index(use)];
}

BytesByUse MemoryMeter::live_by_use() const {
  const std::lock_guard lock(mutex_);
  return live_by_use_;
}

Bytes MemoryMeter::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

Bytes MemoryMeter::peak(TensorUse use) const {
  const std::lock_guard lock(mutex_);
  return peaks_[Index(use)];
}

BytesByUse MemoryMeter::live_at_peak() const {
  const std::lock_guard lock(mutex_);
  return at_peak_;
}

void MemoryMeter::ResetPeaks() {
  const std::lock_guard lock(mutex_);
  peak_ = live_;
  peaks_ = live_by_use_;
  at_peak_ = live_by_use_;
}

Bytes MemoryMeter::held() const {
  const std::lock_guard lock(mutex_);
  return used_blocks_ + spare_blocks_;
}

void* MemoryMeter::Allocate(TensorUse use, Bytes bytes) {
  SPIRITLEVEL_CHECK(bytes >= 0, "a tensor has no negative size");
  const Bytes size = BlockSize(bytes);
  const std::lock_guard lock(mutex_);
  void* block = nullptr;
  const auto spare = spare_.find(size);
  if (spare != spare_.end() && !spare->second.empty()) {
    block = spare->second.back();
    spare->second.pop_back();
    spare_blocks_ -= size;
  }
  used_blocks_ += size;
  most_used_blocks_ = std::max(most_used_blocks_, used_blocks_);
  if (block == nullptr) {
    ReturnBlocksAbove(most_used_blocks_ + most_used_blocks_ / 20 - used_blocks_);
    block = NewBlock(size);
  }
  Count(use, bytes);
  return block;
}

void MemoryMeter::Free(TensorUse use, void* block, Bytes bytes) {
  const Bytes size = BlockSize(bytes);
  const std::lock_guard lock(mutex_);
  spare_[size].push_back(block);
  spare_blocks_ += size;
  used_blocks_ -= size;
  Count(use, -bytes);
}

void MemoryMeter::Retag(TensorUse from, TensorUse to, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  Count(from, -bytes);
  Count(to, bytes);
}

// A retagged tensor leaves before it comes: the total is never too high, only too low, which no
// peak sees.
void MemoryMeter::Count(TensorUse use, Bytes change) {
  live_ += change;
  Bytes& live = live_by_use_[Index(use)];
  live += change;
  peaks_[Index(use)] = std::max(peaks_[Index(use)], live);
  if (live_ > peak_) {
    peak_ = live_;
    at_peak_ = live_by_use_;
  }
}

void MemoryMeter::ReturnBlocksAbove(Bytes most) {
  for (auto& [size, blocks] : spare_) {
    while (spare_blocks_ > most && !blocks.empty()) {
      DeleteBlock(blocks.back(), size);
      blocks.pop_back();
      spare_blocks_ -= size;
    }
  }
}

}  // namespace spiritlevel::cpu
