#include "kernels/cpu/model/bfloat16.h"

#include "base/check.h"

namespace spiritlevel::cpu {

void Widen(std::span<const uint16_t> halves, std::span<float> values) {
  SPIRITLEVEL_CHECK(halves.size() == values.size(), "as many as there are");
#pragma omp simd
  for (size_t i = 0; i < values.size(); ++i) values[i] = Widen(halves[i]);
}

void Round(std::span<const float> values, std::span<uint16_t> halves) {
  SPIRITLEVEL_CHECK(halves.size() == values.size(), "as many as there are");
#pragma omp simd
  for (size_t i = 0; i < values.size(); ++i) halves[i] = Round(values[i]);
}

}  // namespace spiritlevel::cpu
