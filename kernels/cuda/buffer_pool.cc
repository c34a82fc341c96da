#include "kernels/cuda/buffer_pool.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"

namespace spiritlevel::cuda {

struct Buffer::Block {
  struct Use {
    Stream stream{};
    Event event{};  // recorded behind the last use on it; none while the buffer lives
  };
  void* memory = nullptr;
  Bytes size = 0;
  std::vector<Use> uses;
  bool lost = false;  // its uses could not be recorded: nobody knows when they are over
};

// --- Buffer

Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      block_(std::exchange(other.block_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      use_(other.use_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  pool_ = std::exchange(other.pool_, nullptr);
  block_ = std::exchange(other.block_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  use_ = other.use_;
  return *this;
}

Buffer::~Buffer() { Reset(); }

void Buffer::Reset() {
  if (pool_ != nullptr) pool_->Return(this);
  pool_ = nullptr;
  block_ = nullptr;
  bytes_ = 0;
}

void* Buffer::data() const { return block_ == nullptr ? nullptr : block_->memory; }

View Buffer::As(ElementType type, int64_t rows, int64_t cols) const {
  SPIRITLEVEL_CHECK(rows * cols * SizeOf(type) <= bytes_, "a view is no larger than its buffer");
  return Dense(data(), type, rows, cols);
}

void Buffer::UsedOn(Stream stream) {
  SPIRITLEVEL_CHECK(block_ != nullptr, "only a buffer that there is can be used");
  const auto same = [&](const Block::Use& use) { return use.stream == stream; };
  if (std::none_of(block_->uses.begin(), block_->uses.end(), same)) {
    block_->uses.push_back({stream, Event{}});
  }
}

void Buffer::Retag(TensorUse use) {
  SPIRITLEVEL_CHECK(pool_ != nullptr, "only a buffer that there is counts as something");
  // It leaves before it comes: the total is never too high.
  pool_->Count(use_, -bytes_);
  pool_->Count(use, bytes_);
  use_ = use;
}

// --- BufferPool

BufferPool::BufferPool(Layer* layer, int device, BufferPoolSettings settings)
    : layer_(layer), device_(device), settings_(settings) {
  SPIRITLEVEL_CHECK(settings.rounding > 0 && settings.capacity >= 0, "a block has a size");
}

// What work still uses when the patience is over, or on a device that is lost, is left to the end
// of the process: to free it under that work would be worse.
BufferPool::~BufferPool() {
  try {
    ReturnUnused();
    while (WaitForOldest()) {
    }
  } catch (const GpuError&) {
  }
  for (const Event event : spare_events_) layer_->Destroy(event);
}

Bytes BufferPool::SizeOfBlock(Bytes bytes) const {
  const Bytes units = (std::max<Bytes>(bytes, 1) + settings_.rounding - 1) / settings_.rounding;
  return units * settings_.rounding;
}

Buffer BufferPool::Take(TensorUse use, Bytes bytes, Stream first) {
  SPIRITLEVEL_CHECK(bytes >= 0, "a buffer has no negative size");
  const Bytes size = SizeOfBlock(bytes);
  Buffer::Block* block = TakeUnused(size, first);
  if (block == nullptr) block = NewBlock(size);
  block->uses.push_back({first, Event{}});
  used_blocks_ += size;
  Count(use, bytes);
  Buffer buffer;
  buffer.pool_ = this;
  buffer.block_ = block;
  buffer.bytes_ = bytes;
  buffer.use_ = use;
  return buffer;
}

// One that was used on the same stream alone if there is, which needs no wait; otherwise the one
// that was freed first, which is most likely done. Not by what is done already: then the choice,
// and with it what waits for what, would depend on how quick the device is.
Buffer::Block* BufferPool::TakeUnused(Bytes size, Stream first) {
  const auto found = unused_.find(size);
  if (found == unused_.end() || found->second.empty()) return nullptr;
  std::deque<Buffer::Block*>& blocks = found->second;
  auto chosen = std::find_if(blocks.begin(), blocks.end(), [&](const Buffer::Block* block) {
    return block->uses.size() == 1 && block->uses.front().stream == first;
  });
  if (chosen == blocks.end()) chosen = blocks.begin();
  Buffer::Block* const block = *chosen;
  for (const Buffer::Block::Use& use : block->uses) {
    if (use.stream != first) layer_->Wait(first, use.event);
  }
  blocks.erase(chosen);
  ForgetUses(block);
  return block;
}

void BufferPool::ForgetUses(Buffer::Block* block) {
  // A wait is for the record before it, so that an event can be recorded anew at once.
  for (const Buffer::Block::Use& use : block->uses) {
    if (use.event != Event{}) spare_events_.push_back(use.event);
  }
  block->uses.clear();
}

void* BufferPool::TryAllocate(Bytes size) {
  if (settings_.capacity > 0 && held_ + size > settings_.capacity) return nullptr;
  try {
    return layer_->Allocate(device_, size);
  } catch (const GpuError& e) {
    if (e.kind() != GpuErrorKind::kOutOfMemory) throw;
    return nullptr;
  }
}

Buffer::Block* BufferPool::NewBlock(Bytes size) {
  void* memory = TryAllocate(size);
  if (memory == nullptr) {
    ReturnUnused();
    memory = TryAllocate(size);
  }
  while (memory == nullptr && WaitForOldest()) memory = TryAllocate(size);
  if (memory == nullptr) ThrowFull(size);
  ++allocations_;
  held_ += size;
  peak_held_ = std::max(peak_held_, held_);
  auto block = std::make_unique<Buffer::Block>();
  block->memory = memory;
  block->size = size;
  Buffer::Block* const address = block.get();
  blocks_[address] = std::move(block);
  return address;
}

void BufferPool::ThrowFull(Bytes size) const {
  std::string why = FormatBytes(used_blocks_) + " are in use";
  if (unused() > 0) why += ", " + FormatBytes(unused()) + " wait for work that uses them";
  if (settings_.capacity > 0) why += "; this rank may have " + FormatBytes(settings_.capacity);
  throw GpuError(GpuErrorKind::kOutOfMemory,
                 "a buffer of " + FormatBytes(size) + " on device " + std::to_string(device_), why);
}

bool BufferPool::IsDone(Buffer::Block* block) {
  if (block->lost) return false;
  return std::all_of(block->uses.begin(), block->uses.end(),
                     [&](const Buffer::Block::Use& use) { return layer_->IsDone(use.event); });
}

void BufferPool::FreeBlock(Buffer::Block* block) {
  ForgetUses(block);
  layer_->Free(device_, block->memory);
  held_ -= block->size;
  blocks_.erase(block);
}

void BufferPool::ReturnUnused() {
  for (auto& [size, blocks] : unused_) {
    std::deque<Buffer::Block*> kept;
    for (Buffer::Block* block : blocks) {
      if (IsDone(block)) {
        FreeBlock(block);
      } else {
        kept.push_back(block);
      }
    }
    blocks = std::move(kept);
  }
}

// True if some block has been given back, perhaps after a while.
bool BufferPool::WaitForOldest() {
  const Bytes before = held_;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(settings_.patience_ms);
  const auto is_kept = [](const auto& of_a_size) { return !of_a_size.second.empty(); };
  // Lost blocks are unused too, and never come back.
  while (std::any_of(unused_.begin(), unused_.end(), is_kept)) {
    ReturnUnused();
    if (held_ < before) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::yield();
  }
  return false;
}

void BufferPool::RecordUses(Buffer::Block* block) {
  for (Buffer::Block::Use& use : block->uses) {
    Event event{};
    if (spare_events_.empty()) {
      event = layer_->MakeEvent(device_, /*timed=*/false);
    } else {
      event = spare_events_.back();
      spare_events_.pop_back();
    }
    use.event = event;
    layer_->Record(event, use.stream);
  }
}

// Where its uses cannot be recorded, as on a device that is lost, it is never handed out again; the
// next call that can throw tells why.
void BufferPool::Return(Buffer* buffer) noexcept {
  Buffer::Block* const block = buffer->block_;
  used_blocks_ -= block->size;
  Count(buffer->use_, -buffer->bytes_);
  try {
    RecordUses(block);
  } catch (const GpuError&) {
    block->lost = true;
    return;
  }
  unused_[block->size].push_back(block);
}

void BufferPool::ResetPeaks() {
  peak_ = live_;
  peaks_ = live_by_use_;
  at_peak_ = live_by_use_;
}

void BufferPool::Count(TensorUse use, Bytes change) {
  live_ += change;
  Bytes& live = live_by_use_[Index(use)];
  live += change;
  peaks_[Index(use)] = std::max(peaks_[Index(use)], live);
  if (live_ <= peak_) return;
  peak_ = live_;
  at_peak_ = live_by_use_;
}

}  // namespace spiritlevel::cuda
