// bf16 numbers as they are stored: the upper half of an fp32.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace spiritlevel::cpu {

inline float Widen(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

// To nearest, ties to even. NaN stays NaN, its sign and upper bits, too.
inline uint16_t Round(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return static_cast<uint16_t>((is_nan ? bits | 0x00400000 : rounded) >> 16);
}

// As many as there are.
void Widen(std::span<const uint16_t> halves, std::span<float> values);
void Round(std::span<const float> values, std::span<uint16_t> halves);

}  // namespace spiritlevel::cpu
