// Arena: memory that all ranks of a run see, handed out front to back and given back as a whole.
//
// Among threads ordinary memory; among processes a mapping that they inherit, so that it lies at
// one address in all of them and pointers into it mean the same everywhere.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "base/units.h"

namespace spiritlevel {

class Arena {
 public:
  // Nothing is set aside of `bytes` before it is written.
  Arena(size_t bytes, bool shared) : bytes_(bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_ANONYMOUS | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);
    if (at == MAP_FAILED)
      throw InputError(
          "no memory for what the ranks share, " + FormatBytes(static_cast<Bytes>(bytes)),
          "use ranks that are threads, which share what they have, or raise the limit of memory");
    begin_ = static_cast<std::byte*>(at);
  }
  ~Arena() { ::munmap(begin_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `count` of them, each made of nothing; bytes are zero as they come, and stay untouched. Never
  // destroyed.
  template <class T>
  std::span<T> Array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    used_ = (used_ + kCacheLine - 1) / kCacheLine * kCacheLine;
    SPIRITLEVEL_CHECK(used_ + count * sizeof(T) <= bytes_, "an arena is as large as it was asked");
    T* first = reinterpret_cast<T*>(begin_ + used_);
    if constexpr (!std::is_same_v<T, std::byte>) {
      std::uninitialized_value_construct_n(first, count);
    }
    used_ += count * sizeof(T);
    return {first, count};
  }

 private:
  static constexpr size_t kCacheLine = 64;

  std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
  size_t used_ = 0;
};

}  // namespace spiritlevel
