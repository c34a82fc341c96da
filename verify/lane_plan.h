// LanePlan: which nodes of a Program wait for which, laid flat. Read-only once made.
//
// Of every node, in the numbering of the Program: how many ends it waits for, and which nodes wait
// for its own. The compute lane's order is not among them: a rank's thread runs that by itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program.h"

namespace spiritlevel {

class LanePlan {
 public:
  explicit LanePlan(const Program& program);

  std::span<const int32_t> waits_for() const { return waits_for_; }
  std::span<const NodeId> followers(NodeId id) const {
    return {followers_.data() + first_follower_[id], followers_.data() + first_follower_[id + 1]};
  }
  // Of a half, the batch that holds it; kNone.
  int32_t batch_of(NodeId half) const { return batch_of_[half]; }
  // The node of a lane that a half stands in: its batch, or itself.
  NodeId in_lane(NodeId half) const;
  // On a communication lane, what stands before it; kNone where it is the first.
  NodeId before_in_lane(NodeId id) const { return before_in_lane_[id]; }

  // Of a compute node or a reduction; of a half the rank whose lane it is in.
  int rank_of(NodeId id) const { return rank_of_[id]; }
  int iteration_of(NodeId id) const { return iteration_of_[id]; }
  // Of a member of a collective.
  int32_t collective_of(NodeId id) const;
  int32_t member_of(NodeId id) const { return member_of_[id]; }

  // Of its members.
  NodeKind kind_of_collective(int32_t collective) const { return kind_of_collective_[collective]; }
  // Whether replicas of the pipeline take part in it together.
  bool spans_replicas(int32_t collective) const {
    const NodeKind kind = kind_of_collective_[collective];
    return kind != NodeKind::kTwinSum && kind != NodeKind::kTiedSum;
  }

  const Program& program() const { return program_; }

 private:
  struct Follow {
    NodeId before;
    NodeId after;
  };

  void ReadRanks();
  void ReadIterationsOfReductions();
  void ReadLanes(std::vector<Follow>& follows);
  void ReadEdges(std::vector<Follow>& follows);
  void ReadCollectives();
  void LayFlat(const std::vector<Follow>& follows);

  const Program& program_;
  std::vector<int32_t> waits_for_;
  std::vector<int32_t> first_follower_;
  std::vector<NodeId> followers_;
  std::vector<NodeId> before_in_lane_;
  std::vector<int32_t> batch_of_;
  std::vector<int32_t> rank_of_;
  std::vector<int32_t> iteration_of_;
  std::vector<int32_t> member_of_;
  std::vector<NodeKind> kind_of_collective_;
};

}  // namespace spiritlevel
