#include "kernels/cpu/model/scratch.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/model/bfloat16.h"

namespace spiritlevel::cpu {
namespace {

// `rows` adjacent rows.
template <typename T>
std::span<T> RowsOf(std::span<T> all, int64_t begin, int64_t rows, int64_t cols) {
  return all.subspan(static_cast<size_t>(begin * cols), static_cast<size_t>(rows * cols));
}

std::span<float> All(Matrix m) { return {m.data(), static_cast<size_t>(m.rows() * m.cols())}; }

bool IsFloat(const Tensor& tensor) { return tensor.type() == DType::kFloat32; }

}  // namespace

Scratch::Scratch(MemoryMeter* meter, Bytes size)
    : block_(meter, TensorUse::kWorkspace, DType::kFloat32, 1, size / 4) {}

float* Scratch::Take(int64_t floats) {
  float* const piece = block_.span().data() + used_;
  used_ += ScratchBytes(floats) / 4;
  most_used_ = std::max(most_used_, used_);
  SPIRITLEVEL_CHECK(used_ <= block_.size(), "a pass' workspace was counted right");
  return piece;
}

ConstMatrix Frame::Read(const Tensor& tensor, int64_t begin, int64_t rows) {
  if (IsFloat(tensor)) return tensor.floats().Rows(begin, rows);
  const Matrix wide = New(rows, tensor.cols());
  Widen(RowsOf(tensor.halves(), begin, rows, tensor.cols()), All(wide));
  return wide;
}

Matrix Frame::Write(Tensor* tensor, int64_t begin, int64_t rows) {
  if (IsFloat(*tensor)) return tensor->floats().Rows(begin, rows);
  return New(rows, tensor->cols());
}

Matrix Frame::Change(Tensor* tensor, int64_t begin, int64_t rows) {
  const Matrix wide = Write(tensor, begin, rows);
  if (!IsFloat(*tensor)) Widen(RowsOf(tensor->halves(), begin, rows, tensor->cols()), All(wide));
  return wide;
}

void Frame::Store(ConstMatrix values, Tensor* tensor, int64_t begin) {
  if (IsFloat(*tensor)) return;
  SPIRITLEVEL_CHECK(values.cols() == tensor->cols() && values.stride() == values.cols(),
                    "rows are stored as they are");
  Round({values.data(), static_cast<size_t>(values.rows() * values.cols())},
        RowsOf(tensor->halves(), begin, values.rows(), values.cols()));
}

void ReadRow(const Tensor& tensor, int64_t row, float* values) {
  const auto cols = static_cast<size_t>(tensor.cols());
  if (IsFloat(tensor)) {
    std::copy_n(tensor.floats().row(row), cols, values);
  } else {
    Widen(RowsOf(tensor.halves(), row, 1, tensor.cols()), {values, cols});
  }
}

void CopyRow(const Tensor& from, int64_t row, Tensor* to, int64_t to_row) {
  SPIRITLEVEL_CHECK(from.type() == to->type() && from.cols() == to->cols(), "rows are alike");
  const auto bytes = static_cast<size_t>(from.cols() * SizeOf(from.type()));
  std::memcpy(static_cast<char*>(to->data()) + static_cast<size_t>(to_row) * bytes,
              static_cast<const char*>(from.data()) + static_cast<size_t>(row) * bytes, bytes);
}

void Add(const Tensor& base, ConstMatrix change, Tensor* sum) {
  SPIRITLEVEL_CHECK(base.size() == change.rows() * change.cols() && base.size() == sum->size() &&
                        change.stride() == change.cols() && base.type() == sum->type(),
                    "what is added has one shape");
  const auto size = static_cast<size_t>(base.size());
  const float* const add = change.data();
  if (IsFloat(base)) {
    const float* const from = base.span().data();
    float* const to = sum->span().data();
#pragma omp simd
    for (size_t i = 0; i < size; ++i) to[i] = from[i] + add[i];
    return;
  }
  const uint16_t* const from = base.halves().data();
  uint16_t* const to = sum->halves().data();
#pragma omp simd
  for (size_t i = 0; i < size; ++i) to[i] = Round(Widen(from[i]) + add[i]);
}

}  // namespace spiritlevel::cpu
