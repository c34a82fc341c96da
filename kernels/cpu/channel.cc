#include "kernels/cpu/channel.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.h"

namespace spiritlevel::cpu {
namespace {

// Some 10 us: longer than the other side takes for a small tensor where it is running.
constexpr int kTurns = 2'000;

// Then the core is offered to whoever else wants it, for as long as the copy of a large tensor
// takes: to be woken takes longer and varies more than all the rest of a hand-over. Only then a
// wait sleeps.
constexpr std::chrono::milliseconds kOffered{5};

// A C library copies small pieces in one way and those of about a cache's size in another, at
// another rate. In pieces, every tensor is copied at one rate.
constexpr size_t kPiece = size_t{128} << 10;

void Copy(std::span<const std::byte> from, std::span<std::byte> to) {
  for (size_t at = 0; at < from.size(); at += kPiece) {
    std::memcpy(to.data() + at, from.data() + at, std::min(kPiece, from.size() - at));
  }
}

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

bool Channel::WaitWhile(const std::atomic<uint32_t>& counter, uint32_t old) {
  for (int i = 0; i < kTurns && counter.load(std::memory_order_acquire) == old; ++i) Pause();
  const auto until = std::chrono::steady_clock::now() + kOffered;
  while (counter.load(std::memory_order_acquire) == old &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  while (counter.load(std::memory_order_acquire) == old) {
    counter.wait(old, std::memory_order_acquire);
  }
  return (counter.load(std::memory_order_acquire) & kClosed) == 0;
}

// Counters wrap round at the bit that says closed; only their difference counts.
void Channel::Start(std::span<const std::byte> data) {
  const uint32_t shown = shown_.load(std::memory_order_relaxed);
  if ((shown & kClosed) != 0) return;
  SPIRITLEVEL_CHECK(taken_.load(std::memory_order_relaxed) == shown ||
                        (taken_.load(std::memory_order_relaxed) & kClosed) != 0,
                    "a channel shows one tensor at a time");
  data_ = data;
  // Not a plain store: Close() may come between.
  uint32_t expected = shown;
  shown_.compare_exchange_strong(expected, (shown + kNext) & ~kClosed, std::memory_order_release);
  shown_.notify_one();
}

bool Channel::Finish() {
  const uint32_t shown = shown_.load(std::memory_order_relaxed);
  if ((shown & kClosed) != 0) return false;
  const uint32_t before = (shown - kNext) & ~kClosed;
  return WaitWhile(taken_, before);
}

bool Channel::Receive(std::span<std::byte> into) {
  const uint32_t taken = taken_.load(std::memory_order_relaxed);
  if ((taken & kClosed) != 0 || !WaitWhile(shown_, taken)) return false;
  SPIRITLEVEL_CHECK(data_.size() == into.size(), "both sides agree on the size of a tensor");
  Copy(data_, into);
  uint32_t expected = taken;
  const bool open = taken_.compare_exchange_strong(expected, (taken + kNext) & ~kClosed,
                                                   std::memory_order_release);
  taken_.notify_one();
  return open;
}

void Channel::Close() {
  shown_.fetch_or(kClosed, std::memory_order_release);
  taken_.fetch_or(kClosed, std::memory_order_release);
  shown_.notify_all();
  taken_.notify_all();
}

}  // namespace spiritlevel::cpu
