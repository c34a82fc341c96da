// Payload: a buffer with exactly one owner, which is what ranks hand to each other.
//
// Between threads of one process the buffer itself changes hands; between processes its bytes are
// copied. Either way whoever holds it is its last reader, and gives it back by destroying it: no
// buffer is ever used again while somebody may still read it.
//
//   Payload p = Payload::Allocate(bytes);
//   std::memcpy(p.data(), ...);
//   return p;  // the runtime owns it now
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace spiritlevel {

class Payload {
 public:
  using Free = void (*)(void* context, std::byte* data, size_t bytes);

  // What a payload is made of. It owns nothing: whoever takes one apart puts it together again.
  struct Raw {
    std::byte* data = nullptr;
    size_t bytes = 0;
    Free free = nullptr;
    void* context = nullptr;
  };

  Payload() = default;
  // Not initialised; begins on a cache line.
  static Payload Allocate(size_t bytes);
  static Payload CopyOf(std::span<const std::byte> bytes);
  // Somebody else's memory, of a tensor or a device, which `free` gives back.
  static Payload Adopt(std::byte* data, size_t bytes, Free free, void* context) {
    return Payload({data, bytes, free, context});
  }

  Payload(Payload&& other) noexcept : raw_(std::exchange(other.raw_, {})) {}
  Payload& operator=(Payload&& other) noexcept {
    if (this != &other) {
      Reset();
      raw_ = std::exchange(other.raw_, {});
    }
    return *this;
  }
  ~Payload() { Reset(); }

  bool has_buffer() const { return raw_.data != nullptr; }
  std::byte* data() { return raw_.data; }
  size_t size() const { return raw_.bytes; }
  std::span<std::byte> bytes() { return {raw_.data, raw_.bytes}; }
  std::span<const std::byte> bytes() const { return {raw_.data, raw_.bytes}; }

  void Reset() {
    const Raw raw = std::exchange(raw_, {});
    if (raw.free != nullptr) raw.free(raw.context, raw.data, raw.bytes);
  }

  Raw TakeApart() && { return std::exchange(raw_, {}); }
  static Payload PutTogether(const Raw& raw) { return Payload(raw); }

 private:
  explicit Payload(const Raw& raw) : raw_(raw) {}

  Raw raw_;
};

}  // namespace spiritlevel
