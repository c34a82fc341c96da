// Sizes of memory as people write them.
#pragma once

#include <string_view>

#include "base/units.h"

namespace spiritlevel {

// "8000", "6e9", "60 GiB", "1.5GB"; KiB to TiB are powers of 1024, kB to TB of 1000. Fractions of a
// byte are rounded half up. Throws InputError for anything else, for what is below one byte and for
// what is above kMaxBytes; "8G" is refused, since it may be meant as either.
Bytes ParseBytes(std::string_view text);

}  // namespace spiritlevel
