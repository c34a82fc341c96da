// Plan: what a search changes, an order in which few weight gradients have a place of their own.
//
// Micro-batches pass every stage in one order, so a rank's turns need not name them: its k-th
// forward of a stage is of micro-batch order[k]. W's run wherever memory forces one, a wait has
// room for one, or the plan asks for one, in the order in which their B's ran; the rest at the end.
// docs/search.md has why nothing is lost by the first where micro-batches are alike.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/op.h"
#include "sim/search/problem.h"

namespace spiritlevel {

// A forward or backward of one of the rank's stages, 4 * chunk + kind; or one W, of what waits
// longest, if anything does.
using Turn = uint8_t;
enum class TurnKind : uint8_t { kF, kB, kBW, kW };

inline constexpr int kMaxSearchedChunks = 60;

inline Turn MakeTurn(int chunk, TurnKind kind) {
  return static_cast<Turn>(4 * chunk + static_cast<int>(kind));
}
inline constexpr Turn kTurnW = static_cast<Turn>(TurnKind::kW);
inline TurnKind KindOf(Turn turn) { return static_cast<TurnKind>(turn % 4); }
inline int ChunkOf(Turn turn) { return turn / 4; }
inline bool IsBackward(Turn turn) {
  return KindOf(turn) == TurnKind::kB || KindOf(turn) == TurnKind::kBW;
}

struct Plan {
  std::vector<int32_t> order;            // of micro-batches
  std::vector<std::vector<Turn>> turns;  // by rank
  // A wait of more than so many thousandths of the next W's time is filled with it. By rank, for
  // waits for a forward and then for a backward: which of the two may be late is not the same.
  std::vector<int32_t> gap_permille;

  static size_t gap(int rank, bool backward) {
    return 2 * static_cast<size_t>(rank) + static_cast<size_t>(backward);
  }

  friend bool operator==(const Plan&, const Plan&) = default;
};

// The order of `orders`, W's included. Micro-batches must pass all stages in one order, and there
// must be no F&B pairs; false where that is not so.
bool ReadPlan(const SearchProblem& problem, const Orders& orders, Plan* plan);

}  // namespace spiritlevel
