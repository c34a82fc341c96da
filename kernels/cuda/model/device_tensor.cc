#include "kernels/cuda/model/device_tensor.h"

#include <cstring>

#include "base/check.h"
#include "kernels/cpu/model/bfloat16.h"

namespace spiritlevel::cuda {

void PostCopy(const DeviceContext& context, const DeviceTensor& from, DeviceTensor* to) {
  SPIRITLEVEL_CHECK(from.bytes() == to->bytes() && from.type() == to->type(),
                    "a copy is of one type and size");
  context.layer->Copy(context.compute, to->data(), from.data(), from.bytes());
}

DeviceTensor CopyOf(const DeviceContext& context, const DeviceTensor& from, TensorUse use) {
  DeviceTensor copy(context, use, from.type(), from.rows(), from.cols());
  PostCopy(context, from, &copy);
  return copy;
}

std::vector<std::byte> BitsOf(const DeviceContext& context, const DeviceTensor& tensor) {
  std::vector<std::byte> bits(static_cast<size_t>(tensor.bytes()));
  context.staging->DownloadNow(context.compute, bits.data(), tensor.data(), tensor.bytes());
  return bits;
}

std::vector<float> FloatsOf(const DeviceContext& context, const DeviceTensor& tensor) {
  const std::vector<std::byte> bits = BitsOf(context, tensor);
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  if (tensor.type() == ElementType::kFloat32) {
    std::memcpy(values.data(), bits.data(), bits.size());
    return values;
  }
  SPIRITLEVEL_CHECK(tensor.type() == ElementType::kBFloat16, "floats are fp32 or bf16");
  std::vector<uint16_t> halves(values.size());
  std::memcpy(halves.data(), bits.data(), bits.size());
  cpu::Widen(halves, values);
  return values;
}

void SetBits(const DeviceContext& context, const void* bits, DeviceTensor* tensor) {
  context.staging->UploadNow(context.compute, tensor->data(), bits, tensor->bytes());
}

void SetFloats(const DeviceContext& context, const std::vector<float>& values,
               DeviceTensor* tensor) {
  SPIRITLEVEL_CHECK(static_cast<int64_t>(values.size()) == tensor->size(), "all of a tensor");
  if (tensor->type() == ElementType::kFloat32) {
    SetBits(context, values.data(), tensor);
    return;
  }
  SPIRITLEVEL_CHECK(tensor->type() == ElementType::kBFloat16, "floats are fp32 or bf16");
  std::vector<uint16_t> halves(values.size());
  cpu::Round(values, halves);
  SetBits(context, halves.data(), tensor);
}

}  // namespace spiritlevel::cuda
