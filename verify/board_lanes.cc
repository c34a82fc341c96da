// How lanes advance: every end releases what waited for it, and what then heads its lane starts.
// Times of communication are those of the clock when it is done, or, with emulated delays, those
// that the costs say, which may lie ahead; a rank that needs what is not there yet waits for the
// time.
#include <algorithm>
#include <utility>

#include "verify/board.h"
#include "verify/clock.h"

namespace spiritlevel {

void Board::StartLanes() {
  for (int replica = 0; replica < options_.replicas; ++replica) {
    std::copy(plan_.waits_for().begin(), plan_.waits_for().end(),
              waits_for_.begin() + static_cast<ptrdiff_t>(At(replica, 0)));
    for (size_t b = 0; b < program_.batches().size(); ++b) {
      batches_[replica * program_.batches().size() + b].open =
          static_cast<int32_t>(program_.batches()[b].halves.size());
    }
    for (NodeId id = program_.num_lane_nodes(); id < program_.num_nodes(); ++id) {
      const bool in_batch = program_.is_half(id) && plan_.batch_of(id) != kNone;
      if (!in_batch && plan_.waits_for()[id] == 0) reached_.push_back({replica, id});
    }
  }
  Advance();
}

void Board::Advance() {
  now_ = Now();
  while (!reached_.empty()) {
    const Reached next = reached_.back();
    reached_.pop_back();
    ReachHead(next.replica, next.node);
  }
}

void Board::Finish(int replica, NodeId node, TimeNs at) {
  for (const NodeId follower : plan_.followers(node)) Release(replica, follower, at);
}

void Board::Release(int replica, NodeId node, TimeNs at) {
  const size_t place = At(replica, node);
  head_[place] = std::max(head_[place], at);
  if (--waits_for_[place] > 0) return;
  if (node < program_.num_lane_nodes()) {
    ranks_[IndexOf(replica, node)].bell.Ring();
  } else {
    reached_.push_back({replica, node});
  }
}

// All that a node of a communication lane waits for is done.
void Board::ReachHead(int replica, NodeId node) {
  const TimeNs at = head_[At(replica, node)];
  if (program_.is_reduction(node)) {
    AddService(IndexOf(replica, node), {.node = node, .combines = false});
  } else if (program_.is_batch(node)) {
    for (const NodeId half : program_.batches()[node - program_.batch_node(0)].halves) {
      JoinMessage(replica, half, at);
    }
  } else {
    JoinMessage(replica, node, at);
  }
}

// An eager message asks for nothing at the receiver; its receive is counted all the same, so that
// the lane there takes one after the other.
void Board::JoinMessage(int replica, NodeId half, TimeNs at) {
  const MessageId message = program_.message_of(half);
  MessageState& state = messages_[MessageAt(replica, message)];
  if (program_.rendezvous() || program_.is_send(half)) state.ready = std::max(state.ready, at);
  if (++state.heads == 2) Transfer(replica, message);
}

const Fault* Board::FaultOf(int replica, MessageId message, FaultKind kind) const {
  for (const Fault& fault : options_.faults) {
    if (fault.kind == kind && fault.replica == replica &&
        fault.node == program_.messages()[message].from) {
      return &fault;
    }
  }
  return nullptr;
}

void Board::Transfer(int replica, MessageId message) {
  const size_t place = MessageAt(replica, message);
  MessageState& state = messages_[place];
  state.has_left = true;
  MessageTimes& times = message_times_[place];
  times.start = state.ready;
  TimeNs has_link_until = std::max(state.ready, now_);
  times.arrival = has_link_until;
  if (options_.emulate_delays) {
    const int32_t link = program_.messages()[message].link;
    const HopCost& hop = program_.links()[link].hop;
    TimeNs& free = link_free_[replica * program_.links().size() + static_cast<size_t>(link)];
    times.start = std::max(state.ready, free);
    has_link_until = free = times.start + hop.busy;
    times.arrival = free + hop.latency;
  }
  if (const Fault* delay = FaultOf(replica, message, FaultKind::kDelayMessage); delay != nullptr) {
    times.arrival += delay->delay;
  }
  FinishHalf(replica, program_.send_node(message),
             program_.rendezvous() ? times.arrival : has_link_until);
  if (FaultOf(replica, message, FaultKind::kLoseMessage) != nullptr) return;
  const bool misnamed = FaultOf(replica, message, FaultKind::kWrongMessage) != nullptr;
  Arrive(replica, message, misnamed ? message + 1 : message);
  if (FaultOf(replica, message, FaultKind::kDoubleMessage) != nullptr) {
    Arrive(replica, message, message);
  }
}

void Board::FinishHalf(int replica, NodeId half, TimeNs at) {
  Finish(replica, half, at);
  const int32_t batch = plan_.batch_of(half);
  if (batch == kNone) return;
  BatchState& state = batches_[replica * program_.batches().size() + static_cast<size_t>(batch)];
  state.end = std::max(state.end, at);
  if (--state.open == 0) Finish(replica, program_.batch_node(batch), state.end);
}

Board::CollectiveState& Board::CollectiveOf(int replica, NodeId member) {
  const int32_t collective = plan_.collective_of(member);
  return collectives_[first_of_collective_[collective] +
                      (plan_.spans_replicas(collective) ? 0 : replica)];
}

template <class Visit>
void Board::ForEachMember(int32_t collective, int replica, Visit&& visit) const {
  const bool spans = plan_.spans_replicas(collective);
  for (int r = spans ? 0 : replica; r < (spans ? options_.replicas : replica + 1); ++r) {
    for (const NodeId member : program_.collectives()[collective].members) visit(r, member);
  }
}

void Board::AddService(int index, const Service& service) {
  services_[ranks_[index].services_end++] = service;
  ranks_[index].bell.Ring();
}

void Board::Join(int index, NodeId member, Payload::Raw contribution) {
  const int replica = ReplicaOf(index);
  const int32_t collective = plan_.collective_of(member);
  CollectiveState& state = CollectiveOf(replica, member);
  const auto members = static_cast<int32_t>(program_.collectives()[collective].members.size());
  const int32_t place =
      plan_.member_of(member) + (plan_.spans_replicas(collective) ? replica * members : 0);
  contributions_[state.first_contribution + place] = {.is_there = true, .payload = contribution};
  const TimeNs head = head_[At(replica, member)];
  state.start = std::max(state.start, options_.emulate_delays ? head : std::max(head, Now()));
  if (++state.joined == state.num_members) Complete(collective, replica, state);
}

void Board::Complete(int32_t collective, int replica, CollectiveState& state) {
  state.end =
      state.start + (options_.emulate_delays ? program_.collectives()[collective].duration : 0);
  ForEachMember(collective, replica, [&](int r, NodeId member) {
    if (program_.is_reduction(member)) {
      const auto reduction = static_cast<size_t>(member - program_.reduction_node(0));
      reduction_times_[r * program_.reductions().size() + reduction] = {
          .start = state.start, .end = state.end, .ready = head_[At(r, member)]};
    }
    AddService(IndexOf(r, member), {.node = member, .combines = true});
  });
}

void Board::Combined(int index, NodeId member) {
  const int replica = ReplicaOf(index);
  CollectiveState& state = CollectiveOf(replica, member);
  if (++state.combined == state.num_members) {
    for (int32_t i = 0; i < state.num_members; ++i) {
      Contribution& each = contributions_[state.first_contribution + i];
      const Payload::Raw raw = std::exchange(each.payload, {});
      if (shared_ && raw.data != nullptr) {
        common_->heap.Free(raw.data);  // by its own function it would lock the board again
      } else {
        Payload::PutTogether(raw);
      }
    }
  }
  if (member < program_.num_lane_nodes()) {
    waits_for_[At(replica, member)] = kHasSum;
    return;
  }
  Finish(replica, member, state.end);
  Advance();
}

}  // namespace spiritlevel
