// Variable-length integers, as Protobuf writes them: seven bits a byte, the lowest first.
#pragma once

#include <cstdint>
#include <string>

namespace spiritlevel {

inline void AppendVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

// Signed, so that small negative values are short too: 0, -1, 1, -2 become 0, 1, 2, 3.
inline void AppendZigzag(int64_t value, std::string& out) {
  AppendVarint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63), out);
}

}  // namespace spiritlevel
