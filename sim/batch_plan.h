// The `batched` posting: which sends and receives each rank exchanges at once, and before what.
// Internal to the lowering; docs/posting.md has the rule.
#pragma once

#include <vector>

#include "sim/program.h"

namespace spiritlevel {

// A rank's exchanges of one iteration, in their order.
struct PlannedBatch {
  std::vector<NodeId> halves;  // ascending
  NodeId before = kNone;       // the node that has ended when it begins; kNone: the rank's start
  NodeId after = kNone;        // the node that waits for it
};

// Plays the first iteration of `program` without times, exchange by exchange: a rank's turn is one
// node of its compute lane, or, with several stages in a loop, a forward and the backward that
// follows it (Megatron's interleaved loop). Before its turn it exchanges what the turn before has
// made and what this one needs. Where all ranks then wait for each other, a receive is posted
// ahead, in the exchange at which its rank stands while the sender waits (as DualPipe does), one at
// a time.
class BatchPlan {
 public:
  explicit BatchPlan(const Program& program);

  std::vector<std::vector<PlannedBatch>> Make();  // by rank

 private:
  struct RankState {
    NodeId next = 0;           // first node of the turn it is about to take
    NodeId turn_end = 0;       // and the one behind its last
    NodeId last = kNone;       // of the turn before
    std::vector<NodeId> made;  // sends of the turn before
    PlannedBatch batch;
    int open = 0;  // halves of `batch` whose other half is not there yet
  };

  NodeId End(int rank) const { return program_.iteration_begin(rank, 1); }
  bool IsLooped() const;
  NodeId TurnEnd(int rank, NodeId begin) const;
  NodeId SkipValidations(int rank, NodeId node) const;
  int RankOf(NodeId half) const;
  NodeId OtherHalf(NodeId half) const;

  void Arrive(int rank);
  void Post(int rank, NodeId half);
  void TakeTurn(int rank);
  bool PostReceiveAhead();
  bool SplitTurn();
  bool SplitTurnOf(int rank);

  const Program& program_;
  bool looped_;
  std::vector<RankState> ranks_;
  std::vector<char> posted_;  // by half, less the first
  std::vector<int> runnable_;
  std::vector<std::vector<PlannedBatch>> plan_;
};

}  // namespace spiritlevel
