// Tensor: a matrix that owns its memory, in the type it is stored in.
//
// Kernels compute in fp32: a bf16 tensor is widened on the way in and rounded on the way out
// (scratch.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"
#include "kernels/cpu/matrix.h"
#include "kernels/cpu/model/memory_meter.h"

namespace spiritlevel::cpu {

enum class DType : uint8_t { kFloat32, kBFloat16, kInt32 };

constexpr Bytes SizeOf(DType type) { return type == DType::kBFloat16 ? 2 : 4; }

class Tensor {
 public:
  Tensor() = default;
  // Its contents are anything.
  Tensor(MemoryMeter* meter, TensorUse use, DType type, int64_t rows, int64_t cols);
  ~Tensor() { Reset(); }
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  Tensor Copy(TensorUse use) const;
  void Reset();  // frees it
  void Retag(TensorUse use);

  bool empty() const { return data_ == nullptr; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t size() const { return rows_ * cols_; }
  Bytes bytes() const { return size() * SizeOf(type_); }
  DType type() const { return type_; }
  TensorUse use() const { return use_; }

  // Rows without gaps; only of the type asked for.
  Matrix floats() { return {As<float>(DType::kFloat32), rows_, cols_}; }
  ConstMatrix floats() const { return {As<float>(DType::kFloat32), rows_, cols_}; }
  std::span<float> span() { return {As<float>(DType::kFloat32), static_cast<size_t>(size())}; }
  std::span<const float> span() const {
    return {As<float>(DType::kFloat32), static_cast<size_t>(size())};
  }
  std::span<int32_t> ints() { return {As<int32_t>(DType::kInt32), static_cast<size_t>(size())}; }
  std::span<const int32_t> ints() const {
    return {As<int32_t>(DType::kInt32), static_cast<size_t>(size())};
  }
  std::span<uint16_t> halves() {
    return {As<uint16_t>(DType::kBFloat16), static_cast<size_t>(size())};
  }
  std::span<const uint16_t> halves() const {
    return {As<uint16_t>(DType::kBFloat16), static_cast<size_t>(size())};
  }

  // For sending, receiving and comparing.
  void* data() { return data_; }
  const void* data() const { return data_; }

 private:
  template <typename T>
  T* As(DType type) const {
    SPIRITLEVEL_CHECK(type == type_ && data_ != nullptr, "a tensor is read as what it holds");
    return static_cast<T*>(data_);
  }

  MemoryMeter* meter_ = nullptr;
  void* data_ = nullptr;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  TensorUse use_ = TensorUse::kWorkspace;
  DType type_ = DType::kFloat32;
};

}  // namespace spiritlevel::cpu
