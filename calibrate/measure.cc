#include "calibrate/measure.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace spiritlevel {
namespace {

// Below these a sample counts as undisturbed: reading two clocks is not simultaneous.
constexpr double kAwayShare = 0.02;
constexpr TimeNs kAwayNs = 2'000;

// Between two calls of a clock lies at least this.
constexpr TimeNs kShortestRun = 1;

constexpr int kMostRepeats = 1'000'000;

double Nanoseconds(const Timing& timing, bool* disturbed) {
  const auto wall = static_cast<double>(timing.wall);
  *disturbed = timing.away > kAwayNs && static_cast<double>(timing.away) > kAwayShare * wall;
  return *disturbed ? wall - static_cast<double>(timing.away) : wall;
}

int RepeatsFor(TimeNs one_run, const StoppingRule& rule) {
  const TimeNs shortest = std::min(rule.shortest_sample, rule.budget / rule.least_samples);
  const TimeNs repeats = shortest / std::max(one_run, kShortestRun) + 1;
  return static_cast<int>(std::min<TimeNs>(repeats, kMostRepeats));
}

}  // namespace

double Quantile(std::span<const double> values, double share) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<int64_t>(rank - 1, 0, static_cast<int64_t>(sorted.size()) - 1)];
}

double Median(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

void SumUp(Samples* samples) {
  samples->median_ns = Median(samples->ns);
  samples->quiet_ns = Quantile(samples->ns, 0.25);
  if (samples->median_ns <= 0) return;
  // Of quartiles, not of deviations from the median: where two samples in five are slow, half of
  // those deviations are still 0, and the median would pass for known.
  constexpr double kSigmasOfIqr = 1.349;      // of a normal distribution; half of it to each side
  constexpr double kMedianOverMean = 1.2533;  // its median scatters sqrt(pi / 2) times its mean
  constexpr double kTwoSided95 = 1.96;
  const double range = Quantile(samples->ns, 0.75) - samples->quiet_ns;
  const double sigma = range / kSigmasOfIqr / samples->median_ns;
  samples->interval =
      kTwoSided95 * kMedianOverMean * sigma / std::sqrt(static_cast<double>(samples->ns.size()));
  const double quiet_range = samples->median_ns - samples->quiet_ns;
  samples->spread = quiet_range / (kSigmasOfIqr / 2) / samples->median_ns;
}

Samples Measure(const std::function<Timing(int repeats)>& run, const StoppingRule& rule) {
  SPIRITLEVEL_CHECK(rule.least_samples >= 2 && rule.most_samples >= rule.least_samples,
                    "a stopping rule asks for some samples");
  Samples samples;
  bool disturbed = false;
  samples.cold_ns = Nanoseconds(run(1), &disturbed);
  // Once more, warm, to know how often a sample must repeat.
  const Timing warm = run(1);
  samples.repeats = RepeatsFor(warm.wall - warm.away, rule);
  const bool is_long = warm.wall > rule.budget / 5;
  const int least = is_long ? std::min(3, rule.least_samples) : rule.least_samples;
  TimeNs spent = 0;
  while (static_cast<int>(samples.ns.size()) < rule.most_samples) {
    const Timing timing = run(samples.repeats);
    spent += timing.wall;
    samples.ns.push_back(Nanoseconds(timing, &disturbed) / samples.repeats);
    samples.disturbed += disturbed ? 1 : 0;
    if (static_cast<int>(samples.ns.size()) < least) continue;
    SumUp(&samples);
    samples.steady = samples.interval <= rule.interval;
    if (samples.steady || spent >= rule.budget) break;
  }
  return samples;
}

}  // namespace spiritlevel
