#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sim/engine.h"
#include "sim/event_queue.h"

namespace spiritlevel {
namespace {

// Slots of the queue: a rank's compute lane becomes free; a link delivers the message it has had
// longest; a link becomes free.
template <class Key>
class ByQueue {
 public:
  explicit ByQueue(const Program& program)
      : program_(program),
        num_ranks_(program.num_ranks()),
        num_links_(static_cast<int32_t>(program.links().size())),
        queue_(num_ranks_ + 2 * num_links_),
        ranks_(static_cast<size_t>(num_ranks_)),
        links_(static_cast<size_t>(num_links_)),
        arrived_(program.messages().size(), 0),
        next_on_link_(program.messages().size(), kNone),
        members_waiting_(program.collectives().size(), 0) {
    timeline_.nodes.resize(program.nodes().size());
    timeline_.messages.resize(program.messages().size());
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
      } else if (slot < num_ranks_ + num_links_) {
        Deliver(slot - num_ranks_, now);
      } else {
        StartTransfer(slot - num_ranks_ - num_links_, now);
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
    bool running = false;
    TimeNs free_since = 0;
    Bytes live = 0;
  };

  // Messages of a link, in order: delivered ones, those in flight, those that wait to start.
  struct LinkState {
    MessageId in_flight = kNone;  // the oldest
    MessageId waiting = kNone;    // the first
    MessageId last = kNone;       // the youngest of all
    TimeNs free = 0;
  };

  const Node& HeadOf(const Rank& rank) const { return program_.nodes()[rank.head]; }

  // Starts the head of an idle lane if it can run.
  void TakeUp(int rank_id, TimeNs now) {
    Rank& rank = ranks_[static_cast<size_t>(rank_id)];
    if (rank.head == rank.end) return;
    const Node& node = HeadOf(rank);
    if (node.kind == NodeKind::kCollective) {
      JoinCollective(node.extra, now);
      return;
    }
    TimeNs ready = node.inputs[0] == kNone ? now : 0;
    MessageId latest = kNone;
    for (const MessageId input : node.inputs) {
      if (input == kNone) continue;
      if (!arrived_[static_cast<size_t>(input)]) return;
      const TimeNs arrival = timeline_.messages[static_cast<size_t>(input)].arrival;
      if (latest == kNone || arrival > ready) {
        latest = input;
        ready = arrival;
      }
    }
    const MessageId cause = ready > rank.free_since ? latest : kNone;
    Start(rank_id, now, ready, cause);
  }

  void Start(int rank_id, TimeNs now, TimeNs ready, MessageId cause) {
    Rank& rank = ranks_[static_cast<size_t>(rank_id)];
    const Node& node = HeadOf(rank);
    static constexpr NodeCost kFree;
    const NodeCost& cost = node.cost == kNone ? kFree : program_.costs()[node.cost];
    rank.running = true;
    rank.live += cost.grow;
    const TimeNs start = now + cost.launch;
    timeline_.nodes[static_cast<size_t>(rank.head)] = {.start = start,
                                                       .end = start + cost.duration,
                                                       .ready = ready,
                                                       .live = rank.live,
                                                       .cause = cause};
    queue_.Push(start + cost.duration, rank_id);
  }

  void FinishNode(int rank_id, TimeNs now) {
    Rank& rank = ranks_[static_cast<size_t>(rank_id)];
    const Node& node = HeadOf(rank);
    if (node.cost != kNone) rank.live -= program_.costs()[node.cost].shrink;
    rank.running = false;
    rank.free_since = now;
    ++rank.head;
    for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
      Enqueue(m, now);
    }
    TakeUp(rank_id, now);
  }

  void Enqueue(MessageId message, TimeNs now) {
    const int32_t link = program_.messages()[message].link;
    LinkState& state = links_[static_cast<size_t>(link)];
    if (state.last != kNone) next_on_link_[static_cast<size_t>(state.last)] = message;
    state.last = message;
    if (state.waiting != kNone) return;  // behind others; the link is busy
    state.waiting = message;
    if (state.free <= now) {
      StartTransfer(link, now);
    } else {
      queue_.Push(state.free, num_ranks_ + num_links_ + link);
    }
  }

  void StartTransfer(int32_t link, TimeNs now) {
    LinkState& state = links_[static_cast<size_t>(link)];
    const HopCost& hop = program_.links()[link].hop;
    const MessageId message = state.waiting;
    MessageTimes& times = timeline_.messages[static_cast<size_t>(message)];
    times = {.start = now, .arrival = now + hop.busy + hop.latency};
    state.free = now + hop.busy;
    state.waiting = next_on_link_[static_cast<size_t>(message)];
    if (state.in_flight == kNone) {
      state.in_flight = message;
      queue_.Push(times.arrival, num_ranks_ + link);
    }
    if (state.waiting != kNone) queue_.Push(state.free, num_ranks_ + num_links_ + link);
  }

  void Deliver(int32_t link, TimeNs now) {
    LinkState& state = links_[static_cast<size_t>(link)];
    const MessageId message = state.in_flight;
    arrived_[static_cast<size_t>(message)] = 1;
    const MessageId next = next_on_link_[static_cast<size_t>(message)];
    state.in_flight = next == state.waiting ? kNone : next;
    if (state.in_flight != kNone) {
      queue_.Push(timeline_.messages[static_cast<size_t>(next)].arrival, num_ranks_ + link);
    }
    const int receiver = program_.links()[link].to_rank;
    const Rank& rank = ranks_[static_cast<size_t>(receiver)];
    if (!rank.running && rank.head == program_.messages()[message].to) TakeUp(receiver, now);
  }

  void JoinCollective(int32_t id, TimeNs now) {
    const Collective& collective = program_.collectives()[id];
    if (++members_waiting_[static_cast<size_t>(id)] < collective.members.size()) return;
    for (int r = 0; r < num_ranks_; ++r) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      rank.running = true;
      timeline_.nodes[static_cast<size_t>(rank.head)] = {.start = now,
                                                         .end = now + collective.duration,
                                                         .ready = now,
                                                         .live = rank.live,
                                                         .cause = kNone};
      queue_.Push(now + collective.duration, r);
    }
  }

  const Program& program_;
  int32_t num_ranks_;
  int32_t num_links_;
  EventQueue<Key> queue_;
  std::vector<Rank> ranks_;
  std::vector<LinkState> links_;
  std::vector<uint8_t> arrived_;
  std::vector<MessageId> next_on_link_;
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
  const auto slots = static_cast<int32_t>(program.num_ranks() + 2 * program.links().size());
  const Int128 latest = LatestPossible(program);
  SPIRITLEVEL_CHECK(latest <= std::numeric_limits<TimeNs>::max(), "times fit in 63 bits");
  const int slot_bits = EventQueue<uint64_t>::SlotBits(slots);
  if (latest < (Int128{1} << (64 - slot_bits))) return ByQueue<uint64_t>(program).Run();
  return ByQueue<UInt128>(program).Run();
}

}  // namespace spiritlevel
