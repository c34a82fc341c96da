// Products by cuBLASLt. Only in builds with the toolkit.
//
// cuBLASLt thinks in columns: a matrix whose rows are stored one behind the other is to it the
// transposed one. So C = op(A) op(B) is asked for as C^T = op(B)^T op(A)^T: the operands change
// places, and each keeps its flag.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <vector>

#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

class CudaProducts {
 public:
  ~CudaProducts();

  // The device is the current one.
  std::vector<ProductAlgorithm> Find(int device, const Product& product, Bytes workspace, int most);
  void Multiply(int device, cudaStream_t stream, const Product& product,
                const ProductAlgorithm& algorithm, void* workspace);

 private:
  cublasLtHandle_t HandleOf(int device);

  std::mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_;
};

}  // namespace spiritlevel::cuda
