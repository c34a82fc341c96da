// The `batched` posting: which sends and receives each rank exchanges at once, and before what.
// Internal to the lowering; docs/posting.md has the rule.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program.h"

namespace spiritlevel {

// A rank's exchanges of one iteration, in their order.
struct PlannedBatch {
  std::vector<NodeId> halves;  // ascending
  NodeId before = kNone;       // the node that has ended when it begins; kNone: the rank's start
  NodeId after = kNone;        // the node that waits for it
};

// Plays the first iteration of `program` by nominal times (F, B and W take 1, BW 2, F&B 3, messages
// nothing), turn by turn: a turn is one node of a compute lane, or, with several stages in a loop,
// a forward and the whole backward that follows it (Megatron's interleaved loop). What turns make
// at one instant is exchanged at that instant, on both sides: by the sender before its next turn,
// by the receiver before the first of its turns that does not begin earlier. So exchanges have one
// order in time on all ranks, and nobody can wait for each other in a circle.
//
// Or, `literally`: before each turn what the one before has made and what this one needs, which
// deadlocks wherever a rank has to take something in before it needs it.
class BatchPlan {
 public:
  explicit BatchPlan(const Program& program);

  std::vector<std::vector<PlannedBatch>> Make();           // by rank
  std::vector<std::vector<PlannedBatch>> MakeLiterally();  // by rank

 private:
  using Nominal = int64_t;

  struct RankState {
    NodeId next = 0;  // the first node of its next turn
    Nominal free = 0;
  };

  NodeId End(int rank) const { return program_.iteration_begin(rank, 1); }
  bool IsLooped() const;
  NodeId TurnEnd(int rank, NodeId begin) const;
  NodeId SkipValidations(int rank, NodeId node) const;
  Nominal DurationOf(const Node& node) const;

  void PlayNominally();
  bool TakeTurn(int rank);
  bool SplitTurn();

  const Program& program_;
  bool looped_;
  std::vector<RankState> ranks_;
  std::vector<Nominal> start_;  // by node of the first iteration, numbered rank by rank
  std::vector<NodeId> first_;   // by rank: the number of its first node there
  std::vector<Nominal> made_;   // by message; kNotYet
  std::vector<char> alone_;     // by node: its turn is not joined with the next
};

}  // namespace spiritlevel
