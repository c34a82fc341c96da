#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/math/attention_plain.h"
#include "kernels/cuda/math/device_grid.h"

namespace spiritlevel::cuda {

void LaunchAttentionForward(const AttentionForward& call, cudaStream_t stream) {
  if (FitsTensorCores(call)) return LaunchTensorForward(call, stream);
  WithStorage(call.q.type, [&](auto element) {
    using T = decltype(element);
    RunPlain(PlainForward<T, PlainTiles::Forward>{ArgumentsOf<T>(call)}, DeviceGrid(stream));
  });
}

void LaunchAttentionBackward(const AttentionBackward& call, cudaStream_t stream) {
  const DeviceGrid grid(stream);
  WithStorage(call.q.type, [&](auto element) {
    using T = decltype(element);
    const BackwardArguments<T> arguments = ArgumentsOf<T>(call);
    RunPlain(RowDots<T>{arguments}, grid);
    if (FitsTensorCores(call)) return;
    RunPlain(PlainBackwardKeys<T, PlainTiles::BackwardKeys>{arguments}, grid);
    RunPlain(PlainBackwardQueries<T, PlainTiles::BackwardQueries>{arguments}, grid);
  });
  if (!FitsTensorCores(call)) return;
  LaunchTensorBackwardKeys(call, stream);
  LaunchTensorBackwardQueries(call, stream);
}

}  // namespace spiritlevel::cuda
