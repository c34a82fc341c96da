// Attention's kernels, each in its own .cu as they take long to compile. LaunchAttentionForward()
// and LaunchAttentionBackward() choose.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

// bf16 that FitsTensorCores().
void LaunchTensorForward(const AttentionForward& call, cudaStream_t stream);
void LaunchTensorBackwardKeys(const AttentionBackward& call, cudaStream_t stream);
void LaunchTensorBackwardQueries(const AttentionBackward& call, cudaStream_t stream);

}  // namespace spiritlevel::cuda
