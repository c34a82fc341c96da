#include "sim/posting.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "sim/batch_plan.h"

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

// A validation exchanges nothing; the parts of an op after the first belong to its round.
bool PostingPlan::NeedsNoRound(const Node& node) const {
  return node.kind == NodeKind::kValidation ||
         (node.kind == NodeKind::kPart && program_.part(node).index > 0);
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
  const auto take = [&](int rank, std::vector<int32_t>& taken) {
    const Node& node =
        program_.nodes_[program_.rank_begin(rank) + static_cast<NodeId>(taken.size())];
    taken.push_back(place++);
    for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
      usable_from[m] = round + (delayed ? 2 : 0);
    }
  };
  const auto next_of = [&](int rank, const std::vector<int32_t>& taken) {
    const NodeId id = program_.rank_begin(rank) + static_cast<NodeId>(taken.size());
    return id == program_.iteration_begin(rank, 1) ? nullptr : &program_.nodes_[id];
  };
  int32_t rounds_left = 2;  // in which nothing happens because all is on its way
  for (; rounds_left > 0; ++round, --rounds_left) {
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<int32_t>& taken = places[static_cast<size_t>(rank)];
      const auto take_what_needs_no_round = [&] {
        for (const Node* node = next_of(rank, taken); node != nullptr && NeedsNoRound(*node);
             node = next_of(rank, taken)) {
          take(rank, taken);
          rounds_left = 3;
        }
      };
      take_what_needs_no_round();
      const Node* node = next_of(rank, taken);
      if (node == nullptr || !has_inputs(*node)) continue;
      rounds_left = 3;
      take(rank, taken);
      take_what_needs_no_round();
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

void PostingPlan::WriteBatches() {
  BatchPlan batches(program_);
  const std::vector<std::vector<PlannedBatch>> plan =
      options_.receives == Receives::kNaive ? batches.MakeLiterally() : batches.Make();
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    Lane lane{.rank = rank, .nodes = {}};
    for (int i = 0; i < program_.num_iterations(); ++i) {
      for (const PlannedBatch& batch : plan[static_cast<size_t>(rank)]) {
        lane.nodes.push_back(WriteBatch(batch, rank, i));
      }
    }
    if (!lane.nodes.empty()) program_.lanes_.push_back(std::move(lane));
  }
}

NodeId PostingPlan::WriteBatch(const PlannedBatch& planned, int rank, int iteration) {
  const NodeId shift = iteration * program_.nodes_per_iteration_[rank];
  const NodeId id = program_.batch_node(static_cast<int32_t>(program_.batches_.size()));
  Batch batch{.rank = rank, .halves = {}};
  for (const NodeId half : planned.halves) batch.halves.push_back(Shifted(half, iteration));
  program_.batches_.push_back(std::move(batch));
  if (planned.before != kNone) {
    program_.edges_.push_back({.from = planned.before + shift, .to = id});
  } else if (iteration > 0) {
    program_.edges_.push_back({.from = program_.iteration_begin(rank, iteration) - 1, .to = id});
  }
  program_.edges_.push_back({.from = id, .to = planned.after + shift});
  return id;
}

}  // namespace spiritlevel
