#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_machine.cuh"
#include "kernels/cuda/math/attention_tensor_backward.h"

namespace spiritlevel::cuda {

void LaunchTensorBackwardQueries(const AttentionBackward& call, cudaStream_t stream) {
  const auto arguments = ArgumentsOf<BFloat16>(call);
  WithTensorDimension(call.shape.head_dim, [&](auto dimension) {
    using Kernel = TensorBackwardQueries<decltype(dimension)::value>;
    LaunchTensorBlocks(Kernel{arguments}, TilesIn(arguments.g.sequence, Kernel::kQueries),
                       arguments.g.heads, arguments.g.batch, stream);
  });
}

}  // namespace spiritlevel::cuda
