#include "kernels/cuda/model/device_parameters.h"

#include "base/check.h"
#include "kernels/cpu/model/parameters.h"

namespace spiritlevel::cuda {

ElementType StorageOf(const cpu::ModelShape& shape) {
  SPIRITLEVEL_CHECK(shape.storage != cpu::DType::kInt32, "values are floating-point");
  return shape.storage == cpu::DType::kFloat32 ? ElementType::kFloat32 : ElementType::kBFloat16;
}

DeviceParameters::DeviceParameters(const cpu::ModelShape& shape, const cpu::StageRange& range,
                                   const DeviceContext& context)
    : context_(context), infos_(cpu::ParametersOf(shape, range)), seed_(shape.seed) {
  std::vector<float> exact;
  for (const cpu::ParameterInfo& info : infos_) {
    exact.resize(static_cast<size_t>(info.size()));
    cpu::InitialValues(info, seed_, exact);
    values_.emplace_back(context_, TensorUse::kParameters, StorageOf(shape), info.rows, info.cols);
    SetFloats(context_, exact, &values_.back());
  }
}

int DeviceParameters::Find(std::string_view name) const {
  for (int i = 0; i < size(); ++i) {
    if (info(i).name == name) return i;
  }
  return -1;
}

int64_t DeviceParameters::num_elements() const {
  int64_t sum = 0;
  for (const cpu::ParameterInfo& info : infos_) sum += info.size();
  return sum;
}

DeviceGradients::DeviceGradients(const DeviceParameters& parameters)
    : context_(parameters.context()) {
  for (int i = 0; i < parameters.size(); ++i) {
    const cpu::ParameterInfo& info = parameters.info(i);
    sums_.emplace_back(context_, TensorUse::kGradients, ElementType::kFloat32, info.rows,
                       info.cols);
  }
  Zero();
}

void DeviceGradients::Zero() {
  for (const DeviceTensor& sum : sums_) context_.Post(Fill{.to = sum.view(), .value = 0});
}

void DeviceGradients::Add(const DeviceGradients& other) {
  SPIRITLEVEL_CHECK(size() == other.size(), "two gradients of one stage");
  for (int i = 0; i < size(); ++i) {
    const View to = sum(i).view();
    context_.Post(cuda::Add{.a = to, .b = other.sum(i).view(), .to = to});
  }
}

}  // namespace spiritlevel::cuda
