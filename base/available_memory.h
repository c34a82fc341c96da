// How much memory a run may take before the machine, the container or the shell's limit stops it.
#pragma once

#include "base/units.h"

namespace spiritlevel {

// The least of what the system calls available, what the control group still allows, and
// what RLIMIT_AS leaves. A limit that cannot be read does not count.
Bytes AvailableMemory();

}  // namespace spiritlevel
