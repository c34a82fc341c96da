// Plays the lanes in the order of time: an event is the end of a node, and what has just become
// possible starts at that instant.
#include <algorithm>
#include <deque>
#include <vector>

#include "base/check.h"
#include "sim/engine_lanes.h"
#include "sim/event_queue.h"

namespace spiritlevel {
namespace {

class LanesByQueue {
 public:
  explicit LanesByQueue(const Program& program)
      : program_(program), lanes_(program.CommunicationLanes()), queue_(NumSlots(program)) {
    const size_t nodes = static_cast<size_t>(program.num_nodes());
    done_.assign(nodes, 0);
    lane_of_.assign(nodes, kNone);
    needs_.resize(nodes);
    feeds_.resize(nodes);
    heads_reached_.assign(program.messages().size(), 0);
    joined_.assign(program.collectives().size(), 0);
    link_busy_until_.assign(program.links().size(), 0);
    link_waiting_.resize(program.links().size());
    timeline_.nodes.assign(program.nodes().size(), {});
    timeline_.messages.assign(program.messages().size(), {});
    timeline_.reductions.assign(program.reductions().size(), {});
  }

  Timeline Run() {
    ReadProgram();
    for (size_t lane = 0; lane < cursors_.size(); ++lane) TakeUp(static_cast<int32_t>(lane));
    while (!queue_.empty()) {
      const auto [time, slot] = queue_.Pop();
      now_ = time;
      if (slot < num_links_) {
        StartWaiting(slot);
      } else {
        Finish(slot - num_links_);
      }
    }
    for (const Cursor& cursor : cursors_) {
      SPIRITLEVEL_CHECK(cursor.at == cursor.nodes.size(),
                        "a Program that the checker found free of deadlock runs to its end");
    }
    return std::move(timeline_);
  }

 private:
  // A lane and how far it is.
  struct Cursor {
    int rank = 0;
    std::vector<NodeId> nodes;
    size_t at = 0;
    bool running = false;
    TimeNs free_since = 0;
    Bytes live = 0;
  };

  // Slots: links that become free, then nodes that end.
  static int32_t NumSlots(const Program& program) {
    return static_cast<int32_t>(program.links().size()) + program.num_nodes();
  }

  void ReadProgram() {
    num_links_ = static_cast<int32_t>(program_.links().size());
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      Cursor cursor{.rank = rank, .nodes = {}};
      for (NodeId id = program_.rank_begin(rank); id < program_.rank_end(rank); ++id) {
        cursor.nodes.push_back(id);
      }
      cursor.live = Total(program_.static_memory(rank));
      cursors_.push_back(std::move(cursor));
    }
    for (Lane& lane : lanes_) {
      cursors_.push_back({.rank = lane.rank, .nodes = std::move(lane.nodes)});
    }
    batch_of_.assign(done_.size(), kNone);
    for (size_t b = 0; b < program_.batches().size(); ++b) {
      for (const NodeId half : program_.batches()[b].halves) {
        batch_of_[half] = static_cast<int32_t>(b);
      }
      open_.push_back(program_.batches()[b].halves.size());
    }
    for (size_t lane = 0; lane < cursors_.size(); ++lane) {
      for (const NodeId id : cursors_[lane].nodes) lane_of_[id] = static_cast<int32_t>(lane);
    }
    for (const Edge& edge : program_.edges()) Need(edge.to, edge.from);
    for (MessageId m = 0; m < static_cast<MessageId>(program_.messages().size()); ++m) {
      Need(InLane(program_.send_node(m)), program_.messages()[m].from);
      Need(program_.messages()[m].to, program_.receive_node(m));
    }
  }

  NodeId InLane(NodeId half) const {
    return batch_of_[half] == kNone ? half : program_.batch_node(batch_of_[half]);
  }

  void Need(NodeId node, NodeId other) {
    needs_[node].push_back(other);
    feeds_[other].push_back(node);
  }

  bool HasAll(NodeId node) const {
    return std::all_of(needs_[node].begin(), needs_[node].end(),
                       [&](NodeId other) { return done_[other] != 0; });
  }

  // Starts the node at the head of an idle lane, if nothing is missing.
  void TakeUp(int32_t lane) {
    Cursor& cursor = cursors_[lane];
    if (cursor.running || cursor.at == cursor.nodes.size()) return;
    const NodeId id = cursor.nodes[cursor.at];
    if (!HasAll(id)) return;
    cursor.running = true;
    if (program_.is_reduction(id)) {
      const int32_t reduction = id - program_.reduction_node(0);
      timeline_.reductions[reduction].ready = now_;
      Join(program_.reductions()[reduction].collective);
    } else if (program_.is_batch(id)) {
      for (const NodeId half : program_.batches()[id - program_.batch_node(0)].halves) Reach(half);
    } else if (id >= program_.num_lane_nodes()) {
      Reach(id);
    } else if (program_.nodes()[id].kind == NodeKind::kCollective) {
      Join(program_.nodes()[id].extra);
    } else {
      StartNode(id, cursor);
    }
  }

  void StartNode(NodeId id, Cursor& cursor) {
    const Node& node = program_.nodes()[id];
    static constexpr NodeCost kFree;
    const NodeCost& cost = node.cost == kNone ? kFree : program_.costs()[node.cost];
    cursor.live += cost.grow;
    NodeTimes& times = timeline_.nodes[id];
    times = {.start = now_ + cost.launch,
             .end = now_ + cost.launch + cost.duration,
             .ready = now_ > cursor.free_since ? now_ : ReadyBefore(node, cursor.free_since),
             .live = cursor.live,
             .cause = now_ > cursor.free_since ? LastInput(node) : kNone};
    queue_.Push(times.end, num_links_ + id);
  }

  TimeNs ReadyBefore(const Node& node, TimeNs lane_free) const {
    const MessageId last = LastInput(node);
    return last == kNone ? lane_free : timeline_.messages[last].arrival;
  }

  MessageId LastInput(const Node& node) const {
    MessageId last = kNone;
    for (const MessageId m : node.inputs) {
      if (m == kNone) continue;
      if (last == kNone || timeline_.messages[m].arrival > timeline_.messages[last].arrival) {
        last = m;
      }
    }
    return last;
  }

  void Join(int32_t id) {
    const Collective& collective = program_.collectives()[id];
    if (++joined_[id] < collective.members.size()) return;
    for (const NodeId member : collective.members) {
      if (program_.is_reduction(member)) {
        NodeTimes& times = timeline_.reductions[member - program_.reduction_node(0)];
        times.start = now_;
        times.end = now_ + collective.duration;
      } else {
        timeline_.nodes[member] = {.start = now_,
                                   .end = now_ + collective.duration,
                                   .ready = now_,
                                   .live = cursors_[lane_of_[member]].live,
                                   .cause = kNone};
      }
      queue_.Push(now_ + collective.duration, num_links_ + member);
    }
  }

  // One side of a message heads its lane; with the other one there too, or an eager one by its send
  // alone, it asks for the link.
  void Reach(NodeId half) {
    const MessageId m = program_.message_of(half);
    if (program_.rendezvous() ? ++heads_reached_[m] < 2 : !program_.is_send(half)) return;
    const int32_t link = program_.messages()[m].link;
    link_waiting_[link].push_back(m);
    if (link_waiting_[link].size() > 1) return;
    if (link_busy_until_[link] <= now_) {
      StartWaiting(link);
    } else {
      queue_.Push(link_busy_until_[link], link);
    }
  }

  void StartWaiting(int32_t link) {
    const MessageId m = link_waiting_[link].front();
    link_waiting_[link].pop_front();
    const HopCost& hop = program_.links()[link].hop;
    link_busy_until_[link] = now_ + hop.busy;
    const TimeNs arrival = now_ + hop.busy + hop.latency;
    timeline_.messages[m] = {.start = now_, .arrival = arrival};
    queue_.Push(program_.rendezvous() ? arrival : link_busy_until_[link],
                num_links_ + program_.send_node(m));
    queue_.Push(arrival, num_links_ + program_.receive_node(m));
    if (!link_waiting_[link].empty()) queue_.Push(link_busy_until_[link], link);
  }

  void Finish(NodeId id) {
    done_[id] = 1;
    if (batch_of_[id] != kNone) {
      if (--open_[batch_of_[id]] == 0) Finish(program_.batch_node(batch_of_[id]));
    } else {
      Advance(id);
    }
    for (const NodeId node : feeds_[id]) {
      if (lane_of_[node] != kNone) TakeUp(lane_of_[node]);
    }
  }

  void Advance(NodeId id) {
    Cursor& cursor = cursors_[lane_of_[id]];
    if (id < program_.num_lane_nodes()) {
      const int32_t cost = program_.nodes()[id].cost;
      if (cost != kNone) cursor.live -= program_.costs()[cost].shrink;
    }
    cursor.running = false;
    cursor.free_since = now_;
    ++cursor.at;
    TakeUp(lane_of_[id]);
  }

  const Program& program_;
  std::vector<Lane> lanes_;
  EventQueue<UInt128> queue_;
  int32_t num_links_ = 0;
  TimeNs now_ = 0;
  std::vector<Cursor> cursors_;
  std::vector<uint8_t> done_;
  std::vector<int32_t> lane_of_;
  std::vector<int32_t> batch_of_;
  std::vector<size_t> open_;  // of each batch, halves that are not done
  std::vector<std::vector<NodeId>> needs_;
  std::vector<std::vector<NodeId>> feeds_;
  std::vector<int> heads_reached_;
  std::vector<size_t> joined_;
  std::vector<TimeNs> link_busy_until_;
  std::vector<std::deque<MessageId>> link_waiting_;
  Timeline timeline_;
};

}  // namespace

Timeline SimulateLanesByQueue(const Program& program) { return LanesByQueue(program).Run(); }

}  // namespace spiritlevel
