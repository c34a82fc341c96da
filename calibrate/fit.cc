#include "calibrate/fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"

namespace spiritlevel {
namespace {

// Below this a deviation counts as none; it keeps the weights finite.
constexpr double kSmallDeviation = 1e-4;
constexpr int kRounds = 30;

// x that minimises |A x - b|_1 + ridge |x R|^2, by repeatedly solving least squares in which each
// row weighs 1 / its last deviation (Schlossmacher 1973).
Eigen::VectorXd LeastDeviations(const Eigen::MatrixXd& a, const Eigen::VectorXd& b,
                                const Eigen::MatrixXd& penalty) {
  Eigen::VectorXd weights = Eigen::VectorXd::Ones(b.size());
  Eigen::VectorXd x = Eigen::VectorXd::Zero(a.cols());
  for (int round = 0; round < kRounds; ++round) {
    const Eigen::MatrixXd weighted = a.transpose() * weights.asDiagonal();
    x = (weighted * a + penalty).ldlt().solve(weighted * b);
    weights = (a * x - b).cwiseAbs().cwiseMax(kSmallDeviation).cwiseInverse();
  }
  return x;
}

// The factor for one column alone: the weighted median of the ratios would do, the same code does.
double LeastDeviationFactor(const Eigen::VectorXd& column, const Eigen::VectorXd& b) {
  return std::max(0.0, LeastDeviations(column, b, Eigen::MatrixXd::Zero(1, 1))(0));
}

struct Range {
  double smallest = 0;
  double largest = 0;
};

Range SizesOf(std::span<const FitPoint> points) {
  const auto [low, high] =
      std::minmax_element(points.begin(), points.end(),
                          [](const FitPoint& a, const FitPoint& b) { return a.units < b.units; });
  return {low->units, high->units};
}

// Sizes a factor of this apart are told from each other.
constexpr double kDifferent = 1.01;

// About two points for each knot, and no more than one for every factor `apart` in size: a curve
// that follows every point would follow the noise.
int KnotsFor(const Range& range, size_t points, double apart) {
  const double by_size = std::log(range.largest / range.smallest) / std::log(apart) + 1;
  const auto by_points = static_cast<double>(points) / 2 + 1;
  return std::max(2, static_cast<int>(std::min(by_size, by_points)));
}

// Sum of |predicted - measured| / measured over points that the fit was not made of. The ends stay
// in, since neither form claims anything beyond the sizes measured.
template <typename Fit>
double DeviationOfLeftOut(std::span<const FitPoint> points, const Fit& fit) {
  const Range range = SizesOf(points);
  double deviation = 0;
  for (size_t out = 0; out < points.size(); ++out) {
    const FitPoint& point = points[out];
    if (point.units <= range.smallest || point.units >= range.largest) continue;
    std::vector<FitPoint> others(points.begin(), points.end());
    others.erase(others.begin() + static_cast<int64_t>(out));
    deviation += std::abs(fit(others).At(point.units) - point.ns) / point.ns;
  }
  return deviation;
}

// With its sum of relative deviations.
std::pair<RateCurve, double> FitPadded(std::span<const GemmPoint> points,
                                       const GemmPadding& padding) {
  std::vector<FitPoint> padded;
  for (const GemmPoint& point : points) {
    padded.push_back({.units = PaddedFlops(point.gemm, padding), .ns = point.ns});
  }
  RateCurve curve = FitRateCurve(padded);
  double deviation = 0;
  for (const FitPoint& point : padded) {
    deviation += std::abs(std::log(curve.At(point.units) / point.ns));
  }
  return {std::move(curve), deviation};
}

}  // namespace

bool SufficeForFit(std::span<const FitPoint> points) {
  if (points.size() < 2) return false;
  const Range range = SizesOf(points);
  return range.smallest > 0 && range.largest >= kDifferent * range.smallest;
}

LinearFit FitLine(std::span<const FitPoint> points) {
  SPIRITLEVEL_CHECK(SufficeForFit(points), "a line goes through two points");
  const auto count = static_cast<Eigen::Index>(points.size());
  // Divided by the measured time each row asks for 1; units are scaled so that columns are alike.
  const double scale = SizesOf(points).largest;
  Eigen::MatrixXd a(count, 2);
  for (Eigen::Index i = 0; i < count; ++i) {
    const FitPoint& point = points[i];
    a.row(i) << 1 / point.ns, point.units / scale / point.ns;
  }
  const Eigen::VectorXd column_scale = a.colwise().maxCoeff().transpose();
  a = a * column_scale.cwiseInverse().asDiagonal();
  const Eigen::VectorXd b = Eigen::VectorXd::Ones(count);
  Eigen::VectorXd x = LeastDeviations(a, b, Eigen::MatrixXd::Zero(2, 2));
  // A negative base or rate would be nonsense outside the sizes measured.
  if (x(0) < 0) x << 0, LeastDeviationFactor(a.col(1), b);
  if (x(1) < 0) x << LeastDeviationFactor(a.col(0), b), 0;
  return {.base_ns = x(0) / column_scale(0), .per_unit_ns = x(1) / column_scale(1) / scale};
}

RateCurve FitRateCurve(std::span<const FitPoint> points, double apart) {
  SPIRITLEVEL_CHECK(SufficeForFit(points), "a curve goes through two points");
  const Range range = SizesOf(points);
  const int knots = KnotsFor(range, points.size(), apart);
  const double step = std::log(range.largest / range.smallest) / (knots - 1);
  const auto count = static_cast<Eigen::Index>(points.size());
  // The logarithm of the rate at a size is a mean of those at the two knots beside it.
  Eigen::MatrixXd a = Eigen::MatrixXd::Zero(count, knots);
  Eigen::VectorXd b(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const double at = std::log(points[i].units / range.smallest) / step;
    const int below = std::clamp(static_cast<int>(at), 0, knots - 2);
    a(i, below) = 1 - (at - below);
    a(i, below + 1) = at - below;
    b(i) = std::log(points[i].ns / points[i].units);
  }
  // Bends cost a little, so that a knot with no point near lies between its neighbours.
  Eigen::MatrixXd bends = Eigen::MatrixXd::Zero(std::max(knots - 2, 1), knots);
  for (int i = 0; i + 2 < knots; ++i) bends.row(i).segment(i, 3) << 1, -2, 1;
  constexpr double kBendPenalty = 0.05;
  const Eigen::VectorXd x = LeastDeviations(a, b, kBendPenalty * bends.transpose() * bends);
  RateCurve curve;
  for (int i = 0; i < knots; ++i) {
    curve.points.push_back(
        {.units = range.smallest * std::exp(step * i), .ns_per_unit = std::exp(x(i))});
  }
  return curve;
}

SizeFit FitSizes(std::span<const FitPoint> points) {
  // Fewer points cannot tell a bend from noise.
  constexpr size_t kFewestForCurve = 6;
  // More numbers must be worth it, and a line's two hold beyond the sizes measured too. Asked for
  // less of the usual curve: one that follows noise is hardly worse than the line, while a line
  // through a bend is much worse than the curve.
  constexpr std::pair<double, double> kCurves[] = {{kUsuallyApart, 0.85}, {kCloselyApart, 0.75}};
  SizeFit best{.line = FitLine(points)};
  if (points.size() < kFewestForCurve) return best;
  double deviation = DeviationOfLeftOut(points, FitLine);
  for (const auto& [knots_apart, share] : kCurves) {
    const double apart = knots_apart;
    const auto fit = [apart](const std::vector<FitPoint>& p) { return FitRateCurve(p, apart); };
    const double of_curve = DeviationOfLeftOut(points, fit);
    if (of_curve >= share * deviation) continue;
    best = {.curve = FitRateCurve(points, apart)};
    deviation = of_curve;
  }
  return best;
}

GemmFit FitGemm(std::span<const GemmPoint> points) {
  GemmFit best;
  double best_deviation = 0;
  std::tie(best.curve, best_deviation) = FitPadded(points, best.padding);
  constexpr size_t kFewest = 8;
  if (points.size() < kFewest) return best;
  // One dimension after the other, until none is better for a change.
  constexpr double kPads[] = {0, 2, 4, 8, 12, 16, 24, 32};
  constexpr int kMostRounds = 4;
  for (int round = 0; round < kMostRounds; ++round) {
    const GemmPadding before = best.padding;
    for (double GemmPadding::*const dimension :
         {&GemmPadding::m, &GemmPadding::n, &GemmPadding::k}) {
      for (const double pad : kPads) {
        GemmPadding padding = best.padding;
        padding.*dimension = pad;
        auto [curve, deviation] = FitPadded(points, padding);
        if (deviation >= best_deviation) continue;
        best = {.curve = std::move(curve), .padding = padding};
        best_deviation = deviation;
      }
    }
    if (best.padding == before) break;
  }
  return best;
}

}  // namespace spiritlevel
