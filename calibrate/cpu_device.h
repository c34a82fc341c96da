// CpuDevice: this machine's cores as calibration sees them, one thread a rank.
#pragma once

#include <memory>

#include "calibrate/device.h"
#include "calibrate/machine.h"

namespace spiritlevel {

// The calling thread is the measured rank; it is pinned to a core until the device is gone. The
// operand sets of a workload take `cold_bytes` together. Throws InputError on a processor that
// lacks the instructions the kernels were built with.
std::unique_ptr<Device> MakeCpuDevice(Bytes cold_bytes);

// Twice the largest cache, within 16 and 256 MiB.
Bytes ColdBytes(const MeasuredMachine& machine);

}  // namespace spiritlevel
