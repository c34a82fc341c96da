// Sums of gradients between the last W's and the optimizer steps: which part of which W fills a
// bucket, and in which order sums stand in their lanes. Internal to the lowering; docs/tails.md has
// the rules.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/costs.h"
#include "sim/program.h"
#include "sim/schedule.h"

namespace spiritlevel {

// What one node of a compute lane runs: an op of its rank, by its place, or a part of it. Of a pair
// the first op.
struct Step {
  int32_t op = 0;
  Part part{};
};

// By rank, in the order of the compute lane. Of each stage the backward that fills its buckets is
// cut into a part for each.
std::vector<std::vector<Step>> StepsByBucket(const Schedule& schedule, const Costs& costs,
                                             WeightGrads weight_grads);

// Writes the nodes of sums of gradients into `program`, which has everything else: a lane for those
// over replicas and a lane for those between ranks, and the edges from what makes the gradients to
// the sums, and from the sums to what ends the iteration.
class GradientPlan {
 public:
  GradientPlan(Program& program, const Schedule& schedule, const Costs& costs, int nodes_in_tail)
      : program_(program), schedule_(schedule), costs_(costs), nodes_in_tail_(nodes_in_tail) {}

  void Write();

 private:
  // A sum over ranks of this pipeline.
  struct Exchange {
    NodeKind kind = NodeKind::kTwinSum;
    GradientSum sum{};
    std::vector<int> ranks;
    std::vector<int32_t> stages;  // of each rank, whose gradients
    NodeId ready = 0;             // the latest place in a lane of what it waits for
  };

  void FindPlaces();
  void FindExchanges();
  void AddExchange(Exchange exchange);
  void WriteIteration(int iteration);
  void WriteBuckets(int rank, int iteration, Lane& lane);
  void WriteExchange(const Exchange& exchange, int iteration);
  void WaitForStage(int rank, int32_t stage, int iteration, NodeId sum);
  void HoldBackTail(int rank, int iteration, NodeId sum);

  bool has_buckets() const { return !costs_.common().gradients.buckets.empty(); }
  int32_t NumSums(int rank) const;
  NodeId NodeAt(int rank, int iteration, NodeId place) const;

  Program& program_;
  const Schedule& schedule_;
  const Costs& costs_;
  int nodes_in_tail_;
  // By rank, chunk and bucket (one where there are none): the place in an iteration of the node
  // that completes it.
  std::vector<std::vector<std::vector<NodeId>>> places_;
  std::vector<Exchange> exchanges_;            // in the order of all lanes
  std::vector<std::vector<int32_t>> sums_of_;  // by rank and chunk: of its buckets, this iteration
  std::vector<int32_t> next_;                  // by rank: the next of its sums, this iteration
  std::vector<Lane> lanes_;                    // by rank: over replicas, then between ranks
};

}  // namespace spiritlevel
