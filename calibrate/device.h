// Device: what calibration needs of a backend. kernels/cpu is behind CpuDevice, a GPU's kernels,
// streams and events behind CudaDevice.
//
// None of this is on a hot path: what a workload runs is the backend's own kernel.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>

#include "base/units.h"
#include "calibrate/machine.h"
#include "calibrate/measure.h"
#include "models/kernel.h"

namespace spiritlevel {

// Beside the kernels of models/kernel.h, which passes are made of.
struct OptimizerStep {
  int64_t parameters = 0;
};
struct EmptyOp {};  // the way to a kernel, without one

using Work = std::variant<Kernel, OptimizerStep, EmptyOp>;

// One piece of work with its operands in the device's memory.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual void Run() = 0;
  // True where it waits for another rank: that wait belongs to its time.
  virtual bool waits() const { return false; }
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;
  virtual MeasuredMachine machine() const = 0;
  virtual Software software() const = 0;
  virtual DType dtype() const { return DType::kFloat32; }

  // One kernel of each KernelClass, long enough to be seen by and short enough to be timed often.
  virtual std::array<Kernel, kNumKernelClasses> References() const;

  // Asked while it is warm from work; none where it has no sensors.
  virtual std::optional<SensorReading> Sensors() { return std::nullopt; }

  // Operands are as cold as in training, where other layers' data have passed through the caches
  // since a kernel last saw its own: a workload rotates through several sets of them. Null where
  // the device has no memory, or no kernel, for it.
  virtual std::unique_ptr<Workload> Prepare(const Work& work) = 0;

  // Runs it `repeats` times, one after the other, to the end.
  virtual Timing Time(Workload& workload, int repeats) = 0;

  // Runs `body` while every other core (partition, ...) of the device repeats `work`. Returns how
  // many others there are.
  virtual int WhileOthersRun(const Work& work, const std::function<void()>& body) = 0;

  // Sends `bytes` from this rank to another and back.
  virtual std::unique_ptr<Workload> PrepareRoundTrip(Bytes bytes) = 0;
};

}  // namespace spiritlevel
