#include "kernels/cuda/launch.h"
#include "kernels/cuda/math/device_grid.h"
#include "kernels/cuda/math/embedding.h"
#include "kernels/cuda/math/loss.h"

namespace spiritlevel::cuda {

void LaunchEmbeddingForward(const EmbeddingForward& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchEmbeddingWeightGrad(const EmbeddingWeightGrad& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchCrossEntropyForward(const CrossEntropyForward& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchCrossEntropyBackward(const CrossEntropyBackward& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}

}  // namespace spiritlevel::cuda
