// What a call reads and writes, for the fake: whether it stays in memory that it was given, and
// whether two calls that no event orders touch the same.
#pragma once

#include <vector>

#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

struct FakeOperand {
  const void* data = nullptr;
  Bytes bytes = 0;  // from the first to the last element, with the gaps between rows
  bool written = false;
};

// Without those that are left out of this call.
std::vector<FakeOperand> OperandsOf(const Call& call);

}  // namespace spiritlevel::cuda
