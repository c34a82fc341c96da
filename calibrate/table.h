// A calibration for people.
#pragma once

#include <string>

#include "calibrate/calibration.h"

namespace spiritlevel {

// What was measured, how fast it is, and how well the fits predict it. Ends with a newline.
std::string CalibrationTable(const Calibration& calibration);

// Lines of warning, each ending with a newline: a noisy machine, an early stop. Often empty.
std::string CalibrationWarnings(const Calibration& calibration);

}  // namespace spiritlevel
