// Streams that are kept to some of a device's SMs: green contexts, of the driver (CUDA 12.5 or
// later). Only in builds with the toolkit, and loaded at run time, so that a program runs where
// there is no driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

namespace spiritlevel::cuda {

struct CudaPartition {
  int device = 0;
  int multiprocessors = 0;
  CUgreenCtx context = nullptr;
};

class GreenContexts {
 public:
  ~GreenContexts();

  // Throws GpuError: kUnsupported where the driver has none, or the parts would be too small.
  std::vector<CudaPartition*> Split(int device, int parts);
  // `priority` as CUDA counts: 0, or below for one that comes first.
  static cudaStream_t MakeStream(const CudaPartition& partition, int priority);

 private:
  std::vector<std::unique_ptr<CudaPartition>> partitions_;
};

}  // namespace spiritlevel::cuda
