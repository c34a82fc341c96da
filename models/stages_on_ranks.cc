// The split of layers that keeps the busiest rank shortest, where ranks hold several stages.
#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "models/stages.h"

namespace spiritlevel {
namespace {

// As if all layers took the same on a stage, which they do but for their windows.
struct StageTimes {
  TimeNs fixed = 0;  // embedding, head
  TimeNs layer = 0;
  int64_t least = 0;  // layers
};

class Planner {
 public:
  Planner(int64_t layers, const StageGroups& groups, std::vector<StageTimes> stages)
      : layers_(layers), groups_(groups), stages_(std::move(stages)) {
    TimeNs longest_layer = 0;
    for (const StageTimes& s : stages_) longest_layer = std::max(longest_layer, s.layer);
    for (const std::vector<int>& group : groups_) {
      TimeNs fixed = 0;
      for (const int stage : group) fixed += At(stage).fixed;
      most_ = std::max(most_, fixed + layers_ * longest_layer);
    }
  }

  LayersPerStage Plan() {
    rank_limit_ = Least([&](TimeNs limit) { return Capacity(limit, most_) >= layers_; });
    stage_limit_ = Least([&](TimeNs limit) { return Capacity(rank_limit_, limit) >= layers_; });
    return Fill();
  }

 private:
  template <class Enough>
  TimeNs Least(Enough enough) const {
    TimeNs too_little = -1;
    TimeNs limit = most_;
    while (limit - too_little > 1) {
      const TimeNs middle = too_little + (limit - too_little) / 2;
      (enough(middle) ? limit : too_little) = middle;
    }
    return limit;
  }

  // Layers that fit within both limits; -1 where not even the least do.
  int64_t Capacity(TimeNs rank_limit, TimeNs stage_limit) const {
    int64_t all = 0;
    for (const std::vector<int>& group : groups_) {
      const int64_t of_group = CapacityOf(group, rank_limit, stage_limit);
      if (of_group < 0) return -1;
      all += of_group;
    }
    return all;
  }

  int64_t CapacityOf(const std::vector<int>& group, TimeNs rank_limit, TimeNs stage_limit) const {
    TimeNs room = rank_limit;
    int64_t count = 0;
    for (const int stage : group) {
      const StageTimes& s = At(stage);
      const TimeNs least = s.fixed + s.least * s.layer;
      if (least > stage_limit) return -1;
      room -= least;
      count += s.least;
    }
    if (room < 0) return -1;
    std::vector<int> cheapest = group;
    std::stable_sort(cheapest.begin(), cheapest.end(),
                     [&](int a, int b) { return At(a).layer < At(b).layer; });
    for (const int stage : cheapest) {
      const StageTimes& s = At(stage);
      const TimeNs of_stage = std::min(room, stage_limit - s.fixed - s.least * s.layer);
      const int64_t more = s.layer == 0 ? layers_ : of_stage / s.layer;
      room -= s.layer == 0 ? 0 : more * s.layer;
      count += more;
    }
    return std::min(count, layers_);
  }

  // One layer after the other to where it adds least to the sum of squares, within the limits. With
  // layers that are alike on the stages of a rank that gives the smallest sum there is, since the
  // limits nest; where they are not, a rank may have no room left, and the least full takes it.
  LayersPerStage Fill() const {
    LayersPerStage split;
    std::vector<TimeNs> of_stage;
    std::vector<TimeNs> of_group(groups_.size(), 0);
    int64_t left = layers_;
    for (const StageTimes& s : stages_) {
      split.push_back(s.least);
      of_stage.push_back(s.fixed + s.least * s.layer);
      left -= s.least;
    }
    std::vector<size_t> group_of(stages_.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const int stage : groups_[g]) {
        group_of[static_cast<size_t>(stage)] = g;
        of_group[g] += of_stage[static_cast<size_t>(stage)];
      }
    }
    for (; left > 0; --left) {
      size_t best = 0;
      auto best_key = std::tuple(true, std::numeric_limits<Int128>::max());
      for (size_t i = 0; i < stages_.size(); ++i) {
        const TimeNs layer = stages_[i].layer;
        const TimeNs after = of_stage[i] + layer;
        const TimeNs rank_after = of_group[group_of[i]] + layer;
        const bool over = after > stage_limit_ || rank_after > rank_limit_;
        const Int128 added = over ? static_cast<Int128>(rank_after)
                                  : static_cast<Int128>(after + of_stage[i]) * layer;
        const auto key = std::tuple(over, added);
        if (key >= best_key) continue;
        best_key = key;
        best = i;
      }
      ++split[best];
      of_stage[best] += stages_[best].layer;
      of_group[group_of[best]] += stages_[best].layer;
    }
    return split;
  }

  const StageTimes& At(int stage) const { return stages_[static_cast<size_t>(stage)]; }

  int64_t layers_;
  const StageGroups& groups_;
  std::vector<StageTimes> stages_;
  TimeNs most_ = 0;  // no stage and no rank can take more
  TimeNs rank_limit_ = 0;
  TimeNs stage_limit_ = 0;
};

// By the times as they are: the busiest rank, the slowest stage, the sum of squares.
using Quality = std::tuple<TimeNs, TimeNs, Int128>;

Quality QualityOf(const LayersPerStage& split, const StageGroups& groups, const StageTime& time) {
  std::vector<TimeNs> of_stage;
  int64_t first = 0;
  Int128 squares = 0;
  for (size_t i = 0; i < split.size(); ++i) {
    of_stage.push_back(time(i, first, split[i]));
    squares += static_cast<Int128>(of_stage.back()) * of_stage.back();
    first += split[i];
  }
  TimeNs busiest = 0;
  for (const std::vector<int>& group : groups) {
    TimeNs sum = 0;
    for (const int stage : group) sum += of_stage[static_cast<size_t>(stage)];
    busiest = std::max(busiest, sum);
  }
  return {busiest, *std::max_element(of_stage.begin(), of_stage.end()), squares};
}

// Moves single layers as long as that helps, where layers differ.
void Improve(const StageGroups& groups, const StageTime& time, LayersPerStage* split) {
  constexpr size_t kMostStages = 128;  // more would take too long: each round is their cube
  constexpr int kMostRounds = 64;
  constexpr size_t kMostSteps = size_t{1} << 26;
  const size_t stages = split->size();
  if (stages > kMostStages) return;
  const auto rounds =
      static_cast<int>(std::min<size_t>(kMostRounds, kMostSteps / (stages * stages * stages)));
  const auto last = split->size() - 1;
  Quality best = QualityOf(*split, groups, time);
  for (int round = 0; round < rounds; ++round) {
    std::pair<size_t, size_t> move{0, 0};
    for (size_t from = 0; from <= last; ++from) {
      if ((*split)[from] <= LeastLayers(from, split->size())) continue;
      for (size_t to = 0; to <= last; ++to) {
        if (to == from) continue;
        --(*split)[from];
        ++(*split)[to];
        const Quality quality = QualityOf(*split, groups, time);
        ++(*split)[from];
        --(*split)[to];
        if (quality >= best) continue;
        best = quality;
        move = {from, to};
      }
    }
    if (move.first == move.second) return;
    --(*split)[move.first];
    ++(*split)[move.second];
  }
}

// Every stage in exactly one group.
bool IsPartition(const StageGroups& groups, size_t stages) {
  std::vector<int> seen(stages, 0);
  for (const std::vector<int>& group : groups) {
    for (const int stage : group) {
      if (stage < 0 || static_cast<size_t>(stage) >= stages) return false;
      ++seen[static_cast<size_t>(stage)];
    }
  }
  return std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; });
}

}  // namespace

LayersPerStage StagesOnRanks(int64_t layers, int64_t stages, const StageGroups& groups,
                             const StageTime& time) {
  const bool alone = std::all_of(groups.begin(), groups.end(),
                                 [](const std::vector<int>& group) { return group.size() == 1; });
  if (alone) return StagesByTime(layers, stages, time);
  CheckStageCount(layers, stages);
  constexpr int64_t kMostSteps = int64_t{1} << 24;  // layers are placed one by one
  if (layers * stages > kMostSteps) throw TooManyToBalance(layers, stages);
  const auto count = static_cast<size_t>(stages);
  SPIRITLEVEL_CHECK(IsPartition(groups, count), "each stage is in one group");
  std::vector<StageTimes> times;
  bool alike = true;
  for (size_t i = 0; i < count; ++i) {
    const TimeNs fixed = time(i, 0, 0);
    const TimeNs each = DivideHalfUp(time(i, 0, layers) - fixed, layers);
    times.push_back({.fixed = fixed, .layer = each, .least = LeastLayers(i, count)});
    for (int64_t layer = 0; layer < layers && alike; ++layer) {
      alike = time(i, layer, 1) - fixed == each;
    }
  }
  LayersPerStage split = Planner(layers, groups, std::move(times)).Plan();
  SPIRITLEVEL_CHECK(std::accumulate(split.begin(), split.end(), int64_t{0}) == layers,
                    "every layer is on a stage");
  if (!alike) Improve(groups, time, &split);
  return split;
}

}  // namespace spiritlevel
