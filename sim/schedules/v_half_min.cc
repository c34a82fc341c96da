// V-Half and V-Min, the memory-efficient V schedules of "Pipeline Parallelism with Controllable
// Memory" (arXiv 2405.15362): about a half and a third of 1F1B's activations.
//
// What a pipeline holds follows from how long one micro-batch's building block lives, and how often
// the block is repeated. So: draw the block in slots of one unit, repeat it every six slots, then
// tidy up the two ends, where the repetition leaves gaps:
//
//   repeat     the four F and B of each micro-batch by the pattern, a W into each gap
//   reorder    pull ops of the warm-up and the cool-down into earlier gaps, W among them
//   squeeze    close the gaps that are left, keeping the order
//   reorder    the cool-down once more, now with the W flowing around the ops that move
//
// No step raises the memory of the repeated pattern: each move is checked against its peak, and
// neither closing gaps nor giving them to W lets an F run before a W that it came after.
//
// The authors' published numbers for 4 ranks and fewer come from moving the warm-up only. Moving
// the cool-down there too is never longer and holds no more, so few ranks are no exception here;
// neither are one rank, odd ranks and m < p.
#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "sim/schedules/generators.h"
#include "sim/schedules/unit_slots.h"

namespace spiritlevel {
namespace {

// A micro-batch brings each rank two F, two B and two W.
constexpr int kPeriod = kNumPhases;

// On which slot a rank runs F0, F1, B0 and B1 of micro-batch 0.
using Pattern = std::array<int, 4>;

// The V-shaped building blocks of the paper. Here each direction goes down the ranks at two slots a
// hop and comes back at one. The first B waits `gap` slots where two of a rank's slots would
// otherwise be equal modulo the period, and micro-batches collide.
Pattern VHalfPattern(int p, int rank) {
  const int gap = p % 2 == 0 ? 3 : 0;
  return {2 * rank, 3 * p - 2 - rank, 3 * p + gap + 2 * rank - 1, 6 * p + gap - 2 - rank};
}

// One slot a hop all the way: the shortest life.
Pattern VMinPattern(int p, int rank) {
  const int gap = p % 3 == 0 ? 2 : 0;
  return {rank, 2 * p - 1 - rank, 2 * p + gap + rank, 4 * p + gap - 1 - rank};
}

template <typename PatternOfRank>
UnitSlots Repeat(int ranks, int micro_batches, PatternOfRank pattern_of_rank) {
  UnitSlots slots(ranks, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    const Pattern pattern = pattern_of_rank(ranks, rank);
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      for (size_t phase = 0; phase < pattern.size(); ++phase) {
        slots.Put(rank, pattern[phase] + kPeriod * micro_batch,
                  {.micro_batch = micro_batch, .phase = static_cast<Phase>(phase)});
      }
    }
  }
  return slots;
}

// What a rank holds between two slots. An activation counts from its F to its W.
struct Held {
  int activations = 0;
  int waiting_for_w = 0;  // of these, those whose B has run

  friend bool operator==(const Held&, const Held&) = default;
};

// Who runs the W: ops on the board, or whichever gap comes first. In the second case a moving op
// takes a gap away from the W, and all of them shift.
enum class WeightGrads { kOnBoard, kInEveryGap };

Held After(Held held, Unit unit, WeightGrads weight_grads) {
  const bool runs_w = unit.empty()
                          ? weight_grads == WeightGrads::kInEveryGap && held.waiting_for_w > 0
                          : IsWeightGrad(unit.phase);
  if (runs_w) return {held.activations - 1, held.waiting_for_w - 1};
  if (unit.empty()) return held;
  if (IsForward(unit.phase)) return {held.activations + 1, held.waiting_for_w};
  return {held.activations, held.waiting_for_w + 1};
}

// What each rank holds after each slot, kept up to date while ops move to earlier slots.
class HeldBySlot {
 public:
  HeldBySlot(const UnitSlots& slots, WeightGrads weight_grads)
      : slots_(slots), weight_grads_(weight_grads), rows_(slots.ranks()) {
    for (int rank = 0; rank < slots.ranks(); ++rank) {
      rows_[rank].resize(slots.length(rank));
      Held held;
      for (int slot = 0; slot < slots.length(rank); ++slot) {
        held = After(held, slots.at(rank, slot), weight_grads);
        rows_[rank][slot] = held;
        peak_ = std::max(peak_, held.activations);
      }
    }
  }

  // The most activations of any rank at the start.
  int peak() const { return peak_; }

  // If the op on slot `from` stood on `to`, an earlier gap: the first slot after which the rank
  // would hold more than `limit`, or kNone.
  static constexpr int kNone = -1;
  int FirstOver(int limit, int rank, int from, int to) const {
    Held held = Before(rank, to);
    for (int slot = to; slot < slots_.length(rank); ++slot) {
      const Unit unit = slot == to     ? slots_.at(rank, from)
                        : slot == from ? Unit{}
                                       : slots_.at(rank, slot);
      held = After(held, unit, weight_grads_);
      if (held.activations > limit) return slot;
      if (slot >= from && held == rows_[rank][slot]) break;  // from here on as before
    }
    return kNone;
  }

  // Call after the op on `from` was moved to `to`.
  void Update(int rank, int from, int to) {
    Held held = Before(rank, to);
    for (int slot = to; slot < slots_.length(rank); ++slot) {
      held = After(held, slots_.at(rank, slot), weight_grads_);
      if (slot >= from && held == rows_[rank][slot]) break;
      rows_[rank][slot] = held;
    }
  }

 private:
  Held Before(int rank, int slot) const { return slot > 0 ? rows_[rank][slot - 1] : Held{}; }

  const UnitSlots& slots_;
  WeightGrads weight_grads_;
  std::vector<std::vector<Held>> rows_;
  int peak_ = 0;
};

// Moves the op on `from` to the earliest gap after its input, and before where it stands, that
// keeps its rank within `limit`.
void MoveEarlier(UnitSlots& slots, HeldBySlot& held, int limit, int rank, int from) {
  for (int to = slots.SlotOfInput(rank, slots.at(rank, from)) + 1; to < from; ++to) {
    if (!slots.at(rank, to).empty()) continue;
    const int over = held.FirstOver(limit, rank, from, to);
    if (over == HeldBySlot::kNone) {
      slots.Move(rank, from, to);
      held.Update(rank, from, to);
      return;
    }
    // A gap between `to` and the overfull slot does no better: by then the F has run all the same,
    // and no more W have. Hence a whole move costs about one walk, not one for each gap.
    to = over;
  }
}

// The ends of the schedule, in the order of visiting: slot by slot, in each from rank 0 up. Rank 0
// decides: the warm-up lasts until its first B1, the cool-down starts after its last F0.
class Ends {
 public:
  explicit Ends(const UnitSlots& slots)
      : first_b1_(slots.SlotOf(0, Phase::kB1, 0)),
        last_f0_(slots.SlotOf(0, Phase::kF0, slots.micro_batches() - 1)) {}

  // With so few micro-batches that there is no steady phase, all ops are both.
  bool IsWarmUp(int slot) const { return last_f0_ < first_b1_ || slot < first_b1_; }
  bool IsCoolDown(int rank, int slot) const {
    return last_f0_ < first_b1_ || slot > last_f0_ || (slot == last_f0_ && rank > 0);
  }

 private:
  int first_b1_;
  int last_f0_;
};

// Visits every op once, whatever moves meanwhile: an op only goes to a slot already visited. Its
// input was visited before it and stays where it is.
template <typename MayMove>
void MoveEarlier(UnitSlots& slots, WeightGrads weight_grads, MayMove may_move) {
  HeldBySlot held(slots, weight_grads);
  const int limit = held.peak();
  const int length = slots.length();
  for (int slot = 0; slot < length; ++slot) {
    for (int rank = 0; rank < slots.ranks(); ++rank) {
      if (slots.at(rank, slot).empty() || !may_move(rank, slot)) continue;
      MoveEarlier(slots, held, limit, rank, slot);
    }
  }
}

void ReorderBothEnds(UnitSlots& slots) {
  const Ends ends(slots);
  MoveEarlier(slots, WeightGrads::kOnBoard, [&](int rank, int slot) {
    return ends.IsWarmUp(slot) || ends.IsCoolDown(rank, slot);
  });
}

void ReorderCoolDown(UnitSlots& slots) {
  const Ends ends(slots);
  MoveEarlier(slots, WeightGrads::kInEveryGap,
              [&](int rank, int slot) { return ends.IsCoolDown(rank, slot); });
}

// The same order with each op as early as its rank and its input allow. Slot by slot is a
// topological order, so an input's new slot is known before it is asked for.
UnitSlots Squeeze(const UnitSlots& slots) {
  UnitSlots squeezed(slots.ranks(), slots.micro_batches());
  const int length = slots.length();
  for (int slot = 0; slot < length; ++slot) {
    for (int rank = 0; rank < slots.ranks(); ++rank) {
      const Unit unit = slots.at(rank, slot);
      if (unit.empty()) continue;
      const int ready = squeezed.SlotOfInput(rank, unit) + 1;
      squeezed.Put(rank, std::max(ready, squeezed.length(rank)), unit);
    }
  }
  return squeezed;
}

Orders RepeatReorderSqueeze(UnitSlots slots) {
  slots.PlaceWeightGrads();
  ReorderBothEnds(slots);
  slots = Squeeze(slots);
  slots.RemoveWeightGrads();
  ReorderCoolDown(slots);
  slots.PlaceWeightGrads();
  return slots.ToOrders();
}

}  // namespace

Orders VHalf(int ranks, int micro_batches) {
  return RepeatReorderSqueeze(Repeat(ranks, micro_batches, VHalfPattern));
}

Orders VMin(int ranks, int micro_batches) {
  return RepeatReorderSqueeze(Repeat(ranks, micro_batches, VMinPattern));
}

}  // namespace spiritlevel
