#include "kernels/cuda/launch.h"
#include "kernels/cuda/math/adamw.h"
#include "kernels/cuda/math/device_grid.h"
#include "kernels/cuda/math/sum_of_squares.h"

namespace spiritlevel::cuda {

void LaunchAdamWStep(const AdamWStep& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchAdamWUndo(const AdamWUndo& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchSumOfSquares(const SumOfSquares& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}

}  // namespace spiritlevel::cuda
