// The kernels of kernels/cpu with operands, ready to be timed. Internal to calibrate/.
#pragma once

#include <memory>

#include "calibrate/device.h"

namespace spiritlevel {

// Several sets of operands that take `cold_bytes` together, or one where that is larger.
// Thread-safe.
std::unique_ptr<Workload> MakeCpuWorkload(const Work& work, Bytes cold_bytes);

}  // namespace spiritlevel
