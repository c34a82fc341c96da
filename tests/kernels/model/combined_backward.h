// Both gradients of an operator in one plain loop nest, as a framework without split passes has
// them: written from the formulas, in any precision, without any of the kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spiritlevel {

template <typename T>
struct Backward {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;  // from one row to the next
  const T* dy = nullptr;
  int64_t dy_stride = 0;
  std::span<const T> parameters{};  // the weight, then the bias if there is one
  T epsilon = 0;
  T* dx = nullptr;             // rows * in, without gaps; 0 before
  std::span<T> dparameters{};  // added to

  T X(int64_t row, int64_t col) const { return x[row * x_stride + col]; }
  T Dy(int64_t row, int64_t col) const { return dy[row * dy_stride + col]; }
  T Parameter(int64_t i) const { return parameters[static_cast<size_t>(i)]; }
  T& Dx(int64_t row, int64_t col) const { return dx[row * in + col]; }
  T& DParameter(int64_t i) const { return dparameters[static_cast<size_t>(i)]; }
};

// y = x W [+ b]
template <typename T>
void LinearBackward(const Backward<T>& at) {
  const bool has_bias = std::ssize(at.parameters) > at.in * at.out;
  for (int64_t row = 0; row < at.rows; ++row) {
    for (int64_t j = 0; j < at.out; ++j) {
      const T dy = at.Dy(row, j);
      for (int64_t i = 0; i < at.in; ++i) {
        at.Dx(row, i) += at.Parameter(i * at.out + j) * dy;
        at.DParameter(i * at.out + j) += at.X(row, i) * dy;
      }
      if (has_bias) at.DParameter(at.in * at.out + j) += dy;
    }
  }
}

// y = x W^T
template <typename T>
void HeadBackward(const Backward<T>& at) {
  for (int64_t row = 0; row < at.rows; ++row) {
    for (int64_t j = 0; j < at.out; ++j) {
      for (int64_t i = 0; i < at.in; ++i) {
        at.Dx(row, i) += at.Parameter(j * at.in + i) * at.Dy(row, j);
        at.DParameter(j * at.in + i) += at.X(row, i) * at.Dy(row, j);
      }
    }
  }
}

// y_j = w_j z_j [+ b_j], z = (x - m) r: dz_j = w_j dy_j, and by the chain rule through r, and m
// where there is one, dx_i = sum over j of dz_j dz_j/dx_i, the Jacobian written out entry by entry.
template <typename T>
void NormBackward(const Backward<T>& at, bool is_centred) {
  const T n = static_cast<T>(at.in);
  for (int64_t row = 0; row < at.rows; ++row) {
    T mean = 0;
    for (int64_t i = 0; is_centred && i < at.in; ++i) mean += at.X(row, i) / n;
    T variance = 0;
    for (int64_t i = 0; i < at.in; ++i) {
      variance += (at.X(row, i) - mean) * (at.X(row, i) - mean) / n;
    }
    const T r = 1 / std::sqrt(variance + at.epsilon);
    for (int64_t j = 0; j < at.in; ++j) {
      const T z = (at.X(row, j) - mean) * r;
      at.DParameter(j) += z * at.Dy(row, j);
      if (is_centred) at.DParameter(at.in + j) += at.Dy(row, j);
      for (int64_t i = 0; i < at.in; ++i) {
        const T own = (i == j ? T{1} : T{0}) - (is_centred ? 1 / n : T{0});
        const T jacobian = r * (own - z * (at.X(row, i) - mean) * r / n);
        at.Dx(row, i) += at.Parameter(j) * at.Dy(row, j) * jacobian;
      }
    }
  }
}

template <typename T>
void RmsNormBackward(const Backward<T>& at) {
  NormBackward(at, false);
}

template <typename T>
void LayerNormBackward(const Backward<T>& at) {
  NormBackward(at, true);
}

// y = the row of the table that the token names; nothing flows back to tokens.
template <typename T>
void EmbeddingBackward(const std::vector<int32_t>& tokens, const Backward<T>& at) {
  for (int64_t row = 0; row < at.rows; ++row) {
    const int64_t token = tokens[static_cast<size_t>(row)];
    for (int64_t j = 0; j < at.out; ++j) at.DParameter(token * at.out + j) += at.Dy(row, j);
  }
}

}  // namespace spiritlevel
