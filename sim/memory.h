// Live memory by category.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "base/units.h"

namespace spiritlevel {

enum class MemoryCategory : uint8_t {
  kParameters,  // typed-in `static_bytes`, too, which do not tell the next two apart
  kGradients,
  kOptimizer,
  kWaitingForB,  // activations kept from F until B
  kWaitingForW,  // what B leaves for W
  kCommunication,
  kWorkspace,
  kFramework,
};

inline constexpr int kNumMemoryCategories = 8;

std::string_view Name(MemoryCategory category);    // "waiting_for_b"
std::string_view Phrase(MemoryCategory category);  // "activations that wait for B"

using MemoryByCategory = std::array<Bytes, kNumMemoryCategories>;

inline Bytes Total(const MemoryByCategory& m) {
  return std::accumulate(m.begin(), m.end(), Bytes{0});
}

}  // namespace spiritlevel
