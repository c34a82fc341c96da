#include "sim/analysis/check_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace spiritlevel::check {
namespace {

// Whether every placed cell lies on rank_of(stage).
template <class RankOf>
bool EveryStageLies(const FlatOrders& orders, const std::vector<int32_t>& rank_of_cell,
                    RankOf rank_of) {
  size_t cell = 0;
  for (int stage = 0; stage < orders.stages; ++stage) {
    const int expected = rank_of(stage);
    for (int i = 0; i < orders.micro_batches; ++i, ++cell) {
      if (rank_of_cell[cell] != kNoRank && rank_of_cell[cell] != expected) return false;
    }
  }
  return true;
}

bool IsBidirectional(const FlatOrders& orders, const std::vector<int32_t>& rank_of_cell) {
  const int last = orders.ranks() - 1;
  if (orders.stages != last + 1) return false;
  std::vector<uint8_t> down(static_cast<size_t>(orders.micro_batches), 1);
  std::vector<uint8_t> up(down.size(), 1);
  bool some_down = false;
  bool some_up = false;
  size_t cell = 0;
  for (int stage = 0; stage < orders.stages; ++stage) {
    for (int i = 0; i < orders.micro_batches; ++i, ++cell) {
      const int32_t rank = rank_of_cell[cell];
      if (rank == kNoRank) continue;
      if (rank != stage) down[i] = 0;
      if (rank != last - stage) up[i] = 0;
      if (!down[i] && !up[i]) return false;
      if (rank == last - rank) continue;  // the middle rank serves both directions alike
      (rank == stage ? some_down : some_up) = true;
    }
  }
  return some_down && some_up;
}

int VRank(int stage, int ranks) {
  const int step = stage % ranks;
  return (stage / ranks) % 2 == 0 ? step : ranks - 1 - step;
}

PlacementKind KindOf(const FlatOrders& orders, const std::vector<int32_t>& rank_of_cell) {
  const int p = orders.ranks();
  const int stages = orders.stages;
  const auto lies = [&](auto rank_of) { return EveryStageLies(orders, rank_of_cell, rank_of); };
  if (stages >= p && lies([p](int s) { return s % p; })) {
    return stages == p ? PlacementKind::kLinear : PlacementKind::kLooped;
  }
  if (stages > p && stages % p == 0 && lies([p](int s) { return VRank(s, p); })) {
    return PlacementKind::kV;
  }
  return IsBidirectional(orders, rank_of_cell) ? PlacementKind::kBidirectional
                                               : PlacementKind::kOther;
}

int ChunksOfFullestRank(const FlatOrders& orders, const std::vector<int32_t>& rank_of_cell) {
  std::vector<int> chunks(static_cast<size_t>(orders.ranks()));
  std::vector<int> last_stage(chunks.size(), -1);
  size_t cell = 0;
  for (int stage = 0; stage < orders.stages; ++stage) {
    for (int i = 0; i < orders.micro_batches; ++i, ++cell) {
      const int32_t rank = rank_of_cell[cell];
      if (rank == kNoRank || last_stage[rank] == stage) continue;
      last_stage[rank] = stage;
      ++chunks[rank];
    }
  }
  return *std::max_element(chunks.begin(), chunks.end());
}

struct Granularity {
  int64_t fused = 0;
  int64_t split = 0;
  int64_t pairs = 0;
};

Granularity CountPasses(const FlatOrders& orders) {
  Granularity count;
  for (const Op& op : orders.ops) {
    count.fused += op.pass == Pass::kBW;
    count.split += op.pass == Pass::kB;
  }
  count.pairs = std::count(orders.joined.begin(), orders.joined.end(), 1);
  return count;
}

// No rank runs a forward after its first backward.
bool AllForwardsFirst(const FlatOrders& orders) {
  for (int rank = 0; rank < orders.ranks(); ++rank) {
    const auto begin = orders.ops.begin() + orders.rank_begin[rank];
    const auto end = orders.ops.begin() + orders.rank_begin[rank + 1];
    const auto is_forward = [](const Op& op) { return op.pass == Pass::kF; };
    if (!std::is_partitioned(begin, end, is_forward)) return false;
  }
  return orders.micro_batches > 1;
}

std::string Count(int64_t n, std::string_view what, std::string_view plural = "s") {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : plural);
}

std::string Chunks(int n) {
  constexpr std::array<std::string_view, 5> kWords = {"no", "one", "two", "three", "four"};
  const std::string number =
      static_cast<size_t>(n) < kWords.size() ? std::string(kWords[n]) : std::to_string(n);
  return fmt::format("{} chunk{} per rank", number, n == 1 ? "" : "s");
}

std::string_view KindText(PlacementKind kind) {
  switch (kind) {
    case PlacementKind::kLinear:
      return "linear";
    case PlacementKind::kLooped:
      return "looped";
    case PlacementKind::kV:
      return "V placement";
    case PlacementKind::kBidirectional:
      return "bidirectional: each stage on two ranks, so parameters are held twice";
    case PlacementKind::kOther:
      return "placement of its own kind: not linear, looped, V or "
             "bidirectional";
  }
  return "";
}

// A name that the file's shape suggests and that it has no right to, with the reason.
std::string_view NotWhatItSeems(const Placement& placement, const Granularity& count) {
  const bool two_chunks = placement.chunks_per_rank == 2;
  if (placement.kind == PlacementKind::kLooped && two_chunks && count.split > 0) {
    return ": this is not ZB-V, which needs the V placement";
  }
  if (placement.kind == PlacementKind::kV && !two_chunks) {
    return ": this is not ZB-V, which has two chunks per rank";
  }
  if (placement.kind == PlacementKind::kV && count.split == 0) {
    return ": this is not ZB-V, which splits B and W";
  }
  return "";
}

std::string GranularityText(const Granularity& count) {
  if (count.split == 0) return "backward fused (BW)";
  if (count.fused == 0) return "F, B, W split";
  return fmt::format("F, B, W and BW mixed ({} of {} backwards fused)", count.fused,
                     count.fused + count.split);
}

}  // namespace

Placement DetectPlacement(const FlatOrders& orders, const std::vector<int32_t>& rank_of_cell) {
  return {.kind = KindOf(orders, rank_of_cell),
          .chunks_per_rank = ChunksOfFullestRank(orders, rank_of_cell)};
}

std::string Describe(const FlatOrders& orders, const Placement& placement) {
  const Granularity count = CountPasses(orders);
  std::string text = fmt::format("{}, {}, {}, {}{}; {}", Count(orders.ranks(), "rank"),
                                 Count(orders.stages, "stage"), Chunks(placement.chunks_per_rank),
                                 KindText(placement.kind), NotWhatItSeems(placement, count),
                                 GranularityText(count));
  if (count.pairs > 0) text += "; " + Count(count.pairs, "F&B pair");
  text += "; " + Count(orders.micro_batches, "micro-batch", "es");
  if (AllForwardsFirst(orders)) {
    text += "; all forwards first (GPipe-like): every activation is live at once";
  }
  return text;
}

}  // namespace spiritlevel::check
