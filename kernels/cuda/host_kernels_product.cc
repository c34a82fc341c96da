#include "kernels/cuda/host_kernels_product.h"

#include <vector>

#include "kernels/cuda/math/rows.h"

namespace spiritlevel::cuda {
namespace {

struct Operand {
  int64_t rows;
  int64_t cols;
  std::vector<float> values;  // row by row
};

Operand Widened(const View& view, bool transpose) {
  Operand out{transpose ? view.cols : view.rows, transpose ? view.rows : view.cols, {}};
  out.values.resize(static_cast<size_t>(view.size()));
  WithAnyFloat(view.type, [&](auto element) {
    using T = decltype(element);
    const Rows<const T> rows = RowsOf<const T>(view);
    for (int64_t i = 0; i < view.rows; ++i) {
      for (int64_t j = 0; j < view.cols; ++j) {
        const int64_t at = transpose ? j * view.rows + i : i * view.cols + j;
        out.values[static_cast<size_t>(at)] = ToFloat(rows.row(i)[j]);
      }
    }
  });
  return out;
}

// sums [cols of b] = row i of a, times b.
void MultiplyRow(const Operand& a, int64_t i, const Operand& b, std::vector<float>* sums) {
  sums->assign(static_cast<size_t>(b.cols), 0.0f);
  for (int64_t k = 0; k < a.cols; ++k) {
    const float factor = a.values[static_cast<size_t>(i * a.cols + k)];
    const float* const row = b.values.data() + k * b.cols;
    for (int64_t j = 0; j < b.cols; ++j) (*sums)[static_cast<size_t>(j)] += factor * row[j];
  }
}

}  // namespace

void RunProductOnHost(const Product& product) {
  const Operand a = Widened(product.a, product.transpose_a);
  const Operand b = Widened(product.b, product.transpose_b);
  float alpha = product.alpha;
  if (product.scale_a != nullptr) alpha *= *product.scale_a;
  if (product.scale_b != nullptr) alpha *= *product.scale_b;
  std::vector<float> sums;
  WithStorage(product.c.type, [&](auto element) {
    using T = decltype(element);
    const Rows<T> c = RowsOf<T>(product.c);
    for (int64_t i = 0; i < a.rows; ++i) {
      MultiplyRow(a, i, b, &sums);
      for (int64_t j = 0; j < b.cols; ++j) {
        T& out = c.row(i)[j];
        const float before = product.beta == 0 ? 0.0f : product.beta * ToFloat(out);
        out = FromFloat<T>(alpha * sums[static_cast<size_t>(j)] + before);
      }
    }
  });
}

}  // namespace spiritlevel::cuda
