// The parameters of a stage, and accumulators for their gradients.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cpu/model/model_shape.h"
#include "kernels/cpu/model/tensor.h"

namespace spiritlevel::cpu {

// Parameters in the model's storage type. Their first values depend on the seed and their names
// alone, so the same parameter has the same bits however the model is cut.
class ParameterStore {
 public:
  ParameterStore(const ModelShape& shape, const StageRange& range, MemoryMeter* meter);

  int size() const { return static_cast<int>(infos_.size()); }
  const ParameterInfo& info(int i) const { return infos_[static_cast<size_t>(i)]; }
  Tensor& value(int i) { return values_[static_cast<size_t>(i)]; }
  const Tensor& value(int i) const { return values_[static_cast<size_t>(i)]; }
  int Find(std::string_view name) const;  // -1: none

  // Counts optimizer steps. Undoing one puts the older number back.
  int64_t version() const { return version_; }
  void set_version(int64_t version) { version_ = version; }

  int64_t num_elements() const;
  MemoryMeter* meter() const { return meter_; }
  uint64_t seed() const { return seed_; }

 private:
  std::vector<ParameterInfo> infos_;
  std::vector<Tensor> values_;
  MemoryMeter* meter_;
  uint64_t seed_;
  int64_t version_ = 0;
};

// What a parameter begins with, in fp32: what bf16 parameters are rounded from.
void InitialValues(const ParameterInfo& info, uint64_t seed, std::span<float> values);

// One fp32 sum for each parameter of a store, in its order. W adds to it.
class GradientStore {
 public:
  explicit GradientStore(const ParameterStore& parameters);  // all 0

  int size() const { return static_cast<int>(sums_.size()); }
  Tensor& sum(int i) { return sums_[static_cast<size_t>(i)]; }
  const Tensor& sum(int i) const { return sums_[static_cast<size_t>(i)]; }
  void Zero();
  // sum(i) += other.sum(i) for all i: of DualPipe's twins.
  void Add(const GradientStore& other);

 private:
  std::vector<Tensor> sums_;
};

}  // namespace spiritlevel::cpu
