#include "sim/schedules/unit_slots.h"

#include <algorithm>
#include <deque>

#include "base/check.h"

namespace spiritlevel {
namespace {

constexpr bool IsOfFirstStage(Phase phase) {
  return phase == Phase::kF0 || phase == Phase::kB1 || phase == Phase::kW1;
}

Pass PassOf(Phase phase) {
  if (IsForward(phase)) return Pass::kF;
  return IsWeightGrad(phase) ? Pass::kW : Pass::kB;
}

constexpr Phase WeightGradOf(Phase input_grad) {
  return input_grad == Phase::kB0 ? Phase::kW0 : Phase::kW1;
}

}  // namespace

UnitSlots::UnitSlots(int ranks, int micro_batches)
    : micro_batches_(micro_batches),
      rows_(ranks),
      where_(static_cast<size_t>(ranks) * kNumPhases * static_cast<size_t>(micro_batches), -1) {}

int UnitSlots::length() const {
  size_t longest = 0;
  for (const std::vector<Unit>& row : rows_) longest = std::max(longest, row.size());
  return static_cast<int>(longest);
}

int UnitSlots::SlotOfInput(int rank, Unit unit) const {
  const int last = ranks() - 1;
  switch (unit.phase) {
    case Phase::kF0:
      return rank > 0 ? SlotOf(rank - 1, Phase::kF0, unit.micro_batch) : -1;
    case Phase::kF1:
      return rank < last ? SlotOf(rank + 1, Phase::kF1, unit.micro_batch)
                         : SlotOf(rank, Phase::kF0, unit.micro_batch);
    case Phase::kB0:
      return rank > 0 ? SlotOf(rank - 1, Phase::kB0, unit.micro_batch)
                      : SlotOf(rank, Phase::kF1, unit.micro_batch);
    case Phase::kB1:
      return rank < last ? SlotOf(rank + 1, Phase::kB1, unit.micro_batch)
                         : SlotOf(rank, Phase::kB0, unit.micro_batch);
    case Phase::kW0:
      return SlotOf(rank, Phase::kB0, unit.micro_batch);
    case Phase::kW1:
      return SlotOf(rank, Phase::kB1, unit.micro_batch);
  }
  return -1;
}

void UnitSlots::Put(int rank, int slot, Unit unit) {
  std::vector<Unit>& row = rows_[rank];
  if (slot >= length(rank)) row.resize(slot + 1);
  SPIRITLEVEL_CHECK(row[slot].empty(), "a rank runs one op at a time");
  row[slot] = unit;
  where_[IndexOf(rank, unit.phase, unit.micro_batch)] = slot;
}

void UnitSlots::Move(int rank, int from, int to) {
  const Unit unit = rows_[rank][from];
  rows_[rank][from] = {};
  Put(rank, to, unit);
}

void UnitSlots::PlaceWeightGrads() {
  for (int rank = 0; rank < ranks(); ++rank) PlaceWeightGradsOf(rank);
}

void UnitSlots::PlaceWeightGradsOf(int rank) {
  std::deque<Unit> waiting;
  for (int slot = 0; slot < length(rank) || !waiting.empty(); ++slot) {
    const Unit unit = at(rank, slot);
    if (!unit.empty()) {
      SPIRITLEVEL_CHECK(!IsWeightGrad(unit.phase), "each W is placed once");
      if (IsInputGrad(unit.phase)) waiting.push_back({unit.micro_batch, WeightGradOf(unit.phase)});
    } else if (!waiting.empty()) {
      Put(rank, slot, waiting.front());
      waiting.pop_front();
    }
  }
}

void UnitSlots::RemoveWeightGrads() {
  for (std::vector<Unit>& row : rows_) {
    for (Unit& unit : row) {
      if (IsWeightGrad(unit.phase)) unit = {};
    }
    while (!row.empty() && row.back().empty()) row.pop_back();
  }
}

Op UnitSlots::OpOf(int rank, Unit unit) const {
  const int stage = IsOfFirstStage(unit.phase) ? rank : 2 * ranks() - 1 - rank;
  return {.micro_batch = unit.micro_batch,
          .stage = static_cast<uint16_t>(stage),
          .pass = PassOf(unit.phase)};
}

Orders UnitSlots::ToOrders() const {
  Orders orders(rows_.size());
  for (int rank = 0; rank < ranks(); ++rank) {
    orders[rank].reserve(static_cast<size_t>(kNumPhases) * static_cast<size_t>(micro_batches_));
    for (const Unit unit : rows_[rank]) {
      if (!unit.empty()) orders[rank].push_back(OpOf(rank, unit));
    }
  }
  return orders;
}

}  // namespace spiritlevel
