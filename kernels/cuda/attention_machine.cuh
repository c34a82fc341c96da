// The Machine of math/attention_warp.h that is a device, and launches of its kernels.
#pragma once

#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/cuda/math/attention_warp.h"

namespace spiritlevel::cuda {

// PTX ISA 8.0: cp.async, ldmatrix, mma.sync; all since sm_80. A host compiler sees these functions,
// too, and calls none of them.
class DeviceMachine {
 public:
  __device__ explicit DeviceMachine(unsigned char* shared)
      : shared_(shared), base_(static_cast<unsigned>(__cvta_generic_to_shared(shared))) {}

  __device__ int lane() const { return static_cast<int>(threadIdx.x) % 32; }
  __device__ int warp() const { return static_cast<int>(threadIdx.x) / 32; }
  __device__ void SyncBlock() const { __syncthreads(); }
  __device__ void SyncWarp() const { __syncwarp(); }

  __device__ void CopyLater(unsigned to, const BFloat16* from, bool valid) const {
    const int bytes = valid ? kChunkBytes : 0;  // the rest of the 16 becomes zeros
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(base_ + to), "l"(from),
                 "r"(bytes)
                 : "memory");
  }
  __device__ void CommitCopies() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kLeft>
  __device__ void AwaitCopies() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
  }

  __device__ void LoadMatrices(uint32_t (&r)[4], unsigned at) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(base_ + at)
                 : "memory");
  }
  __device__ void LoadTransposed(uint32_t (&r)[4], unsigned at) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(base_ + at)
                 : "memory");
  }
  __device__ void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                              uint32_t b1) const {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  __device__ uint32_t Pair(float low, float high) const {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  __device__ float Other(float value, int apart) const {
    return __shfl_xor_sync(0xFFFFFFFFu, value, apart);
  }

  __device__ void Store(unsigned at, uint32_t pair) const {
    *reinterpret_cast<uint32_t*>(shared_ + at) = pair;
  }
  __device__ Chunk Load(unsigned at) const { return *reinterpret_cast<const Chunk*>(shared_ + at); }
  __device__ float* Numbers(unsigned at) const { return reinterpret_cast<float*>(shared_ + at); }
  __device__ void StoreGlobal(BFloat16* to, const Chunk& chunk) const {
    *reinterpret_cast<Chunk*>(to) = chunk;
  }

 private:
  unsigned char* shared_;
  unsigned base_;
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kLanes) RunTensorBlocks(const Kernel kernel) {
  extern __shared__ __align__(128) unsigned char shared[];
#ifdef __CUDA_ARCH__
  kernel(DeviceMachine(shared), static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y),
         static_cast<int>(blockIdx.z));
#endif
}

// `blocks` for each of `heads` and `batch`. More shared memory than 48 KiB is to be asked for, for
// each device anew.
template <typename Kernel>
void LaunchTensorBlocks(const Kernel& kernel, int blocks, int heads, int batch,
                        cudaStream_t stream) {
  SPIRITLEVEL_CHECK(heads <= 65'535 && batch <= 65'535, "a grid is as large in y and z");
  const cudaError_t error =
      cudaFuncSetAttribute(RunTensorBlocks<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(Kernel::kSharedBytes));
  if (error != cudaSuccess) return;  // cudaGetLastError() says so to who asks
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(heads),
                  static_cast<unsigned>(batch));
  RunTensorBlocks<Kernel><<<grid, Kernel::kLanes, Kernel::kSharedBytes, stream>>>(kernel);
}

}  // namespace spiritlevel::cuda
