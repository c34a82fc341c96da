#include "kernels/cuda/launch.h"
#include "kernels/cuda/math/activation.h"
#include "kernels/cuda/math/device_grid.h"
#include "kernels/cuda/math/dropout.h"
#include "kernels/cuda/math/elementwise.h"
#include "kernels/cuda/math/rotation.h"

namespace spiritlevel::cuda {

void LaunchFill(const Fill& call, cudaStream_t stream) { Compute(call, DeviceGrid(stream)); }
void LaunchConvert(const Convert& call, cudaStream_t stream) { Compute(call, DeviceGrid(stream)); }
void LaunchAdd(const Add& call, cudaStream_t stream) { Compute(call, DeviceGrid(stream)); }
void LaunchAddBias(const AddBias& call, cudaStream_t stream) { Compute(call, DeviceGrid(stream)); }
void LaunchSwigluForward(const SwigluForward& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchSwigluBackward(const SwigluBackward& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchGeluForward(const GeluForward& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchGeluBackward(const GeluBackward& call, cudaStream_t stream) {
  Compute(call, DeviceGrid(stream));
}
void LaunchRotate(const Rotate& call, cudaStream_t stream) { Compute(call, DeviceGrid(stream)); }
void LaunchDropout(const Dropout& call, cudaStream_t stream) { Compute(call, DeviceGrid(stream)); }

}  // namespace spiritlevel::cuda
