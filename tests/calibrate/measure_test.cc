#include "calibrate/measure.h"

#include <gtest/gtest.h>

#include <vector>

namespace spiritlevel {
namespace {

// The ruler by itself: a run that takes what a list says, one entry for each call.
class Scripted {
 public:
  explicit Scripted(std::vector<Timing> first, Timing then = {})
      : first_(std::move(first)), then_(then) {}

  Timing operator()(int repeats) {
    repeats_.push_back(repeats);
    const size_t call = repeats_.size() - 1;
    const Timing one = call < first_.size() ? first_[call] : then_;
    return {.wall = one.wall * repeats, .away = one.away * repeats};
  }

  const std::vector<int>& repeats() const { return repeats_; }

 private:
  std::vector<Timing> first_;
  Timing then_;
  std::vector<int> repeats_;
};

constexpr TimeNs kMs = 1'000'000;

TEST(Measure, KeepsTheFirstRunApart) {
  Scripted run({{.wall = 900 * kMs}}, {.wall = 2 * kMs});
  const Samples s = Measure(std::ref(run), {});
  EXPECT_EQ(s.cold_ns, 900e6);
  EXPECT_EQ(s.median_ns, 2e6);
  EXPECT_EQ(s.spread, 0);
}

TEST(Measure, StopsAsSoonAsSamplesAgree) {
  Scripted run({}, {.wall = 2 * kMs});
  const Samples s = Measure(std::ref(run), {.least_samples = 5, .most_samples = 50});
  EXPECT_EQ(s.ns.size(), 5u);
  EXPECT_TRUE(s.steady);
}

TEST(Measure, RepeatsWhatIsTooShortForTheClock) {
  Scripted run({}, {.wall = 100});
  const Samples s = Measure(std::ref(run), {.shortest_sample = 10'000});
  EXPECT_GE(s.repeats, 100);
  EXPECT_EQ(s.median_ns, 100);
  EXPECT_EQ(run.repeats()[0], 1);  // cold, and the one by which repeats are chosen
  EXPECT_EQ(run.repeats()[1], 1);
  EXPECT_EQ(run.repeats()[2], s.repeats);
}

// Samples of 1 and 3 ms in turn never agree: the budget of 40 ms ends it after 20 of them.
TEST(Measure, StopsAtTheBudgetWhereSamplesNeverAgree) {
  std::vector<Timing> walls(2, {.wall = kMs});
  for (int i = 0; i < 100; ++i) walls.push_back({.wall = i % 2 == 0 ? kMs : 3 * kMs});
  Scripted run(walls);
  const Samples s = Measure(std::ref(run), {.budget = 40 * kMs, .shortest_sample = 1});
  EXPECT_EQ(s.ns.size(), 20u);
  EXPECT_FALSE(s.steady);
  EXPECT_EQ(s.median_ns, 2e6);
}

TEST(Measure, TakesFewSamplesOfWhatIsLong) {
  Scripted run({}, {.wall = 30 * kMs});
  EXPECT_EQ(Measure(std::ref(run), {.budget = 100 * kMs}).ns.size(), 3u);
}

// The thread was off its core for 5 of 7 ms: 2 of work are what counts, and the sample is marked.
TEST(Measure, TakesOffTheTimeTheDeviceWasAway) {
  Scripted run({{.wall = 2 * kMs}, {.wall = 2 * kMs}, {.wall = 7 * kMs, .away = 5 * kMs}},
               {.wall = 2 * kMs});
  const Samples s = Measure(std::ref(run), {});
  EXPECT_EQ(s.disturbed, 1);
  EXPECT_EQ(s.ns.front(), 2e6);
}

// One in five samples three times too long moves the median by nothing.
TEST(Measure, IsNotMovedByOutliers) {
  std::vector<Timing> walls(2, {.wall = kMs});
  for (int i = 0; i < 50; ++i) walls.push_back({.wall = i % 5 == 0 ? 3 * kMs : kMs});
  Scripted run(walls);
  EXPECT_EQ(Measure(std::ref(run), {.shortest_sample = 1}).median_ns, 1e6);
}

TEST(SumUp, IntervalShrinksWithTheRootOfTheNumberOfSamples) {
  Samples few;
  Samples many;
  for (int i = 0; i < 10; ++i) few.ns.push_back(100 + i % 5);
  for (int i = 0; i < 160; ++i) many.ns.push_back(100 + i % 5);
  SumUp(&few);
  SumUp(&many);
  EXPECT_DOUBLE_EQ(few.median_ns, 102);
  EXPECT_DOUBLE_EQ(few.quiet_ns, 101);
  EXPECT_DOUBLE_EQ(few.spread, 2 / 1.349 / 102);  // quartiles 101 and 103
  EXPECT_NEAR(few.interval / many.interval, 4, 1e-9);
}

// Two samples in five take ten times as long, since others run: how far the quiet ones lie apart is
// as before, and how well the median is known is not.
TEST(SumUp, OthersWorkWidensTheIntervalAndNotTheSpread) {
  Samples alone;
  Samples beside_others;
  for (int i = 0; i < 60; ++i) alone.ns.push_back(100);
  for (int i = 0; i < 60; ++i) beside_others.ns.push_back(i % 5 < 2 ? 1000 : 100);
  SumUp(&alone);
  SumUp(&beside_others);
  EXPECT_EQ(beside_others.spread, alone.spread);
  EXPECT_EQ(alone.interval, 0);
  EXPECT_GT(beside_others.interval, 1);
}

TEST(Quantile, IsTheSmallestValueThatTheShareDoesNotPass) {
  const std::vector<double> values = {5, 1, 4, 2, 3};
  EXPECT_EQ(Quantile(values, 0.5), 3);
  EXPECT_EQ(Quantile(values, 0.9), 5);
  EXPECT_EQ(Quantile(values, 1), 5);
  EXPECT_EQ(Quantile(values, 0), 1);
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Median(values), 3);
}

}  // namespace
}  // namespace spiritlevel
