#include "kernels/cuda/launch.h"
#include "kernels/cuda/math/column_sums.h"
#include "kernels/cuda/math/device_grid.h"

namespace spiritlevel::cuda {

void LaunchColumnSums(const ColumnSums& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchRmsNormWeightGrad(const RmsNormWeightGrad& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchLayerNormWeightGrad(const LayerNormWeightGrad& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}

}  // namespace spiritlevel::cuda
