// The model's forward pass in float64 and plain loops, to be differentiated by differences.
//
// Shares no code with kernels/cpu but the shape, the names of parameters, and Philox.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/cpu/model/model_shape.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel {

using NamedValues = std::map<std::string, Doubles>;

struct ReferenceBatch {
  int64_t iteration = 0;
  int64_t index = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

// The loss of each token. With tied embeddings the head is `parameters`' own copy all the same.
Doubles ReferenceLosses(const cpu::ModelShape& shape, const NamedValues& parameters,
                        const ReferenceBatch& batch);

}  // namespace spiritlevel
