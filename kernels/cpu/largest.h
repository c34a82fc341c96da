// The largest of some floats. Internal to kernels/cpu.
#pragma once

#include <algorithm>
#include <cstdint>

namespace spiritlevel::cpu {

// Of at least one. By lanes side by side, which compilers turn into vector instructions without
// having to prove that the order of comparisons does not matter (with NaN it would).
inline float Largest(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, values[0]);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  float largest = *std::max_element(lanes, lanes + kLanes);
  for (; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

}  // namespace spiritlevel::cpu
