// A GPU's part of the printed table. Internal to calibrate/.
#pragma once

#include <string>

#include "calibrate/calibration.h"

namespace spiritlevel {

std::string GpuTable(const Calibration& c);
std::string GpuWarnings(const Calibration& c);

}  // namespace spiritlevel
