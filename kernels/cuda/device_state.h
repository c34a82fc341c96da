// Clocks and temperature, read from NVML, which is loaded if the machine has it. Nothing is set.
#pragma once

#include <string>

#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

class DeviceStates {
 public:
  DeviceStates();
  ~DeviceStates();
  DeviceStates(const DeviceStates&) = delete;
  DeviceStates& operator=(const DeviceStates&) = delete;

  // `pci` as in DeviceInfo. Zeros for what cannot be read.
  DeviceState Read(const std::string& pci) const;

 private:
  void* library_ = nullptr;
};

}  // namespace spiritlevel::cuda
