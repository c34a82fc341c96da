#include "verify/lane_plan.h"

namespace spiritlevel {

LanePlan::LanePlan(const Program& program)
    : program_(program),
      waits_for_(static_cast<size_t>(program.num_nodes()), 0),
      before_in_lane_(waits_for_.size(), kNone),
      batch_of_(waits_for_.size(), kNone),
      rank_of_(waits_for_.size(), kNone),
      iteration_of_(waits_for_.size(), 0),
      member_of_(waits_for_.size(), kNone),
      kind_of_collective_(program.collectives().size(), NodeKind::kCollective) {
  for (size_t b = 0; b < program.batches().size(); ++b) {
    for (const NodeId half : program.batches()[b].halves) {
      batch_of_[half] = static_cast<int32_t>(b);
    }
  }
  ReadRanks();
  ReadIterationsOfReductions();
  ReadCollectives();
  std::vector<Follow> follows;
  ReadLanes(follows);
  ReadEdges(follows);
  LayFlat(follows);
}

NodeId LanePlan::in_lane(NodeId half) const {
  return batch_of_[half] == kNone ? half : program_.batch_node(batch_of_[half]);
}

int32_t LanePlan::collective_of(NodeId id) const {
  if (!program_.is_reduction(id)) return program_.nodes()[id].extra;
  return program_.reductions()[id - program_.reduction_node(0)].collective;
}

void LanePlan::ReadRanks() {
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    for (NodeId id = program_.rank_begin(rank); id < program_.rank_end(rank); ++id) {
      rank_of_[id] = rank;
      iteration_of_[id] = program_.nodes()[id].iteration;
    }
  }
  for (MessageId m = 0; m < static_cast<MessageId>(program_.messages().size()); ++m) {
    const Message& message = program_.messages()[m];
    const Link& link = program_.links()[message.link];
    rank_of_[program_.send_node(m)] = link.from_rank;
    rank_of_[program_.receive_node(m)] = link.to_rank;
    for (const NodeId half : {program_.send_node(m), program_.receive_node(m)}) {
      iteration_of_[half] = program_.nodes()[message.from].iteration;
    }
  }
  for (size_t b = 0; b < program_.batches().size(); ++b) {
    const NodeId id = program_.batch_node(static_cast<int32_t>(b));
    rank_of_[id] = program_.batches()[b].rank;
    iteration_of_[id] = iteration_of_[program_.batches()[b].halves.front()];
  }
  for (size_t r = 0; r < program_.reductions().size(); ++r) {
    rank_of_[program_.reduction_node(static_cast<int32_t>(r))] = program_.reductions()[r].rank;
  }
}

void LanePlan::ReadIterationsOfReductions() {
  for (int i = 0; i < program_.num_iterations(); ++i) {
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      if (IsPostValidation(program_.tail())) {
        iteration_of_[program_.reduction_node(program_.reduction_of(rank, i))] = i;
      }
      const int32_t end = program_.gradient_sums_end(rank, i);
      for (int32_t sum = program_.gradient_sums_begin(rank, i); sum < end; ++sum) {
        iteration_of_[program_.reduction_node(sum)] = i;
      }
    }
  }
}

void LanePlan::ReadCollectives() {
  for (size_t c = 0; c < program_.collectives().size(); ++c) {
    const std::vector<NodeId>& members = program_.collectives()[c].members;
    for (size_t i = 0; i < members.size(); ++i) member_of_[members[i]] = static_cast<int32_t>(i);
    if (program_.is_reduction(members.front())) {
      kind_of_collective_[c] =
          program_.reductions()[members.front() - program_.reduction_node(0)].kind;
    }
  }
}

void LanePlan::ReadLanes(std::vector<Follow>& follows) {
  for (const Lane& lane : program_.CommunicationLanes()) {
    for (size_t i = 1; i < lane.nodes.size(); ++i) {
      before_in_lane_[lane.nodes[i]] = lane.nodes[i - 1];
      follows.push_back({lane.nodes[i - 1], lane.nodes[i]});
    }
  }
}

// An edge from a compute node to another of its rank asks for nothing that the order of the lane
// does not give, but to communication lanes it does.
void LanePlan::ReadEdges(std::vector<Follow>& follows) {
  for (const Edge& edge : program_.edges()) follows.push_back({edge.from, edge.to});
  for (MessageId m = 0; m < static_cast<MessageId>(program_.messages().size()); ++m) {
    const Message& message = program_.messages()[m];
    follows.push_back({message.from, in_lane(program_.send_node(m))});
    follows.push_back({program_.receive_node(m), message.to});
  }
}

void LanePlan::LayFlat(const std::vector<Follow>& follows) {
  first_follower_.assign(waits_for_.size() + 1, 0);
  for (const Follow& follow : follows) {
    ++waits_for_[follow.after];
    ++first_follower_[follow.before + 1];
  }
  for (size_t i = 1; i < first_follower_.size(); ++i) first_follower_[i] += first_follower_[i - 1];
  followers_.resize(follows.size());
  std::vector<int32_t> next(first_follower_.begin(), first_follower_.end() - 1);
  for (const Follow& follow : follows) followers_[next[follow.before]++] = follow.after;
}

}  // namespace spiritlevel
