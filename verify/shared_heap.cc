#include "verify/shared_heap.h"

#include <limits>
#include <new>

#include "base/check.h"

namespace spiritlevel {

void SharedHeap::Initialise(std::span<std::byte> memory) {
  const size_t size = memory.size() / sizeof(Header) * sizeof(Header);
  begin_ = memory.data();
  end_ = begin_ + size;
  if (size > 0) new (begin_) Header{.size = size, .is_free = true};
}

std::byte* SharedHeap::Allocate(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() - 2 * sizeof(Header)) return nullptr;
  const size_t lines = (bytes + sizeof(Header) - 1) / sizeof(Header);
  const size_t size = (1 + lines) * sizeof(Header);
  for (auto* piece = reinterpret_cast<Header*>(begin_); piece != end(); piece = After(piece)) {
    if (!piece->is_free) continue;
    JoinWithFreeOnes(piece);
    if (piece->size < size) continue;
    if (const size_t rest = piece->size - size; rest > 0) {
      new (reinterpret_cast<std::byte*>(piece) + size) Header{.size = rest, .is_free = true};
      piece->size = size;
    }
    piece->is_free = false;
    return reinterpret_cast<std::byte*>(piece + 1);
  }
  return nullptr;
}

void SharedHeap::Free(std::byte* data) {
  Header* piece = reinterpret_cast<Header*>(data) - 1;
  SPIRITLEVEL_CHECK(!piece->is_free, "a piece is given back once");
  piece->is_free = true;
}

void SharedHeap::JoinWithFreeOnes(Header* piece) {
  for (Header* next = After(piece); next != end() && next->is_free; next = After(piece)) {
    piece->size += next->size;
  }
}

}  // namespace spiritlevel
