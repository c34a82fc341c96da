// Blocks of a device, for the kernels of block.h. Only nvcc reads this.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/math/block.h"

namespace spiritlevel::cuda {

// A host compiler sees these functions, too, and calls none of them.
class DeviceBlock {
 public:
  __device__ explicit DeviceBlock(void* shared) : shared_(shared) {}

  SPIRITLEVEL_HOST_DEVICE int lanes() const {
#ifdef __CUDA_ARCH__
    return static_cast<int>(blockDim.x);
#else
    return 0;
#endif
  }
  SPIRITLEVEL_HOST_DEVICE void* shared() const { return shared_; }

  template <typename F>
  SPIRITLEVEL_HOST_DEVICE void Each(const F& f) const {
#ifdef __CUDA_ARCH__
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
#endif
  }

  template <typename F>
  SPIRITLEVEL_HOST_DEVICE bool Any(const F& f) const {
#ifdef __CUDA_ARCH__
    return __syncthreads_or(f(static_cast<int>(threadIdx.x))) != 0;
#else
    return false;
#endif
  }

  // HostBlock's tree: a butterfly, which gives all lanes of a warp what the tree gives its first.
  template <typename T, typename F, typename Combine>
  SPIRITLEVEL_HOST_DEVICE T Reduce(T identity, const F& of_lane, const Combine& combine) const {
#ifdef __CUDA_ARCH__
    __shared__ T warps[kWarp];
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const T of_warp = Butterfly(of_lane(static_cast<int>(threadIdx.x)), combine);
    if (lane == 0) warps[warp] = of_warp;
    __syncthreads();
    const T value = lane * kWarp < lanes() ? warps[lane] : identity;
    const T total = Butterfly(value, combine);
    __syncthreads();  // `warps` is free for the next
    return total;
#else
    return identity;
#endif
  }

 private:
#ifdef __CUDA_ARCH__
  template <typename T, typename Combine>
  static __device__ T Butterfly(T value, const Combine& combine) {
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      value = combine(value, OfLane(value, apart));
    }
    return value;
  }

  // That of the lane which is `apart` away.
  template <typename T>
  static __device__ T OfLane(const T& value, int apart) {
    static_assert(sizeof(T) % sizeof(uint32_t) == 0);
    constexpr int kWords = sizeof(T) / sizeof(uint32_t);
    uint32_t words[kWords];
    memcpy(words, &value, sizeof(T));
    for (int i = 0; i < kWords; ++i) words[i] = __shfl_xor_sync(0xFFFFFFFFu, words[i], apart);
    T other;
    memcpy(&other, words, sizeof(T));
    return other;
  }
#endif

  void* shared_;
};

template <typename Kernel>
__global__ void __launch_bounds__(kMostLanes) RunBlocks(Kernel kernel) {
  __shared__ alignas(16) unsigned char shared[Kernel::kSharedBytes + 16];
  kernel(DeviceBlock(shared), static_cast<int64_t>(blockIdx.x));
}

// Launches a kernel's blocks on a stream.
class DeviceGrid {
 public:
  explicit DeviceGrid(cudaStream_t stream) : stream_(stream) {}

  template <typename Kernel>
  void operator()(const Kernel& kernel, int64_t blocks, int lanes) const {
    SPIRITLEVEL_CHECK(blocks <= INT32_MAX, "a grid has less than 2^31 blocks");
    if (blocks == 0) return;  // CUDA refuses empty grids
    RunBlocks<<<static_cast<unsigned>(blocks), static_cast<unsigned>(lanes), 0, stream_>>>(kernel);
  }

 private:
  cudaStream_t stream_;
};

}  // namespace spiritlevel::cuda
