// The split of layers that keeps the slowest stage shortest.
#include <fmt/format.h>

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
    RefuseTooManyBegins(earliest, latest);
    std::vector<std::vector<int64_t>> next(stages_);
    std::vector<Int128> cost_after = {0};
    for (size_t stage = stages_; stage-- > 0;) {
      Column column{.stage = stage,
                    .limit = limit,
                    .first = earliest[stage],
                    .first_next = earliest[stage + 1],
                    .cost_after = cost_after,
                    .cost = {},
                    .next = {}};
      const auto begins = static_cast<size_t>(latest[stage] - earliest[stage] + 1);
      column.cost.assign(begins, kNever);
      column.next.assign(begins, earliest[stage + 1]);
      Fill({earliest[stage], latest[stage]}, {earliest[stage + 1], latest[stage + 1]}, &column);
      next[stage] = std::move(column.next);
      cost_after = std::move(column.cost);
    }
    LayersPerStage split;
    int64_t first = 0;
    for (size_t stage = 0; stage < stages_; ++stage) {
      const int64_t end = next[stage][static_cast<size_t>(first - earliest[stage])];
      split.push_back(end - first);
      first = end;
    }
    SPIRITLEVEL_CHECK(first == layers_, "every layer is on a stage");
    return split;
  }

 private:
  // Layers, both included.
  struct Range {
    int64_t first = 0;
    int64_t last = 0;

    bool empty() const { return last < first; }
  };

  // One stage: by the layer that it begins with, the least sum of squares from there to the end,
  // and where the next stage begins then. Of equal ones the last, with most layers.
  struct Column {
    size_t stage = 0;
    TimeNs limit = 0;
    int64_t first = 0;       // of what `cost` and `next` are of
    int64_t first_next = 0;  // of what `cost_after` is of
    const std::vector<Int128>& cost_after;
    std::vector<Int128> cost;
    std::vector<int64_t> next;
  };

  // Fills in `begins`, whose best next begins lie in `nexts`. The square of a sum grows the faster
  // the larger the sum is, so a stage that begins later never ends earlier: what is best for the
  // middle one bounds those on either side (Hirschberg and Larmore, "The least weight subsequence
  // problem", 1987). That takes layers x log(layers) steps where trying all would take their
  // square.
  void Fill(Range begins, Range nexts, Column* column) const {
    if (begins.empty()) return;
    const int64_t middle = begins.first + (begins.last - begins.first) / 2;
    const auto at = static_cast<size_t>(middle - column->first);
    const int64_t from = std::max(middle + LeastLayers(column->stage, stages_), nexts.first);
    for (int64_t next = from; next <= nexts.last; ++next) {
      const TimeNs time = time_(column->stage, middle, next - middle);
      if (time > column->limit) break;
      const Int128 rest = column->cost_after[static_cast<size_t>(next - column->first_next)];
      if (rest == kNever) continue;
      const Int128 sum = rest + static_cast<Int128>(time) * time;
      if (sum > column->cost[at]) continue;
      column->cost[at] = sum;
      column->next[at] = next;
    }
    const bool bounds = column->cost[at] != kNever;
    const int64_t best = column->next[at];
    Fill({begins.first, middle - 1}, bounds ? Range{nexts.first, best} : nexts, column);
    Fill({middle + 1, begins.last}, bounds ? Range{best, nexts.last} : nexts, column);
  }

  // Thousands of layers on thousands of stages that take next to no time: nothing narrows where
  // each may begin.
  void RefuseTooManyBegins(const std::vector<int64_t>& earliest,
                           const std::vector<int64_t>& latest) const {
    constexpr int64_t kMost = int64_t{1} << 22;  // half a second
    int64_t begins = 0;
    for (size_t stage = 0; stage < stages_; ++stage) begins += latest[stage] - earliest[stage] + 1;
    if (begins > kMost) throw TooManyToBalance(layers_, static_cast<int64_t>(stages_));
  }

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

InputError TooManyToBalance(int64_t layers, int64_t stages) {
  return InputError(
      fmt::format("split: {} layers on {} stages are too many to balance by time", layers, stages),
      "split them evenly, or name the layers of each stage");
}

LayersPerStage StagesByTime(int64_t layers, int64_t stages, const StageTime& time) {
  CheckStageCount(layers, stages);
  const Splits splits(layers, stages, time);
  return splits.Evenest(splits.LeastLimit());
}

}  // namespace spiritlevel
