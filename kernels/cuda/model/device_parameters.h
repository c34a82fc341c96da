// The parameters of a stage on a device, and accumulators for their gradients.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/cpu/model/model_shape.h"
#include "kernels/cuda/model/device_tensor.h"

namespace spiritlevel::cuda {

// The device's type for values of the model.
ElementType StorageOf(const cpu::ModelShape& shape);

// As cpu::ParameterStore: the same parameters in the same order, with the same bits to begin with.
class DeviceParameters {
 public:
  DeviceParameters(const cpu::ModelShape& shape, const cpu::StageRange& range,
                   const DeviceContext& context);

  int size() const { return static_cast<int>(infos_.size()); }
  const cpu::ParameterInfo& info(int i) const { return infos_[static_cast<size_t>(i)]; }
  DeviceTensor& value(int i) { return values_[static_cast<size_t>(i)]; }
  const DeviceTensor& value(int i) const { return values_[static_cast<size_t>(i)]; }
  int Find(std::string_view name) const;  // -1: none

  // Counts optimizer steps. Undoing one puts the older number back.
  int64_t version() const { return version_; }
  void set_version(int64_t version) { version_ = version; }

  int64_t num_elements() const;
  const DeviceContext& context() const { return context_; }
  uint64_t seed() const { return seed_; }

 private:
  DeviceContext context_;
  std::vector<cpu::ParameterInfo> infos_;
  std::vector<DeviceTensor> values_;
  uint64_t seed_;
  int64_t version_ = 0;
};

// One fp32 sum for each parameter, in their order. W adds to it.
class DeviceGradients {
 public:
  explicit DeviceGradients(const DeviceParameters& parameters);  // all 0

  int size() const { return static_cast<int>(sums_.size()); }
  DeviceTensor& sum(int i) { return sums_[static_cast<size_t>(i)]; }
  const DeviceTensor& sum(int i) const { return sums_[static_cast<size_t>(i)]; }
  void Zero();
  // sum(i) += other.sum(i) for all i: of DualPipe's twins.
  void Add(const DeviceGradients& other);

 private:
  DeviceContext context_;
  std::vector<DeviceTensor> sums_;
};

}  // namespace spiritlevel::cuda
