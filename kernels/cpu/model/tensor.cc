#include "kernels/cpu/model/tensor.h"

#include <cstring>
#include <utility>

namespace spiritlevel::cpu {

Tensor::Tensor(MemoryMeter* meter, TensorUse use, DType type, int64_t rows, int64_t cols)
    : meter_(meter), rows_(rows), cols_(cols), use_(use), type_(type) {
  SPIRITLEVEL_CHECK(rows >= 0 && cols >= 0, "a tensor has rows and columns");
  data_ = meter->Allocate(use, bytes());
}

Tensor::Tensor(Tensor&& other) noexcept
    : meter_(other.meter_),
      data_(std::exchange(other.data_, nullptr)),
      rows_(std::exchange(other.rows_, 0)),
      cols_(std::exchange(other.cols_, 0)),
      use_(other.use_),
      type_(other.type_) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  meter_ = other.meter_;
  data_ = std::exchange(other.data_, nullptr);
  rows_ = std::exchange(other.rows_, 0);
  cols_ = std::exchange(other.cols_, 0);
  use_ = other.use_;
  type_ = other.type_;
  return *this;
}

Tensor Tensor::Copy(TensorUse use) const {
  SPIRITLEVEL_CHECK(!empty(), "what is copied is there");
  Tensor copy(meter_, use, type_, rows_, cols_);
  std::memcpy(copy.data_, data_, static_cast<size_t>(bytes()));
  return copy;
}

void Tensor::Reset() {
  if (data_ != nullptr) meter_->Free(use_, data_, bytes());
  data_ = nullptr;
  rows_ = 0;
  cols_ = 0;
}

void Tensor::Retag(TensorUse use) {
  SPIRITLEVEL_CHECK(!empty(), "what changes its use is there");
  if (use != use_) meter_->Retag(use_, use, bytes());
  use_ = use;
}

}  // namespace spiritlevel::cpu
