// UnitSlots: the ops of a pipeline with V placement, each in a slot of one unit of time.
//
// The drawing board of schedules that are found by moving ops about while every pass takes one unit
// and a transfer takes none. Only the order is read off at the end.
//
//   UnitSlots slots(/*ranks=*/2, /*micro_batches=*/1);
//   slots.Put(0, 0, {.micro_batch = 0, .phase = Phase::kF0});
//   slots.Put(1, 1, {.micro_batch = 0, .phase = Phase::kF0});
//   slots.SlotOfInput(1, {.micro_batch = 0, .phase = Phase::kF0});  // 0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/op.h"

namespace spiritlevel {

// The passes of one micro-batch on one rank r of p, in the order in which they run. As in arXiv
// 2405.15362 the digit counts from where the direction starts, so that F0, B1 and W1 are of stage
// r, and F1, B0 and W0 of stage 2p - 1 - r.
enum class Phase : uint8_t { kF0, kF1, kB0, kB1, kW0, kW1 };
inline constexpr int kNumPhases = 6;

constexpr bool IsForward(Phase phase) { return phase <= Phase::kF1; }
constexpr bool IsWeightGrad(Phase phase) { return phase >= Phase::kW0; }
constexpr bool IsInputGrad(Phase phase) { return !IsForward(phase) && !IsWeightGrad(phase); }

struct Unit {
  int32_t micro_batch = -1;
  Phase phase = Phase::kF0;

  bool empty() const { return micro_batch < 0; }
};

class UnitSlots {
 public:
  UnitSlots(int ranks, int micro_batches);

  int ranks() const { return static_cast<int>(rows_.size()); }
  int micro_batches() const { return micro_batches_; }
  int length(int rank) const { return static_cast<int>(rows_[rank].size()); }  // with the last op
  int length() const;                                                          // of all ranks

  // What runs in that slot; empty for every slot from length(rank) on.
  Unit at(int rank, int slot) const { return slot < length(rank) ? rows_[rank][slot] : Unit{}; }
  int SlotOf(int rank, Phase phase, int micro_batch) const {
    return where_[IndexOf(rank, phase, micro_batch)];
  }

  // Where the one op stands that `unit` on `rank` must come after; -1 if there is none, as for the
  // first F. One is enough: a B's own F lies further back on the same way through the V.
  int SlotOfInput(int rank, Unit unit) const;

  // Both require the slot that is written to be empty.
  void Put(int rank, int slot, Unit unit);
  void Move(int rank, int from, int to);

  // Gives every empty slot with a W waiting (its B is done, it has not run) the W that has waited
  // longest; those that are left follow the last op. No W may be on the board before.
  void PlaceWeightGrads();
  void RemoveWeightGrads();

  Orders ToOrders() const;

 private:
  size_t IndexOf(int rank, Phase phase, int micro_batch) const {
    return (static_cast<size_t>(rank) * kNumPhases + static_cast<size_t>(phase)) *
               static_cast<size_t>(micro_batches_) +
           static_cast<size_t>(micro_batch);
  }
  Op OpOf(int rank, Unit unit) const;
  void PlaceWeightGradsOf(int rank);

  int micro_batches_;
  std::vector<std::vector<Unit>> rows_;  // [rank][slot]
  std::vector<int32_t> where_;           // [rank][phase][micro-batch], the inverse of rows_
};

}  // namespace spiritlevel
