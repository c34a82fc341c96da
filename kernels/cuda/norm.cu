#include "kernels/cuda/launch.h"
#include "kernels/cuda/math/device_grid.h"
#include "kernels/cuda/math/norm.h"

namespace spiritlevel::cuda {

void LaunchRmsNormForward(const RmsNormForward& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchRmsNormInputGrad(const RmsNormInputGrad& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchLayerNormForward(const LayerNormForward& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchLayerNormInputGrad(const LayerNormInputGrad& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}

}  // namespace spiritlevel::cuda
