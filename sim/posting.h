// Lays a Program's messages out in communication lanes, as a runtime's host would issue them.
#pragma once

#include "sim/program.h"

namespace spiritlevel {

struct PlannedBatch;

// Writes lanes, batches and edges of `program`, which has all compute nodes and messages of all its
// iterations. Each iteration is issued like the first.
class PostingPlan {
 public:
  PostingPlan(Program& program, const LoweringOptions& options)
      : program_(program), options_(options) {}

  void Write();

 private:
  // Of each compute node of the first iteration, its place in one run of all ranks, message by
  // message; by node number less the first of its rank.
  std::vector<std::vector<int32_t>> RunWithoutTimes(bool delayed) const;

  void WriteFifoLanes();
  void WriteBatches();
  NodeId WriteBatch(const PlannedBatch& planned, int rank, int iteration);
  bool NeedsNoRound(const Node& node) const;

  int Peer(NodeId half) const;
  NodeId Shifted(NodeId half, int iterations) const;

  Program& program_;
  const LoweringOptions& options_;
};

}  // namespace spiritlevel
