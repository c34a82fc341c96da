// Fits: from samples to the few numbers of a model.
//
// All minimise the sum of |predicted - measured| / measured: relative, since a size that takes
// microseconds counts as much as one that takes seconds; and absolute values, not squares, since
// then a few samples that somebody disturbed do not move the result (least absolute deviations, by
// reweighted least squares).
#pragma once

#include <span>

#include "models/device_profile.h"

namespace spiritlevel {

struct FitPoint {
  double units = 0;  // > 0
  double ns = 0;     // > 0
};

// ns = base + units * per_unit, neither negative. Needs two different sizes.
LinearFit FitLine(std::span<const FitPoint> points);

// A factor in size between two knots of a curve: as a rate usually bends, and as it does where a
// row outgrows a cache.
inline constexpr double kUsuallyApart = 3;
inline constexpr double kCloselyApart = 2;

// A curve with knots evenly apart in the logarithm of the size, at most one for every two points.
// Needs two different sizes.
RateCurve FitRateCurve(std::span<const FitPoint> points, double apart = kUsuallyApart);

// A line; or a curve, where that clearly does better at points it was not made of: each but the
// smallest and the largest is left out in turn. Its knots are closer where that does better again.
// Needs two different sizes.
SizeFit FitSizes(std::span<const FitPoint> points);

struct GemmPoint {
  Gemm gemm;
  double ns = 0;  // > 0
};

// The curve over padded FLOP, and the padding under which the points lie closest to one curve. From
// fewer than 8 points none is told from noise, and it is 0.
struct GemmFit {
  RateCurve curve;
  GemmPadding padding;
};
GemmFit FitGemm(std::span<const GemmPoint> points);

// Enough different sizes for the fits above.
bool SufficeForFit(std::span<const FitPoint> points);

}  // namespace spiritlevel
