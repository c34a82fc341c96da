#include "tests/kernels/numbers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spiritlevel {
namespace {

constexpr float kGap = 12345.0f;
constexpr int64_t kGapWidth = 3;  // no multiple of anything a vector unit likes

}  // namespace

Strided::Strided(int64_t rows, int64_t cols, float value)
    : rows_(rows),
      cols_(cols),
      stride_(cols + kGapWidth),
      numbers_(static_cast<size_t>(rows * stride_), kGap) {
  for (int64_t i = 0; i < rows; ++i) std::fill_n(view().row(i), cols, value);
}

Strided::Strided(int64_t rows, int64_t cols, std::mt19937* random) : Strided(rows, cols, 0.0f) {
  std::uniform_real_distribution<float> between(-1, 1);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) view()(i, j) = between(*random);
  }
}

Doubles Strided::values() const {
  Doubles values;
  for (int64_t i = 0; i < rows_; ++i) {
    values.insert(values.end(), numbers_.begin() + i * stride_,
                  numbers_.begin() + i * stride_ + cols_);
  }
  return values;
}

bool Strided::GapsAreUntouched() const {
  for (size_t i = 0; i < numbers_.size(); ++i) {
    if (static_cast<int64_t>(i) % stride_ >= cols_ && numbers_[i] != kGap) return false;
  }
  return true;
}

Doubles RandomDoubles(size_t count, std::mt19937* random) {
  std::uniform_real_distribution<float> between(-1, 1);
  Doubles values(count);
  for (double& value : values) value = between(*random);
  return values;
}

std::vector<float> Floats(const Doubles& values) {
  std::vector<float> floats;
  for (const double value : values) floats.push_back(static_cast<float>(value));
  return floats;
}

Doubles AsDoubles(const std::vector<float>& values) {
  return Doubles(values.begin(), values.end());
}

double Dot(const Doubles& a, const Doubles& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Doubles Gradient(const std::function<double(const Doubles&)>& f, const Doubles& x) {
  constexpr double kStep = 1e-5;
  Doubles gradient;
  Doubles moved = x;
  for (size_t i = 0; i < x.size(); ++i) {
    moved[i] = x[i] + kStep;
    const double above = f(moved);
    moved[i] = x[i] - kStep;
    const double below = f(moved);
    moved[i] = x[i];
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

double RelativeError(const Doubles& a, const Doubles& b) {
  if (a.size() != b.size()) return 1;
  double difference = 0;
  double largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    // Written so that NaN counts as wrong.
    if (!(std::abs(a[i] - b[i]) <= difference)) difference = std::abs(a[i] - b[i]);
    largest = std::max(largest, std::abs(b[i]));
  }
  return std::isnan(difference) ? 1 : difference / largest;
}

Doubles Product(const Doubles& a, const Doubles& b, int64_t m, int64_t n, int64_t k) {
  Doubles c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + l] * b[l * n + j];
    }
  }
  return c;
}

}  // namespace spiritlevel
