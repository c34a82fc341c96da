#include "calibrate/device.h"

namespace spiritlevel {

// Some milliseconds each on a CPU; what streams is far larger than any cache of one core.
std::array<Kernel, kNumKernelClasses> Device::References() const {
  const Bytes element = SizeOf(dtype());
  return {Gemm{.m = 256, .n = 512, .k = 512},
          Attention{.batch = 1,
                    .heads = 8,
                    .kv_heads = 8,
                    .sequence = 512,
                    .head_dim = 64,
                    .element = element},
          Elementwise{.bytes_moved = 3 * (Bytes{1} << 23)}};
}

}  // namespace spiritlevel
