// A GPU's part of a profile file. Internal to calibrate/.
#pragma once

#include "calibrate/calibration.h"
#include "calibrate/profile_source.h"
#include "proto/profile.pb.h"

namespace spiritlevel {

// Of a calibration that has one.
void FillGpu(const Calibration& c, profile_proto::Gpu* out);

// Fills c->gpu and c->profile.gpu. Throws InputError with file, line and field.
void ReadGpu(const ProfileSource& source, const profile_proto::Gpu& in, Calibration* c);

}  // namespace spiritlevel
