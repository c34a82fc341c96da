// The split of layers that keeps the slowest stage shortest.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "models/stages.h"

namespace spiritlevel {
namespace {

// Splits of `layers` in which no stage takes longer than a limit.
class Splits {
 public:
  Splits(int64_t layers, int64_t stages, const StageTime& time)
      : layers_(layers), stages_(static_cast<size_t>(stages)), time_(time) {}

  // Where each stage begins if those before it take as much as they can; the layers' number at the
  // end if there is such a split, less otherwise.
  std::vector<int64_t> LatestBegins(TimeNs limit) const {
    std::vector<int64_t> begins = {0};
    for (size_t stage = 0; stage < stages_; ++stage) {
      const int64_t first = begins.back();
      int64_t count = 0;
      while (first + count < layers_ - LeastAfter(stage) &&
             time_(stage, first, count + 1) <= limit) {
        ++count;
      }
      if (count < LeastLayers(stage, stages_) || time_(stage, first, count) > limit) return {0};
      begins.push_back(first + count);
    }
    return begins;
  }

  // The same from the other end.
  std::vector<int64_t> EarliestBegins(TimeNs limit) const {
    std::vector<int64_t> begins(stages_ + 1, layers_);
    for (size_t stage = stages_; stage-- > 0;) {
      const int64_t end = begins[stage + 1];
      int64_t first = end;
      while (first > LeastBefore(stage) && time_(stage, first - 1, end - first + 1) <= limit)
        --first;
      begins[stage] = first;
    }
    return begins;
  }

  bool Within(TimeNs limit) const { return LatestBegins(limit).back() == layers_; }

  TimeNs LeastLimit() const {
    TimeNs too_little = -1;
    TimeNs enough = 0;
    for (size_t stage = 0; stage < stages_; ++stage) {
      enough = std::max(enough, time_(stage, 0, layers_));
    }
    while (enough - too_little > 1) {
      const TimeNs middle = too_little + (enough - too_little) / 2;
      (Within(middle) ? enough : too_little) = middle;
    }
    return enough;
  }

  // Of the splits within the limit, that of the smallest sum of squares. By stage from the last,
  // for each layer that it may begin with.
  LayersPerStage Evenest(TimeNs limit) const {
    const std::vector<int64_t> earliest = EarliestBegins(limit);
    const std::vector<int64_t> latest = LatestBegins(limit);
    SPIRITLEVEL_CHECK(latest.back() == layers_, "there is a split within the limit");
    std::vector<std::vector<int64_t>> count(stages_);
    std::vector<Int128> cost_after = {0};
    for (size_t stage = stages_; stage-- > 0;) {
      std::vector<Int128> cost;
      for (int64_t first = earliest[stage]; first <= latest[stage]; ++first) {
        Int128 least = kNever;
        int64_t best = 0;
        for (int64_t next = std::max(first + LeastLayers(stage, stages_), earliest[stage + 1]);
             next <= latest[stage + 1]; ++next) {
          const TimeNs time = time_(stage, first, next - first);
          if (time > limit) break;
          const Int128 rest = cost_after[static_cast<size_t>(next - earliest[stage + 1])];
          if (rest == kNever) continue;
          const Int128 sum = rest + static_cast<Int128>(time) * time;
          if (sum > least) continue;
          least = sum;  // of equal ones the last, with most layers
          best = next - first;
        }
        cost.push_back(least);
        count[stage].push_back(best);
      }
      cost_after = std::move(cost);
    }
    LayersPerStage split;
    int64_t first = 0;
    for (size_t stage = 0; stage < stages_; ++stage) {
      split.push_back(count[stage][static_cast<size_t>(first - earliest[stage])]);
      first += split.back();
    }
    SPIRITLEVEL_CHECK(first == layers_, "every layer is on a stage");
    return split;
  }

 private:
  // Far above any sum of squares of times.
  static constexpr Int128 kNever = static_cast<Int128>(std::numeric_limits<int64_t>::max()) *
                                   std::numeric_limits<int64_t>::max();

  // What the stages on either side need at least: a layer each, but for the ends.
  int64_t LeastBefore(size_t stage) const {
    return std::max<int64_t>(0, static_cast<int64_t>(stage) - 1);
  }
  int64_t LeastAfter(size_t stage) const { return LeastBefore(stages_ - stage - 1); }

  int64_t layers_;
  size_t stages_;
  const StageTime& time_;
};

}  // namespace

int64_t LeastLayers(size_t stage, size_t stages) {
  return stage == 0 || stage + 1 == stages ? 0 : 1;
}

LayersPerStage StagesByTime(int64_t layers, int64_t stages, const StageTime& time) {
  CheckStageCount(layers, stages);
  const Splits splits(layers, stages, time);
  return splits.Evenest(splits.LeastLimit());
}

}  // namespace spiritlevel
