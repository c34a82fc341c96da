#include "kernels/cuda/attention_host.h"

#include "kernels/cuda/math/attention_plain.h"

namespace spiritlevel::cuda {
namespace {

// In the tiles of the device's kernel for that storage, as those decide what is rounded when.
template <typename F>
void WithTiles(ElementType type, int64_t head_dim, const F& f) {
  if (type == ElementType::kBFloat16) {
    WithTensorDimension(head_dim, [&](auto dimension) {
      f(BFloat16{}, TensorTiles<decltype(dimension)::value>());
    });
  } else {
    f(float{}, PlainTiles());
  }
}

}  // namespace

void RunAttentionOnHost(const AttentionForward& call) {
  CheckCall(call);
  WithTiles(call.q.type, call.shape.head_dim, [&](auto element, auto tiles) {
    using T = decltype(element);
    using Tiles = decltype(tiles);
    RunPlain(PlainForward<T, typename Tiles::Forward>{ArgumentsOf<T>(call)}, HostGrid());
  });
}

void RunAttentionOnHost(const AttentionBackward& call) {
  CheckCall(call);
  WithTiles(call.q.type, call.shape.head_dim, [&](auto element, auto tiles) {
    using T = decltype(element);
    using Tiles = decltype(tiles);
    const BackwardArguments<T> arguments = ArgumentsOf<T>(call);
    RunPlain(RowDots<T>{arguments}, HostGrid());
    RunPlain(PlainBackwardKeys<T, typename Tiles::BackwardKeys>{arguments}, HostGrid());
    RunPlain(PlainBackwardQueries<T, typename Tiles::BackwardQueries>{arguments}, HostGrid());
  });
}

Bytes AttentionWorkspace(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.sequence * SizeOf(ElementType::kFloat32);
}

}  // namespace spiritlevel::cuda
