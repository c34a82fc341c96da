// The kernels of kernels/cpu with operands, ready to be timed. Internal to calibrate/.
#pragma once

#include <memory>

#include "calibrate/device.h"
#include "calibrate/operand_memory.h"

namespace spiritlevel {

// Several sets of operands that take `cold_bytes` together, or one where that is larger.
// They are lent by `memory`, which must outlive the workload. Thread-safe.
std::unique_ptr<Workload> MakeCpuWorkload(const Work& work, Bytes cold_bytes,
                                          OperandMemory& memory);

}  // namespace spiritlevel
