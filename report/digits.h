// Numbers that are read digit by digit.
#pragma once

#include <cstdint>
#include <string>

namespace spiritlevel {

std::string Grouped(int64_t number);  // "8 030 261 248"

}  // namespace spiritlevel
