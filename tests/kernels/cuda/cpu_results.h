// What the CPU kernels make of a call's operands: the second opinion on what a call does.
#pragma once

#include <map>
#include <string>

#include "kernels/cuda/calls.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel {

// By the names of ViewsOf(), in fp32, not rounded to what the call stores. Views are of the host's
// memory, and only read. All calls but attention.
std::map<std::string, Doubles> CpuResults(const cuda::Call& call);

}  // namespace spiritlevel
