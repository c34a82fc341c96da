// Views of fp32 matrices that somebody else owns: rows of `cols` adjacent floats, `stride` floats
// from one row to the next. What is a part of a larger matrix (the columns of one attention head,
// the rows of one tile) is a view with the larger one's stride.
//
//   const Matrix y(data, 128, 512);
//   y.Columns(64, 32)(3, 0);   // == y(3, 64)
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/check.h"

namespace spiritlevel::cpu {

template <typename T>
class BasicMatrix {
 public:
  BasicMatrix() = default;
  BasicMatrix(T* data, int64_t rows, int64_t cols) : BasicMatrix(data, rows, cols, cols) {}
  BasicMatrix(T* data, int64_t rows, int64_t cols, int64_t stride)
      : data_(data), rows_(rows), cols_(cols), stride_(stride) {
    SPIRITLEVEL_CHECK(rows >= 0 && cols >= 0 && stride >= cols, "the rows of a matrix are apart");
  }
  // What may be written may be read.
  template <typename U>
  requires(std::is_const_v<T>&& std::is_same_v<U, std::remove_const_t<T>>)
      BasicMatrix(const BasicMatrix<U>& other)  // NOLINT: meant to be implicit
      : BasicMatrix(other.data(), other.rows(), other.cols(), other.stride()) {}

  T* data() const { return data_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t stride() const { return stride_; }
  T* row(int64_t i) const { return data_ + i * stride_; }
  T& operator()(int64_t i, int64_t j) const { return data_[i * stride_ + j]; }

  BasicMatrix Rows(int64_t begin, int64_t count) const {
    SPIRITLEVEL_CHECK(begin >= 0 && count >= 0 && begin + count <= rows_, "rows are in the matrix");
    return BasicMatrix(data_ + begin * stride_, count, cols_, stride_);
  }
  BasicMatrix Columns(int64_t begin, int64_t count) const {
    SPIRITLEVEL_CHECK(begin >= 0 && count >= 0 && begin + count <= cols_, "columns are in it");
    return BasicMatrix(data_ + begin, rows_, count, stride_);
  }

 private:
  T* data_ = nullptr;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t stride_ = 0;
};

using Matrix = BasicMatrix<float>;
using ConstMatrix = BasicMatrix<const float>;

template <typename A, typename B>
bool SameShape(const BasicMatrix<A>& a, const BasicMatrix<B>& b) {
  return a.rows() == b.rows() && a.cols() == b.cols();
}

}  // namespace spiritlevel::cpu
