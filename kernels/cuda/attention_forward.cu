#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_machine.cuh"
#include "kernels/cuda/math/attention_tensor_forward.h"

namespace spiritlevel::cuda {

void LaunchTensorForward(const AttentionForward& call, cudaStream_t stream) {
  const auto arguments = ArgumentsOf<BFloat16>(call);
  WithTensorDimension(call.shape.head_dim, [&](auto dimension) {
    using Kernel = TensorForward<decltype(dimension)::value>;
    LaunchTensorBlocks(Kernel{arguments}, TilesIn(arguments.g.sequence, Kernel::kQueries),
                       arguments.g.heads, arguments.g.batch, stream);
  });
}

}  // namespace spiritlevel::cuda
