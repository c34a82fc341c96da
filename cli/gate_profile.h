// What tells one device profile from another in a gate's baseline.
#pragma once

#include <string>

#include "models/device_profile.h"

namespace spiritlevel {

// 16 hexadecimal digits over every number that a time may come from; names count for nothing. The
// same on all machines, whatever the file looked like.
std::string ProfileDigest(const DeviceProfile& profile);

}  // namespace spiritlevel
