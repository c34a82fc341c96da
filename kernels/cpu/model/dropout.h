// Dropout (Srivastava et al. 2014) with masks out of a counter: nothing is kept for B, and a pass
// that is run again, later, or elsewhere sees the same mask.
#pragma once

#include <cstdint>

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

// Which mask. Element i of row by row takes word i % 4 of Philox's block i / 4.
struct DropoutSite {
  enum class Place : uint8_t { kEmbedding, kAttention, kMlp };

  uint64_t seed = 0;
  int64_t iteration = 0;
  int64_t micro_batch = 0;
  int64_t layer = 0;  // of the model; 0 for the embedding
  Place place = Place::kEmbedding;
};

// Each element becomes 0 with this probability, else x / (1 - probability). F and B alike. The rows
// of `x` have no gaps.
void ApplyDropout(double probability, const DropoutSite& site, Matrix x);

}  // namespace spiritlevel::cpu
