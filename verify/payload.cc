#include "verify/payload.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace spiritlevel {
namespace {

constexpr std::align_val_t kCacheLine{64};

}  // namespace

Payload Payload::Allocate(size_t bytes) {
  // One of no bytes is a buffer all the same: it is there, and says so.
  auto* data = static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), kCacheLine));
  return Adopt(
      data, bytes, [](void*, std::byte* at, size_t) { ::operator delete(at, kCacheLine); },
      nullptr);
}

Payload Payload::CopyOf(std::span<const std::byte> bytes) {
  Payload copy = Allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

}  // namespace spiritlevel
