// What each piece of work is on a GPU: operands, and the calls that compute with them. Internal to
// calibrate/.
#pragma once

#include <functional>
#include <vector>

#include "calibrate/cuda_operands.h"
#include "calibrate/device.h"
#include "kernels/cuda/calls.h"

namespace spiritlevel {

struct CudaWork {
  std::vector<OperandSpec> operands;
  std::function<std::vector<cuda::Call>(const std::vector<cuda::View>&)> calls;
};

// In bf16 with fp32 accumulation; a weight gradient is added to an fp32 sum, as are those of norms
// and embeddings. `l2` is the size of the cache that a table must not fit into. Not of an EmptyOp,
// which has no operands.
CudaWork CudaWorkOf(const Work& work, Bytes l2);

// The same product of fp8 operands: activations and weights in e4m3, their gradients in e5m2, both
// laid out as the matrix units read them (the second one transposed).
CudaWork Float8Work(const Gemm& gemm);

}  // namespace spiritlevel
