// Calibration of a GPU, from the question whether there is one to the finished profile.
//
//   const std::unique_ptr<cuda::Layer> layer = cuda::MakeCudaLayer();
//   const Calibration c = CalibrateCuda(layer.get(), {.device = 0}, {.seconds = 150}, {});
//
// Whatever goes wrong on the device is an InputError that says what, and a way out.
#pragma once

#include <optional>

#include "calibrate/calibration.h"
#include "calibrate/cuda_device.h"
#include "calibrate/cuda_survey.h"

namespace spiritlevel {

struct CudaCalibrationOptions {
  int device = 0;
  int partitions = 1;
  // Others of its kind in this machine are exchanged with.
  bool with_peers = true;
  std::optional<CudaDeviceSettings> settings{};  // instead of what follows from the above
  std::optional<CudaSurveyPlan> survey{};        // instead of MakeCudaSurveyPlan()'s
};

// `layer` is null in a build without the toolkit. An empty plan is MakeGpuPlan()'s. Throws
// InputError before anything is measured where there is no such device, or one without enough
// memory for what a profile cannot do without.
Calibration CalibrateCuda(cuda::Layer* layer, const CudaCalibrationOptions& cuda,
                          CalibrationOptions options, const CalibrationObserver& observer);

}  // namespace spiritlevel
