#include <algorithm>

#include "base/check.h"
#include "sim/engine.h"
#include "sim/engine_lanes.h"

namespace spiritlevel {
namespace {

constexpr TimeNs kNotYet = -1;

// One pass over the nodes, each rank as far as its inputs reach. Messages are timed when their
// producer is: under ideal posting a link carries them in that order, so it is known by then when
// the link will be free.
class InOrder {
 public:
  explicit InOrder(const Program& program)
      : program_(program),
        nodes_(program.nodes().data()),
        costs_(program.costs().data()),
        messages_(program.messages().data()),
        links_(program.links().data()),
        ranks_(static_cast<size_t>(program.num_ranks())),
        link_free_(program.links().size(), 0),
        collectives_(program.collectives().size()) {
    timeline_.nodes.resize(program.nodes().size());
    timeline_.messages.assign(program.messages().size(), {.start = 0, .arrival = kNotYet});
    for (int rank = program.num_ranks() - 1; rank >= 0; --rank) {
      RankState& state = ranks_[static_cast<size_t>(rank)];
      state.next = program.rank_begin(rank);
      state.end = program.rank_end(rank);
      state.live = Total(program.static_memory(rank));
      runnable_.push_back(rank);
    }
  }

  Timeline Run() {
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      RunRank(ranks_[static_cast<size_t>(rank)]);
    }
    for (const RankState& state : ranks_) {
      SPIRITLEVEL_CHECK(state.next == state.end, "a Program under ideal posting never deadlocks");
    }
    return std::move(timeline_);
  }

 private:
  struct RankState {
    NodeId next = 0;
    NodeId end = 0;
    TimeNs free = 0;  // when the compute lane is
    Bytes live = 0;
    MessageId waits_for = kNone;
  };

  struct CollectiveState {
    size_t arrived = 0;
    TimeNs start = 0;
  };

  void RunRank(RankState& rank) {
    // In registers, not behind a reference the compiler must assume the timeline aliases.
    NodeId id = rank.next;
    TimeNs free = rank.free;
    Bytes live = rank.live;
    MessageId missing = kNone;
    for (; id < rank.end; ++id) {
      const Node& node = nodes_[id];
      if (node.kind == NodeKind::kCollective) break;
      NodeTimes& times = timeline_.nodes[static_cast<size_t>(id)];
      TimeNs ready = free;
      MessageId cause = kNone;
      if (node.inputs[0] != kNone) {
        missing = LatestInput(node, ready, cause);
        if (missing != kNone) break;
        if (ready <= free) cause = kNone;
      }
      TimeNs duration = 0;
      TimeNs start = std::max(free, ready);
      Bytes shrink = 0;
      if (node.cost != kNone) {
        const NodeCost& cost = costs_[node.cost];
        start += cost.launch;
        duration = cost.duration;
        live += cost.grow;
        shrink = cost.shrink;
      }
      free = start + duration;
      times = {.start = start, .end = free, .ready = ready, .live = live, .cause = cause};
      live -= shrink;
      for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
        Send(m, free);
      }
    }
    rank.next = id;
    rank.free = free;
    rank.live = live;
    rank.waits_for = missing;
    if (missing == kNone && id < rank.end) JoinCollective(rank);
  }

  // Sets `ready` and `cause`, or returns the input that has not been sent yet.
  MessageId LatestInput(const Node& node, TimeNs& ready, MessageId& cause) const {
    ready = kNotYet;
    for (const MessageId input : node.inputs) {
      if (input == kNone) break;
      const TimeNs arrival = timeline_.messages[static_cast<size_t>(input)].arrival;
      if (arrival == kNotYet) return input;
      if (arrival > ready) {
        ready = arrival;
        cause = input;
      }
    }
    return kNone;
  }

  void Send(MessageId id, TimeNs made) {
    const Message& message = messages_[id];
    const Link& link = links_[message.link];
    TimeNs& link_free = link_free_[static_cast<size_t>(message.link)];
    const TimeNs start = std::max(link_free, made);
    link_free = start + link.hop.busy;
    timeline_.messages[static_cast<size_t>(id)] = {.start = start,
                                                   .arrival = link_free + link.hop.latency};
    RankState& receiver = ranks_[static_cast<size_t>(link.to_rank)];
    if (receiver.waits_for != id) return;
    receiver.waits_for = kNone;
    runnable_.push_back(link.to_rank);
  }

  void JoinCollective(const RankState& rank) {
    const Collective& collective = program_.collectives()[nodes_[rank.next].extra];
    CollectiveState& state = collectives_[static_cast<size_t>(nodes_[rank.next].extra)];
    state.start = std::max(state.start, rank.free);
    if (++state.arrived < collective.members.size()) return;
    const TimeNs end = state.start + collective.duration;
    for (size_t r = 0; r < collective.members.size(); ++r) {
      RankState& member = ranks_[r];
      timeline_.nodes[static_cast<size_t>(collective.members[r])] = {.start = state.start,
                                                                     .end = end,
                                                                     .ready = state.start,
                                                                     .live = member.live,
                                                                     .cause = kNone};
      ++member.next;
      member.free = end;
      runnable_.push_back(static_cast<int>(r));
    }
  }

  const Program& program_;
  const Node* nodes_;
  const NodeCost* costs_;
  const Message* messages_;
  const Link* links_;
  std::vector<RankState> ranks_;
  std::vector<TimeNs> link_free_;
  std::vector<CollectiveState> collectives_;
  std::vector<int> runnable_;
  Timeline timeline_;
};

}  // namespace

Timeline SimulateInOrder(const Program& program) {
  return program.is_simple() ? InOrder(program).Run() : SimulateLanesInOrder(program);
}

}  // namespace spiritlevel
