#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sim/engine.h"
#include "sim/engine_lanes.h"
#include "sim/event_queue.h"

namespace spiritlevel {
namespace {

constexpr TimeNs kNotYet = -1;

// Slots of the queue: a rank whose node ends; a link that becomes free while messages wait for it.
// An arrival or a start needs no event: once the messages that a node waits for are on their links
// and its lane is free, it is known when it will start. What a start depends on by the time of day
// (none of it so far: nothing is chosen, and no link is shared) would have to be an event.
template <class Key>
class ByQueue {
 public:
  explicit ByQueue(const Program& program)
      : program_(program),
        nodes_(program.nodes()),
        messages_(program.messages()),
        num_ranks_(program.num_ranks()),
        queue_(num_ranks_ + static_cast<int32_t>(program.links().size())),
        ranks_(static_cast<size_t>(num_ranks_)),
        links_(program.links().size()),
        next_on_link_(program.messages().size()),
        members_waiting_(program.collectives().size(), 0) {
    timeline_.nodes.resize(program.nodes().size());
    timeline_.messages.assign(program.messages().size(), {.start = 0, .arrival = kNotYet});
    for (int rank = 0; rank < num_ranks_; ++rank) {
      Rank& state = ranks_[static_cast<size_t>(rank)];
      state.head = program.rank_begin(rank);
      state.end = program.rank_end(rank);
      state.live = Total(program.static_memory(rank));
    }
  }

  Timeline Run() {
    for (int rank = 0; rank < num_ranks_; ++rank) TakeUp(rank, 0);
    while (!queue_.empty()) {
      const auto [now, slot] = queue_.Pop();
      if (slot < num_ranks_) {
        FinishNode(slot, now);
      } else {
        FreeLink(slot - num_ranks_, now);
      }
    }
    for (const Rank& rank : ranks_) {
      SPIRITLEVEL_CHECK(rank.head == rank.end, "a Program under ideal posting never deadlocks");
    }
    return std::move(timeline_);
  }

 private:
  struct Rank {
    NodeId head = 0;  // running, or the next to run
    NodeId end = 0;
    MessageId waits_for = kNone;  // an input of the head that is not on its link yet
    TimeNs free_since = 0;
    Bytes live = 0;
  };

  // Messages that wait for the link, in order.
  struct LinkState {
    MessageId first = kNone;
    MessageId last = kNone;
    TimeNs free = 0;
  };

  // Starts the head of a lane that is free, or notes which input of it is missing.
  void TakeUp(int rank_id, TimeNs now) {
    Rank& rank = ranks_[static_cast<size_t>(rank_id)];
    if (rank.head == rank.end) return;
    const Node& node = nodes_[static_cast<size_t>(rank.head)];
    if (node.kind == NodeKind::kCollective) {
      JoinCollective(node.extra, now);
      return;
    }
    MessageId cause = kNone;
    TimeNs ready = node.inputs[0] == kNone ? rank.free_since : kNotYet;
    for (const MessageId input : node.inputs) {
      if (input == kNone) break;
      const TimeNs arrival = timeline_.messages[static_cast<size_t>(input)].arrival;
      if (arrival == kNotYet) {
        rank.waits_for = input;
        return;
      }
      if (arrival <= ready) continue;
      ready = arrival;
      cause = input;
    }
    Start(rank_id, ready, ready > rank.free_since ? cause : kNone);
  }

  void Start(int rank_id, TimeNs ready, MessageId cause) {
    Rank& rank = ranks_[static_cast<size_t>(rank_id)];
    const Node& node = nodes_[static_cast<size_t>(rank.head)];
    static constexpr NodeCost kFree;
    const NodeCost& cost =
        node.cost == kNone ? kFree : program_.costs()[static_cast<size_t>(node.cost)];
    rank.live += cost.grow;
    const TimeNs start = std::max(rank.free_since, ready) + cost.launch;
    const TimeNs end = start + cost.duration;
    timeline_.nodes[static_cast<size_t>(rank.head)] = {
        .start = start, .end = end, .ready = ready, .live = rank.live, .cause = cause};
    queue_.Push(end, rank_id);
  }

  void FinishNode(int rank_id, TimeNs now) {
    Rank& rank = ranks_[static_cast<size_t>(rank_id)];
    const Node& node = nodes_[static_cast<size_t>(rank.head)];
    if (node.cost != kNone) rank.live -= program_.costs()[static_cast<size_t>(node.cost)].shrink;
    rank.free_since = now;
    ++rank.head;
    // Its own lane first: that is what the queue has kept a place for.
    TakeUp(rank_id, now);
    for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
      Post(m, now);
    }
  }

  void Post(MessageId message, TimeNs now) {
    const int32_t link = messages_[static_cast<size_t>(message)].link;
    LinkState& state = links_[static_cast<size_t>(link)];
    if (state.first == kNone && state.free <= now) {
      Transfer(message, link, now);
      return;
    }
    if (state.first == kNone) {
      state.first = message;
      queue_.Push(state.free, num_ranks_ + link);
    } else {
      next_on_link_[static_cast<size_t>(state.last)] = message;
    }
    state.last = message;
  }

  void FreeLink(int32_t link, TimeNs now) {
    LinkState& state = links_[static_cast<size_t>(link)];
    const MessageId message = state.first;
    state.first = message == state.last ? kNone : next_on_link_[static_cast<size_t>(message)];
    Transfer(message, link, now);
    if (state.first != kNone) queue_.Push(state.free, num_ranks_ + link);
  }

  void Transfer(MessageId message, int32_t link_id, TimeNs now) {
    const Link& link = program_.links()[static_cast<size_t>(link_id)];
    const TimeNs free = now + link.hop.busy;
    links_[static_cast<size_t>(link_id)].free = free;
    timeline_.messages[static_cast<size_t>(message)] = {.start = now,
                                                        .arrival = free + link.hop.latency};
    Rank& receiver = ranks_[static_cast<size_t>(link.to_rank)];
    if (receiver.waits_for != message) return;
    receiver.waits_for = kNone;
    TakeUp(link.to_rank, now);
  }

  void JoinCollective(int32_t id, TimeNs now) {
    const Collective& collective = program_.collectives()[static_cast<size_t>(id)];
    if (++members_waiting_[static_cast<size_t>(id)] < collective.members.size()) return;
    for (int r = 0; r < num_ranks_; ++r) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      timeline_.nodes[static_cast<size_t>(rank.head)] = {.start = now,
                                                         .end = now + collective.duration,
                                                         .ready = now,
                                                         .live = rank.live,
                                                         .cause = kNone};
      queue_.Push(now + collective.duration, r);
    }
  }

  const Program& program_;
  const std::span<const Node> nodes_;
  const std::span<const Message> messages_;
  int32_t num_ranks_;
  EventQueue<Key> queue_;
  std::vector<Rank> ranks_;
  std::vector<LinkState> links_;
  RawVector<MessageId> next_on_link_;  // of a message that waits, if it is not the last
  std::vector<size_t> members_waiting_;
  Timeline timeline_;
};

// No event is later than the end of a run that does one thing at a time.
Int128 LatestPossible(const Program& program) {
  Int128 sum = 0;
  for (const Node& node : program.nodes()) {
    if (node.cost == kNone) continue;
    const NodeCost& cost = program.costs()[node.cost];
    sum += cost.launch + cost.duration;
  }
  for (const Collective& collective : program.collectives()) sum += collective.duration;
  HopCost slowest;
  for (const Link& link : program.links()) {
    slowest.busy = std::max(slowest.busy, link.hop.busy);
    slowest.latency = std::max(slowest.latency, link.hop.latency);
  }
  return sum + static_cast<Int128>(program.messages().size()) * (slowest.busy + slowest.latency);
}

}  // namespace

Timeline SimulateByQueue(const Program& program) {
  if (!program.is_simple()) return SimulateLanesByQueue(program);
  const auto slots = static_cast<int32_t>(program.num_ranks() + program.links().size());
  const Int128 latest = LatestPossible(program);
  SPIRITLEVEL_CHECK(latest <= std::numeric_limits<TimeNs>::max(), "times fit in 63 bits");
  const int slot_bits = EventQueue<uint64_t>::SlotBits(slots);
  if (latest < (Int128{1} << (64 - slot_bits))) return ByQueue<uint64_t>(program).Run();
  return ByQueue<UInt128>(program).Run();
}

}  // namespace spiritlevel
