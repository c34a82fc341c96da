// Measure: samples of how long something takes, until they agree or time is up.
//
// The first run is kept apart: it pays for what later ones find done (pages, caches, buffers of a
// library). A sample repeats the work until it is long enough for the clock. Sampling ends when
// the median is known well enough, or the budget is spent.
//
//   const Samples s = Measure([&](int repeats) { return device.Time(workload, repeats); }, {});
//   s.median_ns;  s.interval;   // 0.01: the median lies within 1 %, nineteen times in twenty
//
// Owns no clock, so that the ruler itself can be tested.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/units.h"

namespace spiritlevel {

// What one sample took. `away` is the part of it in which the device did other people's work (a
// thread that waited for its core); 0 where that cannot be known.
struct Timing {
  TimeNs wall = 0;
  TimeNs away = 0;
};

struct StoppingRule {
  int least_samples = 5;  // 3 of what takes more than a fifth of the budget
  int most_samples = 50;
  double interval = 0.01;            // stop when the median is known this well
  TimeNs budget = 200'000'000;       // for all samples together
  TimeNs shortest_sample = 300'000;  // repeat until a sample takes this long
};

struct Samples {
  double cold_ns = 0;      // the first run
  int repeats = 0;         // runs in a sample
  std::vector<double> ns;  // of a run, one for each sample
  // Samples in which the device was away for more than 2 %; of these only the rest is counted.
  int disturbed = 0;
  double median_ns = 0;
  double quiet_ns = 0;  // the lower quartile: others' work only ever makes a sample longer
  // Of the quiet half: from the lower quartile to the median, scaled to a normal's sigma, over the
  // median. The other half measures what else ran.
  double spread = 0;
  double interval = 0;  // half width of the median's 95 % interval, over the median
  bool steady = false;  // false: the budget ended it

  friend bool operator==(const Samples&, const Samples&) = default;
};

Samples Measure(const std::function<Timing(int repeats)>& run, const StoppingRule& rule);

// Fills the statistics of samples that are there already.
void SumUp(Samples* samples);

double Median(std::span<const double> values);
// The smallest value that `share` of all do not pass; 0 of nothing.
double Quantile(std::span<const double> values, double share);

}  // namespace spiritlevel
