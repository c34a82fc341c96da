#include "kernels/cpu/channel.h"

#include <cstring>

#include "base/check.h"

namespace spiritlevel::cpu {
namespace {

// Some 10 us: longer than the other side takes where it is running, shorter than it takes to be
// put to sleep and woken where it is not.
constexpr int kTurns = 2'000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

bool Channel::WaitWhile(const std::atomic<uint32_t>& counter, uint32_t old) {
  for (int i = 0; i < kTurns && counter.load(std::memory_order_acquire) == old; ++i) Pause();
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
  if (!into.empty()) std::memcpy(into.data(), data_.data(), into.size());
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
