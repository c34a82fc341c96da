// RawVector: a std::vector whose resize() leaves new elements as they are.
//
// For arrays of megabytes of which every element is written once, by somebody else: zeroing them
// first would double what that costs, most of which is the kernel's handing out of pages.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace spiritlevel {

template <class T>
struct RawAllocator : std::allocator<T> {
  // Such types come to life with the memory they lie in, so construct() may do nothing.
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  template <class U>
  struct rebind {
    using other = RawAllocator<U>;
  };

  template <class U>
  void construct(U*) noexcept {}
  template <class U, class... Arguments>
  void construct(U* at, Arguments&&... arguments) {
    std::construct_at(at, std::forward<Arguments>(arguments)...);
  }
};

template <class T>
using RawVector = std::vector<T, RawAllocator<T>>;

}  // namespace spiritlevel
