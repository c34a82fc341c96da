#include "calibrate/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "calibrate/plan.h"

namespace spiritlevel {
namespace {

// Sizes from a kilo- to a megabyte, each twice, off a line by up to `noise`; every `outlier`-th
// sample is three times too long.
std::vector<FitPoint> SamplesOf(const LinearFit& truth, double noise, int outlier, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> off(-noise, noise);
  std::vector<FitPoint> points;
  for (int i = 0; i < 40; ++i) {
    const double units = 1'000 * std::pow(2, (i % 20) * 0.5);
    double ns = truth.At(units) * (1 + off(random));
    if (outlier > 0 && i % outlier == 0) ns *= 3;
    points.push_back({units, ns});
  }
  return points;
}

TEST(FitLine, GivesBackTheLineThatWasPutIn) {
  for (const LinearFit truth : {LinearFit{500, 0.04}, LinearFit{0, 2}, LinearFit{1e6, 1e-3}}) {
    const LinearFit fit = FitLine(SamplesOf(truth, 0, 0, 1));
    EXPECT_NEAR(fit.base_ns, truth.base_ns, 1e-4 * truth.base_ns + 0.1);
    EXPECT_NEAR(fit.per_unit_ns, truth.per_unit_ns, 1e-4 * truth.per_unit_ns);
  }
}

TEST(FitLine, StandsUpToNoiseAndOneOutlierInFive) {
  const LinearFit truth{500, 0.04};
  for (unsigned seed = 1; seed <= 50; ++seed) {
    const LinearFit fit = FitLine(SamplesOf(truth, 0.05, 5, seed));
    EXPECT_NEAR(fit.base_ns, truth.base_ns, 0.1 * truth.base_ns) << "seed " << seed;
    EXPECT_NEAR(fit.per_unit_ns, truth.per_unit_ns, 0.06 * truth.per_unit_ns) << "seed " << seed;
  }
}

// Rates that fall with size would give a base below 0, and times below 0 for small sizes.
TEST(FitLine, IsNeverNegative) {
  const LinearFit steeper =
      FitLine(std::vector<FitPoint>{{100, 1}, {1'000, 20}, {10'000, 400}, {100'000, 8'000}});
  EXPECT_EQ(steeper.base_ns, 0);
  EXPECT_GT(steeper.per_unit_ns, 0);
  const LinearFit falling = FitLine(std::vector<FitPoint>{{100, 30}, {1'000, 20}, {10'000, 10}});
  EXPECT_EQ(falling.per_unit_ns, 0);
  EXPECT_GT(falling.base_ns, 0);
}

// A rate that halves, smoothly, from small sizes to large ones.
double Rate(double flops) { return 0.01 * (1 + 1e7 / (flops + 1e7)); }

std::vector<FitPoint> CurveSamples(double noise, int outlier, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> off(-noise, noise);
  std::vector<FitPoint> points;
  for (int i = 0; i < 48; ++i) {
    const double units = 1e5 * std::pow(10, i / 10.0);
    double ns = units * Rate(units) * (1 + off(random));
    if (outlier > 0 && i % outlier == outlier / 2) ns *= 3;
    points.push_back({units, ns});
  }
  return points;
}

TEST(FitRateCurve, FollowsASmoothRateBetweenTheSizesMeasured) {
  const RateCurve curve = FitRateCurve(CurveSamples(0, 0, 1));
  for (double units = 1.3e5; units < 4e9; units *= 1.7) {
    EXPECT_NEAR(curve.At(units) / (units * Rate(units)), 1, 0.02) << units;
  }
}

TEST(FitRateCurve, StandsUpToNoiseAndOutliers) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const RateCurve curve = FitRateCurve(CurveSamples(0.04, 6, seed));
    for (double units = 1.3e5; units < 4e9; units *= 1.7) {
      EXPECT_NEAR(curve.At(units) / (units * Rate(units)), 1, 0.08) << units << ", seed " << seed;
    }
  }
}

TEST(FitRateCurve, HasAscendingPointsEvenFromTwoSizes) {
  const RateCurve curve = FitRateCurve(std::vector<FitPoint>{{1e6, 1e4}, {1e9, 1e7}});
  ASSERT_EQ(curve.points.size(), 2u);
  EXPECT_NEAR(curve.At(3e7), 3e5, 1);
}

std::vector<FitPoint> SamplesOf(const RateCurve& truth, double noise, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> off(-noise, noise);
  std::vector<FitPoint> points;
  for (int i = 0; i < 12; ++i) {
    const double units = 1e5 * std::pow(2, i * 0.75);
    points.push_back({units, truth.At(units) * (1 + off(random))});
  }
  return points;
}

TEST(FitSizes, IsTheLineThatWasPutIn) {
  const LinearFit truth{500, 0.04};
  const SizeFit fit = FitSizes(SamplesOf(truth, 0, 0, 1));
  ASSERT_FALSE(fit.is_curve());
  EXPECT_NEAR(fit.line.base_ns, truth.base_ns, 0.1);
  EXPECT_NEAR(fit.line.per_unit_ns, truth.per_unit_ns, 1e-5);
}

// Noise may look like a bend; then the curve is as good as the line, so that little is lost.
TEST(FitSizes, NoiseSeldomPassesForABend) {
  const LinearFit truth{500, 0.04};
  int curves = 0;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    const SizeFit fit = FitSizes(SamplesOf(truth, 0.05, 0, seed));
    curves += fit.is_curve();
    for (double units = 1'000; units < 7e5; units *= 1.5) {
      EXPECT_NEAR(fit.At(units) / truth.At(units), 1, 0.06) << units << ", seed " << seed;
    }
  }
  EXPECT_LE(curves, 2);
}

// Half as fast as soon as nothing is left in a cache: no line is near both ends.
TEST(FitSizes, IsACurveWhereACacheHasAnEdge) {
  const RateCurve truth{{{3e5, 0.02}, {2.4e6, 0.04}}};
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const SizeFit fit = FitSizes(SamplesOf(truth, 0.03, seed));
    ASSERT_TRUE(fit.is_curve()) << "seed " << seed;
    for (double units = 1.1e5; units < 2.5e7; units *= 1.7) {
      EXPECT_NEAR(fit.At(units) / truth.At(units), 1, 0.15) << units << ", seed " << seed;
    }
  }
}

TEST(FitSizes, IsALineOfFewPoints) {
  const RateCurve truth{{{4e5, 0.01}, {1.6e6, 0.04}}};
  std::vector<FitPoint> points = SamplesOf(truth, 0, 1);
  points.resize(4);
  EXPECT_FALSE(FitSizes(points).is_curve());
}

std::vector<GemmPoint> GemmSamples(const GemmPadding& padding) {
  std::vector<GemmPoint> points;
  for (const PlannedWork& work : MakePlan(/*quick=*/false, 4)) {
    if (work.primitive != Primitive::kGemmForward || work.held_out) continue;
    const Gemm gemm = std::get<Gemm>(std::get<Kernel>(work.work));
    const double units = PaddedFlops(gemm, padding);
    points.push_back({gemm, units * Rate(units)});
  }
  return points;
}

// By the shapes that calibration measures.
TEST(FitGemm, TellsThinProductsFromSmallOnes) {
  const GemmPadding truth{.m = 16, .n = 0, .k = 0};
  const GemmFit fit = FitGemm(GemmSamples(truth));
  for (const int64_t m : {20, 40, 100, 700}) {
    const Gemm gemm{.m = m, .n = 700, .k = 900};
    const double units = PaddedFlops(gemm, truth);
    EXPECT_NEAR(fit.curve.At(PaddedFlops(gemm, fit.padding)) / (units * Rate(units)), 1, 0.04) << m;
  }
}

TEST(FitGemm, TellsNoPaddingFromFewPoints) {
  std::vector<GemmPoint> points = GemmSamples({.m = 16, .n = 0, .k = 0});
  points.resize(4);
  EXPECT_EQ(FitGemm(points).padding, GemmPadding{});
}

TEST(SufficeForFit, AsksForTwoDifferentSizes) {
  EXPECT_FALSE(SufficeForFit({}));
  EXPECT_FALSE(SufficeForFit(std::vector<FitPoint>{{1, 1}}));
  EXPECT_FALSE(SufficeForFit(std::vector<FitPoint>{{5, 1}, {5, 2}}));
  EXPECT_TRUE(SufficeForFit(std::vector<FitPoint>{{5, 1}, {6, 2}}));
}

}  // namespace
}  // namespace spiritlevel
