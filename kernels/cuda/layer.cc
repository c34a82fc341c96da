#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

GpuError::GpuError(GpuErrorKind kind, const std::string& call, const std::string& what)
    : std::runtime_error(call + ": " + what), kind_(kind) {}

std::string WhyNoDevice(Layer* layer) {
  if (layer == nullptr) return "this build is without the CUDA toolkit";
  try {
    if (layer->NumDevices() > 0) return "";
    return layer->Versions().driver == 0 ? "no CUDA driver is installed"
                                         : "the CUDA driver shows no device to this process";
  } catch (const GpuError& e) {
    return e.what();
  }
}

}  // namespace spiritlevel::cuda
