// DeviceTensor: a matrix that owns its memory on a device, in the type it is stored in.
//
// Its end gives the memory back while work that was posted may still use it: the pool sees to it
// that nothing else gets it before that is done (buffer_pool.h).
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/model/device_context.h"

namespace spiritlevel::cuda {

class DeviceTensor {
 public:
  DeviceTensor() = default;
  // Its contents are anything. First used on the context's compute stream, or on `first`.
  DeviceTensor(const DeviceContext& context, TensorUse use, ElementType type, int64_t rows,
               int64_t cols)
      : DeviceTensor(context.pool, context.compute, use, type, rows, cols) {}
  DeviceTensor(BufferPool* pool, Stream first, TensorUse use, ElementType type, int64_t rows,
               int64_t cols)
      : buffer_(pool->Take(use, rows * cols * SizeOf(type), first)),
        type_(type),
        rows_(rows),
        cols_(cols) {}

  void Reset() { buffer_.Reset(); }
  void Retag(TensorUse use) { buffer_.Retag(use); }
  // Beside the stream that it was made for; see Buffer.
  void UsedOn(Stream stream) { buffer_.UsedOn(stream); }

  bool empty() const { return buffer_.empty(); }
  int64_t rows() const { return empty() ? 0 : rows_; }
  int64_t cols() const { return empty() ? 0 : cols_; }
  int64_t size() const { return rows() * cols(); }
  Bytes bytes() const { return buffer_.bytes(); }
  ElementType type() const { return type_; }
  TensorUse use() const { return buffer_.use(); }
  void* data() const { return buffer_.data(); }
  View view() const { return empty() ? View() : Dense(data(), type_, rows_, cols_); }

 private:
  Buffer buffer_;
  ElementType type_ = ElementType::kFloat32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

// to = from, on the context's stream. Of one type and size.
void PostCopy(const DeviceContext& context, const DeviceTensor& from, DeviceTensor* to);
// A tensor like `from`, with its bits.
DeviceTensor CopyOf(const DeviceContext& context, const DeviceTensor& from, TensorUse use);

// The host's side of it, for what is read and written rarely: both wait for the stream.
std::vector<std::byte> BitsOf(const DeviceContext& context, const DeviceTensor& tensor);
std::vector<float> FloatsOf(const DeviceContext& context, const DeviceTensor& tensor);  // widened
void SetBits(const DeviceContext& context, const void* bits, DeviceTensor* tensor);
void SetFloats(const DeviceContext& context, const std::vector<float>& values,
               DeviceTensor* tensor);  // rounded to its type

}  // namespace spiritlevel::cuda
