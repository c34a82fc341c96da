// A profile that nobody measured, as a file has it.
#pragma once

#include "calibrate/calibration.h"
#include "calibrate/primitive.h"
#include "tests/models/made_up_device.h"

namespace spiritlevel {

// The kernels that were held out took a twentieth longer than the fit says.
inline Calibration MadeUpCalibration() {
  Calibration c;
  c.profile = OnlyFlops();
  c.profile.dtype = DType::kFloat32;
  c.profile.transfer_latency_ns = 1000;
  c.profile.transfer_ns_per_byte = 0.001;
  c.date = "2001-02-03";
  c.machine.cpu = "Abacus 3000";
  c.software.blas = "beads 1.0";
  for (const PrimitiveInfo& info : Primitives()) {
    PrimitiveResult result{.primitive = info.primitive};
    result.measurements.push_back(
        {.what = "one", .units = 1, .held_out = true, .predicted_ns = 95});
    result.measurements.back().samples.quiet_ns = 100;
    result.measurements.back().samples.median_ns = 100;
    c.primitives.push_back(std::move(result));
  }
  return c;
}

}  // namespace spiritlevel
