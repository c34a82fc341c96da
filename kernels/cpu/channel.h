// Channel: hands tensors from one thread to one other, in order.
//
// A hand-over is a rendezvous and one copy: the sender shows its buffer, the receiver copies it
// into its own (so that the data ends in the receiver's cache), then the sender may use the buffer
// again.
//
//   Channel c;
//   sender:    c.Start(bytes); ... ; c.Finish();     receiver:  c.Receive(buffer);
//
// A wait turns for some microseconds, then gives its core to whoever wants it, for some
// milliseconds, then sleeps, so that more threads than cores make progress. Close() wakes both
// sides for good; each call then returns false and moves nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spiritlevel::cpu {

class Channel {
 public:
  // Shows `data`, which must stay until Finish(). Does not wait.
  void Start(std::span<const std::byte> data);
  // Waits until what was shown has been copied.
  bool Finish();
  bool Send(std::span<const std::byte> data) {
    Start(data);
    return Finish();
  }
  // Waits for the next tensor and copies it; it must have the size of `into`.
  bool Receive(std::span<std::byte> into);

  void Close();

 private:
  // Waits until `counter` is no longer `old`; false when closed.
  static bool WaitWhile(const std::atomic<uint32_t>& counter, uint32_t old);

  static constexpr uint32_t kClosed = uint32_t{1} << 31;
  static constexpr uint32_t kNext = 1;

  // On lines of their own: each is written by one side while the other looks at it.
  alignas(64) std::atomic<uint32_t> shown_{0};
  std::span<const std::byte> data_;
  alignas(64) std::atomic<uint32_t> taken_{0};
};

}  // namespace spiritlevel::cpu
