// Rows of a table by token, and the gradient of the table.
//
//   tokens [rows], each in 0 ... vocabulary - 1   table [vocabulary, cols]   X [rows, cols]
//
// The lowest layer: it has a W and no B.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

void EmbeddingForward(std::span<const int32_t> tokens, ConstMatrix table, Matrix x);

// dtable[tokens[i]] += dX[i], in the order of i, so that a token that occurs twice sums in one
// order always.
void EmbeddingWeightGrad(std::span<const int32_t> tokens, ConstMatrix dx, Matrix dtable);

}  // namespace spiritlevel::cpu
