// Rotary positions (Su et al. 2021, section 3.4.2): element i of a head and element i + d / 2 turn
// by position * theta^(-2 i / d).
#pragma once

#include <cstdint>

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

enum class Turn : uint8_t { kForward, kBack };

// [2 sequence, d / 2]: cosines of each position, then sines.
void FillRotation(double theta, Matrix table);

// Row i of `x` is at position i modulo the table's; its columns are heads of `head_dim`. A gradient
// is turned back.
void Rotate(ConstMatrix table, int64_t head_dim, Turn turn, Matrix x);

}  // namespace spiritlevel::cpu
