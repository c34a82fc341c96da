// Every start is the latest of what it waits for, so each node is timed once, as soon as all it
// waits for have been: a walk over the dependencies, in no order of time.
#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "sim/engine_lanes.h"

namespace spiritlevel {
namespace {

class LanesInOrder {
 public:
  explicit LanesInOrder(const Program& program)
      : program_(program),
        waits_for_(static_cast<size_t>(program.num_nodes()), 0),
        head_(waits_for_.size(), 0),
        next_in_lane_(waits_for_.size(), kNone),
        batch_of_(waits_for_.size(), kNone),
        first_edge_(waits_for_.size(), kNone),
        messages_(program.messages().size()),
        batches_(program.batches().size()),
        collectives_(program.collectives().size()),
        link_free_(program.links().size(), 0),
        next_on_link_(program.messages().size(), kNone) {
    timeline_.nodes.assign(program.nodes().size(), {});
    timeline_.messages.assign(program.messages().size(), {});
    timeline_.reductions.assign(program.reductions().size(), {});
  }

  Timeline Run() {
    ReadBatches();
    ReadLanes();
    ReadEdges();
    ReadLinks();
    for (NodeId id = 0; id < program_.num_nodes(); ++id) {
      if (waits_for_[id] == 0 && IsInLane(id)) heads_.push_back(id);
    }
    while (!heads_.empty()) {
      const NodeId id = heads_.back();
      heads_.pop_back();
      ReachHead(id);
    }
    CheckThatAllEnded();
    AccountForMemory();
    return std::move(timeline_);
  }

 private:
  struct MessageState {
    int heads = 0;          // of the two sides, how many have reached theirs
    TimeNs ready = 0;       // when the last of them did that it waits for
    bool has_link = false;  // the message before it on its link has started
    bool done = false;
  };

  struct BatchState {
    size_t open = 0;
    TimeNs end = 0;
  };

  struct CollectiveState {
    size_t joined = 0;
    TimeNs start = 0;
  };

  const Node& NodeOf(NodeId id) const { return program_.nodes()[id]; }
  bool OnComputeLane(NodeId id) const { return id < program_.num_lane_nodes(); }
  bool IsBatch(NodeId id) const { return program_.is_batch(id); }
  // A half inside a batch is not in a lane: its batch is.
  bool IsInLane(NodeId id) const { return batch_of_[id] == kNone; }
  NodeId InLane(NodeId half) const {
    return batch_of_[half] == kNone ? half : program_.batch_node(batch_of_[half]);
  }

  void ReadBatches() {
    for (size_t b = 0; b < batches_.size(); ++b) {
      batches_[b].open = program_.batches()[b].halves.size();
      for (const NodeId half : program_.batches()[b].halves) {
        batch_of_[half] = static_cast<int32_t>(b);
      }
    }
  }

  void Follow(NodeId before, NodeId after) {
    next_in_lane_[before] = after;
    ++waits_for_[after];
  }

  void ReadLanes() {
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      for (NodeId id = program_.rank_begin(rank) + 1; id < program_.rank_end(rank); ++id) {
        Follow(id - 1, id);
      }
    }
    for (const Lane& lane : program_.CommunicationLanes()) {
      for (size_t i = 1; i < lane.nodes.size(); ++i) Follow(lane.nodes[i - 1], lane.nodes[i]);
    }
  }

  void AddEdge(NodeId from, NodeId to) {
    edges_.push_back({to, first_edge_[from]});
    first_edge_[from] = static_cast<int32_t>(edges_.size()) - 1;
    ++waits_for_[to];
  }

  void ReadEdges() {
    for (const Edge& edge : program_.edges()) AddEdge(edge.from, edge.to);
    for (MessageId m = 0; m < static_cast<MessageId>(program_.messages().size()); ++m) {
      const Message& message = program_.messages()[m];
      AddEdge(message.from, InLane(program_.send_node(m)));
      AddEdge(program_.receive_node(m), message.to);
    }
  }

  // In which order messages ask for their link is settled by their lanes: a receiver's lane takes
  // one node after the other, and of what one node of it receives, the sender's lane decides.
  void ReadLinks() {
    std::vector<size_t> place(waits_for_.size(), 0);  // of a half, in its lane
    for (const Lane& lane : program_.CommunicationLanes()) {
      for (size_t i = 0; i < lane.nodes.size(); ++i) {
        const NodeId id = lane.nodes[i];
        place[id] = i;
        if (!IsBatch(id)) continue;
        for (const NodeId half : program_.batches()[id - program_.batch_node(0)].halves) {
          place[half] = i;
        }
      }
    }
    std::vector<MessageId> order(messages_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](MessageId m) {
      return std::tuple(program_.messages()[m].link, place[program_.receive_node(m)],
                        place[program_.send_node(m)], m);
    };
    std::sort(order.begin(), order.end(),
              [&](MessageId a, MessageId b) { return key(a) < key(b); });
    for (size_t i = 0; i < order.size(); ++i) {
      const auto link_of = [&](size_t k) { return program_.messages()[order[k]].link; };
      if (i == 0 || link_of(i - 1) != link_of(i)) {
        messages_[order[i]].has_link = true;
      } else {
        next_on_link_[order[i - 1]] = order[i];
      }
    }
  }

  // All that `id` waits for is done.
  void ReachHead(NodeId id) {
    if (IsBatch(id)) {
      for (const NodeId half : program_.batches()[id - program_.batch_node(0)].halves) {
        JoinMessage(half, head_[id]);
      }
    } else if (program_.is_reduction(id)) {
      JoinCollective(id, program_.reductions()[id - program_.reduction_node(0)].collective);
    } else if (!OnComputeLane(id)) {
      JoinMessage(id, head_[id]);
    } else if (NodeOf(id).kind == NodeKind::kCollective) {
      JoinCollective(id, NodeOf(id).extra);
    } else {
      RunNode(id);
    }
  }

  void RunNode(NodeId id) {
    const Node& node = NodeOf(id);
    NodeTimes& times = timeline_.nodes[id];
    const bool first = id == program_.rank_begin(program_.rank_of(id));
    const TimeNs lane_free = first ? 0 : timeline_.nodes[id - 1].end;
    times.ready = ReadyTime(node, id, lane_free);
    times.cause = times.ready > lane_free ? LatestInput(node) : kNone;
    times.start = head_[id];
    TimeNs duration = 0;
    if (node.cost != kNone) {
      times.start += program_.costs()[node.cost].launch;
      duration = program_.costs()[node.cost].duration;
    }
    times.end = times.start + duration;
    End(id, times.end);
  }

  // What it waits for beside its lane; the lane alone where that is all.
  TimeNs ReadyTime(const Node& node, NodeId id, TimeNs lane_free) const {
    if (head_[id] > lane_free) return head_[id];
    TimeNs ready = -1;
    for (const MessageId m : node.inputs) {
      if (m != kNone) ready = std::max(ready, timeline_.messages[m].arrival);
    }
    return ready < 0 ? lane_free : ready;
  }

  MessageId LatestInput(const Node& node) const {
    MessageId latest = node.inputs[0];
    if (node.inputs[1] == kNone) return latest;
    const bool second =
        timeline_.messages[node.inputs[1]].arrival > timeline_.messages[latest].arrival;
    return second ? node.inputs[1] : latest;
  }

  void JoinCollective(NodeId id, int32_t joined) {
    const Collective& collective = program_.collectives()[joined];
    CollectiveState& state = collectives_[joined];
    state.start = std::max(state.start, head_[id]);
    if (++state.joined < collective.members.size()) return;
    const TimeNs end = state.start + collective.duration;
    for (const NodeId member : collective.members) {
      NodeTimes times{.start = state.start, .end = end, .ready = state.start};
      if (program_.is_reduction(member)) {
        times.ready = head_[member];
        timeline_.reductions[member - program_.reduction_node(0)] = times;
      } else {
        timeline_.nodes[member] = times;
      }
      End(member, end);
    }
  }

  void JoinMessage(NodeId half, TimeNs at) {
    const MessageId m = program_.message_of(half);
    MessageState& state = messages_[m];
    ++state.heads;
    // An eager one asks for nothing at the receiver. Its receive is counted all the same, so that
    // the lane there takes one after the other.
    if (program_.rendezvous() || program_.is_send(half)) state.ready = std::max(state.ready, at);
    TryToStart(m);
  }

  void TryToStart(MessageId m) {
    MessageState& state = messages_[m];
    if (state.done || state.heads < 2 || !state.has_link) return;
    state.done = true;
    const int32_t link = program_.messages()[m].link;
    const HopCost& hop = program_.links()[link].hop;
    const TimeNs start = std::max(state.ready, link_free_[link]);
    link_free_[link] = start + hop.busy;
    const TimeNs arrival = start + hop.busy + hop.latency;
    timeline_.messages[m] = {.start = start, .arrival = arrival};
    EndHalf(program_.send_node(m), program_.rendezvous() ? arrival : link_free_[link]);
    EndHalf(program_.receive_node(m), arrival);
    if (const MessageId next = next_on_link_[m]; next != kNone) {
      messages_[next].has_link = true;
      TryToStart(next);
    }
  }

  void EndHalf(NodeId half, TimeNs at) {
    End(half, at);
    if (batch_of_[half] == kNone) return;
    BatchState& batch = batches_[batch_of_[half]];
    batch.end = std::max(batch.end, at);
    if (--batch.open == 0) End(program_.batch_node(batch_of_[half]), batch.end);
  }

  void End(NodeId id, TimeNs at) {
    if (next_in_lane_[id] != kNone) Release(next_in_lane_[id], at);
    for (int32_t e = first_edge_[id]; e != kNone; e = edges_[e].next) Release(edges_[e].to, at);
  }

  void Release(NodeId id, TimeNs at) {
    head_[id] = std::max(head_[id], at);
    if (--waits_for_[id] == 0) heads_.push_back(id);
  }

  void CheckThatAllEnded() const {
    const bool all =
        std::all_of(messages_.begin(), messages_.end(),
                    [](const MessageState& m) { return m.done; }) &&
        std::all_of(waits_for_.begin(), waits_for_.end(), [](int32_t waits) { return waits == 0; });
    SPIRITLEVEL_CHECK(all, "a Program that the checker found free of deadlock runs to its end");
  }

  void AccountForMemory() {
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      Bytes live = Total(program_.static_memory(rank));
      for (NodeId id = program_.rank_begin(rank); id < program_.rank_end(rank); ++id) {
        const int32_t cost = NodeOf(id).cost;
        if (cost != kNone) live += program_.costs()[cost].grow;
        timeline_.nodes[id].live = live;
        if (cost != kNone) live -= program_.costs()[cost].shrink;
      }
    }
  }

  struct Out {
    NodeId to;
    int32_t next;  // of the same node
  };

  const Program& program_;
  std::vector<int32_t> waits_for_;  // how many ends
  std::vector<TimeNs> head_;        // the latest of those so far
  std::vector<NodeId> next_in_lane_;
  std::vector<int32_t> batch_of_;
  std::vector<int32_t> first_edge_;
  std::vector<Out> edges_;
  std::vector<MessageState> messages_;
  std::vector<BatchState> batches_;
  std::vector<CollectiveState> collectives_;
  std::vector<TimeNs> link_free_;
  std::vector<MessageId> next_on_link_;
  std::vector<NodeId> heads_;
  Timeline timeline_;
};

}  // namespace

Timeline SimulateLanesInOrder(const Program& program) { return LanesInOrder(program).Run(); }

}  // namespace spiritlevel
