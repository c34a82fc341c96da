// SharedHeap: pieces of one stretch of memory that all ranks see, for messages between processes.
//
// First fit, neighbours joined when given back. Its lists lie in the stretch itself, so that any
// process can go on where another stopped; whoever calls it holds the board's lock.
#pragma once

#include <cstddef>
#include <span>

namespace spiritlevel {

class SharedHeap {
 public:
  // `memory` begins on a cache line.
  void Initialise(std::span<std::byte> memory);

  std::byte* Allocate(size_t bytes);  // on a cache line; null: no stretch is long enough
  void Free(std::byte* data);

 private:
  // Before each piece, free or not. Sizes hold the header, and are multiples of a cache line.
  struct alignas(64) Header {
    size_t size = 0;
    bool is_free = true;
  };
  Header* After(Header* piece) const {
    return reinterpret_cast<Header*>(reinterpret_cast<std::byte*>(piece) + piece->size);
  }
  Header* end() const { return reinterpret_cast<Header*>(end_); }
  void JoinWithFreeOnes(Header* piece);

  std::byte* begin_ = nullptr;
  std::byte* end_ = nullptr;
};

}  // namespace spiritlevel
