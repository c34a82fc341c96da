// In a build without the toolkit.
#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

std::unique_ptr<Layer> MakeCudaLayer() { return nullptr; }

}  // namespace spiritlevel::cuda
