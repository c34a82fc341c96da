#include "kernels/cuda/device_state.h"

#include <dlfcn.h>

namespace spiritlevel::cuda {
namespace {

// As much of NVML's interface as is used; its header is not part of every toolkit.
using NvmlDevice = void*;
constexpr int kSuccess = 0;
constexpr unsigned kClockOfSms = 1;
constexpr unsigned kClockOfMemory = 2;
constexpr unsigned kTemperatureOfGpu = 0;
// Power cap, hardware slow-down, thermal by software and hardware, power brake. Not: idle, a clock
// that was set.
constexpr unsigned long long kThrottled = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

template <typename Function>
Function Find(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

template <typename Value>
Value ReadOf(void* library, const char* name, NvmlDevice device) {
  Value value = 0;
  const auto read = Find<int (*)(NvmlDevice, Value*)>(library, name);
  return read != nullptr && read(device, &value) == kSuccess ? value : Value{0};
}

int ReadOf(void* library, const char* name, NvmlDevice device, unsigned which) {
  unsigned value = 0;
  const auto read = Find<int (*)(NvmlDevice, unsigned, unsigned*)>(library, name);
  return read != nullptr && read(device, which, &value) == kSuccess ? static_cast<int>(value) : 0;
}

}  // namespace

DeviceStates::DeviceStates() {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto start = Find<int (*)()>(library_, "nvmlInit_v2");
  if (start != nullptr && start() == kSuccess) return;
  if (library_ != nullptr) dlclose(library_);
  library_ = nullptr;
}

DeviceStates::~DeviceStates() {
  if (library_ == nullptr) return;
  if (const auto end = Find<int (*)()>(library_, "nvmlShutdown")) end();
  dlclose(library_);
}

DeviceState DeviceStates::Read(const std::string& pci) const {
  const auto find =
      Find<int (*)(const char*, NvmlDevice*)>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  NvmlDevice device = nullptr;
  if (find == nullptr || find(pci.c_str(), &device) != kSuccess) return {};
  DeviceState state;
  state.sm_clock_mhz = ReadOf(library_, "nvmlDeviceGetClockInfo", device, kClockOfSms);
  state.memory_clock_mhz = ReadOf(library_, "nvmlDeviceGetClockInfo", device, kClockOfMemory);
  state.temperature = ReadOf(library_, "nvmlDeviceGetTemperature", device, kTemperatureOfGpu);
  const auto reasons =
      ReadOf<unsigned long long>(library_, "nvmlDeviceGetCurrentClocksThrottleReasons", device);
  state.throttled = (reasons & kThrottled) != 0;
  return state;
}

}  // namespace spiritlevel::cuda
