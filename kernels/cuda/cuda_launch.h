// A call's kernel on a stream. Only in builds with the toolkit.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

// Of any call but a Product; see launch.h. The device is the current one.
void LaunchCall(const Call& call, cudaStream_t stream);

}  // namespace spiritlevel::cuda
