#include "calibrate/cuda_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "calibrate/gpu_plan.h"

namespace spiritlevel {
namespace {

using cuda::GpuError;
using cuda::GpuErrorKind;

void RequireDevice(cuda::Layer* layer, int device) {
  const std::string why = cuda::WhyNoDevice(layer);
  if (!why.empty()) {
    throw InputError("--backend cuda: " + why,
                     "run it on a machine with a GPU (spiritlevel doctor says what is missing), or "
                     "use --backend cpu");
  }
  const int devices = layer->NumDevices();
  if (device >= 0 && device < devices) return;
  throw InputError(fmt::format("--device: there is no device {}", device),
                   devices == 1 ? "there is one, 0; leave --device out"
                                : fmt::format("there are 0 to {}", devices - 1));
}

void RequireKernels(const cuda::DeviceInfo& info) {
  constexpr int kAmpere = 8;
  if (info.major >= kAmpere) return;
  throw InputError(fmt::format("--backend cuda: {} has compute capability {}.{}", info.name,
                               info.major, info.minor),
                   "the kernels are for 8.0 and later: an A100, or what came after it");
}

// Before most of three minutes are spent.
void RequireMemory(cuda::Layer* layer, const cuda::DeviceInfo& info,
                   const CudaDeviceSettings& settings, const std::vector<PlannedWork>& plan) {
  std::vector<Work> needed(settings.references.begin(), settings.references.end());
  for (const PlannedWork& work : plan) {
    if (work.round == 0 && work.primitive != Primitive::kHandOver) needed.push_back(work.work);
  }
  const Bytes bytes = CudaBytesFor(needed, info, settings);
  const cuda::FreeMemory memory = layer->Memory(settings.device);
  if (memory.free >= bytes) return;
  throw InputError(
      fmt::format("--backend cuda: device {} ({}) has {} of its {} free, and calibration takes {}",
                  settings.device, info.name, FormatBytes(memory.free), FormatBytes(memory.total),
                  FormatBytes(bytes)),
      "end what else uses its memory, use another --device, or of a model a smaller --micro-batch "
      "or --sequence");
}

// What goes the same way to memory and to the others.
std::vector<int> PeersOf(cuda::Layer* layer, int device) {
  constexpr int kMost = 7;
  std::vector<int> peers;
  if (layer->Versions().nccl == 0) return peers;
  const std::string name = layer->Describe(device).name;
  for (int other = 0; other < layer->NumDevices(); ++other) {
    if (static_cast<int>(peers.size()) == kMost) break;
    if (other != device && layer->Describe(other).name == name) peers.push_back(other);
  }
  return peers;
}

CudaDeviceSettings SettingsOf(cuda::Layer* layer, const CudaCalibrationOptions& options) {
  if (options.settings) return *options.settings;
  CudaDeviceSettings settings{.device = options.device, .partitions = options.partitions};
  if (options.with_peers && options.partitions == 1) {
    settings.peers = PeersOf(layer, options.device);
  }
  return settings;
}

std::string WayOutOf(GpuErrorKind kind) {
  switch (kind) {
    case GpuErrorKind::kNoDevice:
      return "spiritlevel doctor says what this machine can do; or use --backend cpu";
    case GpuErrorKind::kOutOfMemory:
      return "end what else uses the device's memory, or use another --device";
    case GpuErrorKind::kUnsupported:
      return "spiritlevel doctor says what this machine lacks; a newer driver may have it";
    case GpuErrorKind::kAsynchronous:
      return "the device is lost to this run: run it again; if it fails again, see the driver's "
             "log";
    case GpuErrorKind::kCommunication:
    case GpuErrorKind::kTimeout:
      return "see NCCL's own messages with NCCL_DEBUG=INFO; CUDA_VISIBLE_DEVICES=N leaves the "
             "other "
             "devices out";
    case GpuErrorKind::kOther:
      break;
  }
  return "spiritlevel doctor says what this machine can do; nothing was written";
}

double Since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Calibration CalibrateCuda(cuda::Layer* layer, const CudaCalibrationOptions& cuda,
                          CalibrationOptions options, const CalibrationObserver& observer) {
  const auto begin = std::chrono::steady_clock::now();
  const double seconds = options.seconds;
  RequireDevice(layer, cuda.settings ? cuda.settings->device : cuda.device);
  try {
    const CudaDeviceSettings settings = SettingsOf(layer, cuda);
    const cuda::DeviceInfo info = layer->Describe(settings.device);
    RequireKernels(info);
    if (options.plan.empty()) options.plan = MakeGpuPlan(options.quick);
    RequireMemory(layer, info, settings, options.plan);
    CudaDevice device(layer, settings);
    device.WarmUp();
    constexpr double kForPrimitives = 0.75;
    options.seconds = std::max(0.0, kForPrimitives * (seconds - Since(begin)));
    Calibration c = Calibrate(device, options, observer);
    const CudaSurveyPlan survey = cuda.survey ? *cuda.survey : MakeCudaSurveyPlan(options.quick);
    SurveyCuda(&device, survey, std::max(0.0, seconds - Since(begin)), options.stop, observer, &c);
    if (const auto reading = device.Sensors()) c.validity.sensors.push_back(*reading);
    c.seconds = Since(begin);
    CheckProfile(c.profile);
    return c;
  } catch (const GpuError& error) {
    throw InputError(fmt::format("--backend cuda: {}", error.what()), WayOutOf(error.kind()));
  }
}

}  // namespace spiritlevel
