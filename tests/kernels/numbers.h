// Matrices for the tests of kernels, and gradients by differences in float64.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/matrix.h"

namespace spiritlevel {

// Row by row, without gaps.
using Doubles = std::vector<double>;

// An fp32 matrix whose rows lie apart, and what lies between them is watched.
class Strided {
 public:
  // Numbers between -1 and 1 from `random`.
  Strided(int64_t rows, int64_t cols, std::mt19937* random);
  // All `value`.
  Strided(int64_t rows, int64_t cols, float value);

  cpu::Matrix view() { return cpu::Matrix(numbers_.data(), rows_, cols_, stride_); }
  Doubles values() const;
  // True while nobody has written between the rows or behind the last.
  bool GapsAreUntouched() const;

 private:
  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  std::vector<float> numbers_;
};

Doubles RandomDoubles(size_t count, std::mt19937* random);
std::vector<float> Floats(const Doubles& values);
Doubles AsDoubles(const std::vector<float>& values);

double Dot(const Doubles& a, const Doubles& b);

// d f / d x by central differences.
Doubles Gradient(const std::function<double(const Doubles&)>& f, const Doubles& x);

// The largest |a - b| over the largest |b|: the error in units of the result. 1 where sizes differ.
double RelativeError(const Doubles& a, const Doubles& b);

// C [m x n] = A [m x k] B [k x n] in float64.
Doubles Product(const Doubles& a, const Doubles& b, int64_t m, int64_t n, int64_t k);

}  // namespace spiritlevel
