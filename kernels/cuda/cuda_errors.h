// Errors of CUDA, its driver, cuBLASLt and NCCL as GpuError. Only in builds with the toolkit.
#pragma once

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

GpuErrorKind KindOf(cudaError_t error);

// Throw unless all is well. `call` is written out only where it is not; `bytes` below 0 is none.
void Check(cudaError_t error, std::string_view call, Bytes bytes = -1);
void Check(CUresult result, std::string_view call);
void Check(cublasStatus_t status, std::string_view call);

}  // namespace spiritlevel::cuda
