#include "sim/posting.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace spiritlevel {

void PostingPlan::Write() {
  if (options_.posting == Posting::kNcclFifo) WriteFifoLanes();
  if (options_.posting == Posting::kBatched) WriteBatches();
}

int PostingPlan::Peer(NodeId half) const {
  const Link& link = program_.links_[program_.messages_[program_.message_of(half)].link];
  return program_.is_send(half) ? link.to_rank : link.from_rank;
}

// The same half, so many iterations later. A sender's messages are numbered iteration by iteration.
NodeId PostingPlan::Shifted(NodeId half, int iterations) const {
  const MessageId message = program_.message_of(half);
  const int sender = program_.links_[program_.messages_[message].link].from_rank;
  const MessageId each = program_.messages_per_iteration_[sender];
  return half + 2 * iterations * each;
}

// Round by round each rank takes at most one op, if its inputs are there: as PyTorch does when it
// lowers a schedule, where what is sent can be used in the same round; or, with `delayed`, in the
// round after the next, since a message takes time.
std::vector<std::vector<int32_t>> PostingPlan::RunWithoutTimes(bool delayed) const {
  const int ranks = program_.num_ranks();
  std::vector<std::vector<int32_t>> places(static_cast<size_t>(ranks));
  constexpr int32_t kNotSent = std::numeric_limits<int32_t>::max();
  std::vector<int32_t> usable_from(program_.messages_.size(), kNotSent);
  int32_t round = 0;
  const auto has_inputs = [&](const Node& node) {
    return std::all_of(std::begin(node.inputs), std::end(node.inputs),
                       [&](MessageId m) { return m == kNone || usable_from[m] <= round; });
  };
  int32_t place = 0;
  int32_t rounds_left = 2;  // in which nothing happens because all is on its way
  for (; rounds_left > 0; ++round, --rounds_left) {
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<int32_t>& taken = places[static_cast<size_t>(rank)];
      NodeId id = program_.rank_begin(rank) + static_cast<NodeId>(taken.size());
      if (id < program_.iteration_begin(rank, 1) &&
          program_.nodes_[id].kind == NodeKind::kValidation) {
        taken.push_back(place++);  // it exchanges nothing, so it takes no round
        rounds_left = 3;
        ++id;
      }
      if (id == program_.iteration_begin(rank, 1) || !has_inputs(program_.nodes_[id])) continue;
      rounds_left = 3;
      taken.push_back(place++);
      const Node& node = program_.nodes_[id];
      for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
        usable_from[m] = round + (delayed ? 2 : 0);
      }
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    SPIRITLEVEL_CHECK(static_cast<NodeId>(places[static_cast<size_t>(rank)].size()) ==
                          program_.iteration_begin(rank, 1) - program_.rank_begin(rank),
                      "a Schedule runs to its end, message by message");
  }
  return places;
}

// A message stands in its lanes where its producer stands in one run of all ranks that needs no
// times; on both sides, so nobody can deadlock: whatever stands before it can be done before it. Or
// (naive) a receive stands where its consumer does, and the two sides may disagree.
void PostingPlan::WriteFifoLanes() {
  const std::vector<std::vector<int32_t>> places =
      RunWithoutTimes(options_.receives == Receives::kDeferred);
  const auto place_of = [&](NodeId node) {
    const int rank = program_.rank_of(node);
    return places[static_cast<size_t>(rank)][node - program_.rank_begin(rank)];
  };
  const auto issued_with = [&](NodeId half) {
    const Message& message = program_.messages_[program_.message_of(half)];
    const bool by_producer = options_.receives != Receives::kNaive || program_.is_send(half);
    return place_of(by_producer ? message.from : message.to);
  };
  // By rank, peer, and direction where each has a channel of its own.
  std::map<std::tuple<int, int, bool>, std::vector<std::pair<int32_t, NodeId>>> lanes;
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    for (NodeId id = program_.rank_begin(rank); id < program_.iteration_begin(rank, 1); ++id) {
      const Node& node = program_.nodes_[id];
      for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
        for (const NodeId half : {program_.send_node(m), program_.receive_node(m)}) {
          const Link& link = program_.links_[program_.messages_[m].link];
          const int owner = program_.is_send(half) ? link.from_rank : link.to_rank;
          const bool apart = options_.channels == Channels::kDirected && program_.is_send(half);
          lanes[{owner, Peer(half), apart}].emplace_back(issued_with(half), half);
        }
      }
    }
  }
  for (auto& [key, halves] : lanes) {
    std::sort(halves.begin(), halves.end());
    Lane lane{.rank = std::get<0>(key), .nodes = {}};
    for (int i = 0; i < program_.num_iterations(); ++i) {
      for (const auto& [place, half] : halves) lane.nodes.push_back(Shifted(half, i));
    }
    program_.lanes_.push_back(std::move(lane));
  }
}

void PostingPlan::CloseBatch(Batch& batch, NodeId before, NodeId after, Lane& lane) {
  if (batch.halves.empty()) return;
  std::sort(batch.halves.begin(), batch.halves.end());  // simultaneous ones by number
  const NodeId id = program_.batch_node(static_cast<int32_t>(program_.batches_.size()));
  if (before != kNone) program_.edges_.push_back({.from = before, .to = id});
  program_.edges_.push_back({.from = id, .to = after});
  lane.nodes.push_back(id);
  program_.batches_.push_back(std::exchange(batch, {.rank = batch.rank, .halves = {}}));
}

// Before each node of the compute lane: what the node before it has made, and what it needs itself.
void PostingPlan::WriteBatches() {
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    Lane lane{.rank = rank, .nodes = {}};
    Batch batch{.rank = rank, .halves = {}};
    NodeId before = kNone;
    for (NodeId id = program_.rank_begin(rank); id < program_.rank_end(rank); ++id) {
      const Node& node = program_.nodes_[id];
      // Takes no part in exchanges, and runs beside the one that stands around it.
      if (node.kind == NodeKind::kValidation) continue;
      for (const MessageId input : node.inputs) {
        if (input != kNone) batch.halves.push_back(program_.receive_node(input));
      }
      CloseBatch(batch, before, id, lane);
      for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
        batch.halves.push_back(program_.send_node(m));
      }
      before = id;
    }
    if (!lane.nodes.empty()) program_.lanes_.push_back(std::move(lane));
  }
}

}  // namespace spiritlevel
