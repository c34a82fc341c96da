// Numbers and texts as bytes and back, and their checksum. Little-endian, as all our machines are.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace spiritlevel {

static_assert(std::endian::native == std::endian::little);

// FNV-1a (Fowler, Noll and Vo), 64 bits: finds what a disk or a half-done copy does, and is not
// meant against anybody.
inline uint64_t ChecksumOf(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

class ByteWriter {
 public:
  template <class T>
  void Number(T number) {
    static_assert(std::is_arithmetic_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &number, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }
  void Text(std::string_view text) {
    Number(static_cast<uint64_t>(text.size()));
    Raw(text);
  }
  void Raw(std::string_view text) { bytes_.append(text); }

  const std::string& bytes() const { return bytes_; }
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T Number() {
    static_assert(std::is_arithmetic_v<T>);
    T number{};
    std::memcpy(&number, Take(sizeof(T)).data(), sizeof(T));
    return number;
  }
  std::string Text() { return std::string(Take(Number<uint64_t>())); }
  bool is_at_end() const { return rest_.empty(); }

 private:
  std::string_view Take(uint64_t count) {
    if (count > rest_.size()) throw InputError("ends too early");
    const std::string_view taken = rest_.substr(0, static_cast<size_t>(count));
    rest_.remove_prefix(static_cast<size_t>(count));
    return taken;
  }

  std::string_view rest_;
};

}  // namespace spiritlevel
