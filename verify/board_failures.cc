// What went wrong, on which rank, in which op, and who waits for it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "verify/board.h"
#include "verify/clock.h"
#include "verify/words.h"

namespace spiritlevel {
namespace {

template <size_t kSize>
void CopyText(std::string_view text, std::array<char, kSize>& to) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

// In which the watcher must get hold of the board; a lock is held for microseconds.
constexpr TimeNs kLockLimit = 2'000'000'000;

}  // namespace

void Board::Record(FailureKind kind, int index, int peer, NodeId node, const std::string& message) {
  FailureRecord& record = common_->failure;
  if (record.is_set) return;
  record.is_set = true;
  record.kind = kind;
  record.index = index;
  record.peer = peer;
  record.node = node;
  CopyText(message, record.message);
  common_->stopping.store(true);
  for (RankState& rank : ranks_) rank.bell.Ring();
  common_->watcher.Ring();
}

std::string Board::InWords(NodeId node) const { return NameWithIteration(plan_, routes_, node); }

std::string Board::RankInWords(int index) const {
  if (options_.replicas == 1) return fmt::format("rank {}", RankOf(index));
  return fmt::format("rank {} of replica {}", RankOf(index), ReplicaOf(index));
}

// No rank can go on: each has left, or waits for what nobody will do.
void Board::FindDeadlock() {
  int first = kNone;
  for (int index = 0; index < num_indices_; ++index) {
    if (IsDone(index)) continue;
    if (!IsStuck(index)) return;
    if (first == kNone) first = index;
  }
  if (first == kNone || common_->failure.is_set) return;
  for (size_t place = 0; place < messages_.size(); ++place) {
    const MessageState& state = messages_[place];
    if (!state.has_left || state.has_arrived) continue;
    const auto replica = static_cast<int>(place / num_messages_);
    const auto m = static_cast<MessageId>(place % num_messages_);
    const Message& message = program_.messages()[m];
    const Link& link = program_.links()[message.link];
    const int receiver = replica * num_ranks_ + link.to_rank;
    const int sender = replica * num_ranks_ + link.from_rank;
    return Record(FailureKind::kLostMessage, receiver, sender, message.to,
                  fmt::format("{} waits before {} for {} of {}: message {} was sent and has not "
                              "arrived",
                              RankInWords(receiver), InWords(message.to),
                              ToString(routes_.op_of(m)), RankInWords(sender), m));
  }
  std::string text = "no rank can go on:";
  int peer = kNone;
  for (int index = 0; index < num_indices_; ++index) {
    if (IsDone(index)) continue;
    int waits_for = kNone;
    text += "\n  " + WhyStuck(index, &waits_for);
    if (index == first) peer = waits_for;
  }
  Record(FailureKind::kDeadlock, first, peer, ranks_[first].node, text);
}

bool Board::IsStuck(int index) const {
  const RankState& rank = ranks_[index];
  if (rank.phase != Phase::kWaits || HasServices(rank)) return false;
  if (rank.node == kNone) return rank.services_begin != services_limit_[index];
  const int32_t waits = waits_for_[At(ReplicaOf(index), rank.node)];
  if (waits > 0) return true;
  // Zero: it can start, but for a collective that has been joined.
  const Node& node = program_.nodes()[rank.node];
  if (waits < 0 || node.kind != NodeKind::kCollective) return false;
  const CollectiveState& state = collectives_[first_of_collective_[plan_.collective_of(rank.node)]];
  const int32_t place = plan_.member_of(rank.node) + ReplicaOf(index) * num_ranks_;
  return contributions_[state.first_contribution + place].is_there;
}

std::string Board::WhyStuck(int index, int* peer) const {
  const RankState& rank = ranks_[index];
  const int replica = ReplicaOf(index);
  if (rank.node == kNone) {
    *peer = WhoWaitsFor(index);
    return RankInWords(index) + " waits behind its last node for others to join a sum";
  }
  const std::string begin =
      fmt::format("{} waits before {}", RankInWords(index), InWords(rank.node));
  const auto for_message = [&](MessageId m) {
    const int from = program_.links()[program_.messages()[m].link].from_rank;
    const int to = program_.links()[program_.messages()[m].link].to_rank;
    *peer = replica * num_ranks_ + (from == RankOf(index) ? to : from);
    return fmt::format("{} for {} of rank {}, {}", begin, ToString(routes_.op_of(m)), from,
                       WhyNotArrived(replica, m));
  };
  const Node& node = program_.nodes()[rank.node];
  for (const MessageId m : node.inputs) {
    if (m != kNone && !messages_[MessageAt(replica, m)].has_arrived) return for_message(m);
  }
  for (size_t b = 0; b < program_.batches().size(); ++b) {
    if (program_.batches()[b].rank != RankOf(index)) continue;
    const auto followers = plan_.followers(program_.batch_node(static_cast<int32_t>(b)));
    if (std::find(followers.begin(), followers.end(), rank.node) == followers.end()) continue;
    for (const NodeId half : program_.batches()[b].halves) {
      const MessageId m = program_.message_of(half);
      if (!messages_[MessageAt(replica, m)].has_arrived) return for_message(m);
    }
  }
  // A collective, or a sum that it waits for: any rank that has not joined.
  for (int other = 0; other < num_indices_ && *peer == kNone; ++other) {
    if (other != index && ranks_[other].node != rank.node) *peer = other;
  }
  return begin + " for others to join a sum";
}

std::string Board::WhyNotArrived(int replica, MessageId m) const {
  const MessageState& state = messages_[MessageAt(replica, m)];
  if (state.has_left) return "which was sent and has not arrived";
  if (!state.is_posted) return "which has not been made yet";
  const NodeId send = plan_.in_lane(program_.send_node(m));
  if (waits_for_[At(replica, send)] > 0) return WhyNotStarted(replica, send, true);
  return WhyNotStarted(replica, plan_.in_lane(program_.receive_node(m)), false);
}

std::string Board::WhyNotStarted(int replica, NodeId in_lane, bool sends) const {
  NodeId head = in_lane;
  while (plan_.before_in_lane(head) != kNone && waits_for_[At(replica, head)] > 0) {
    head = plan_.before_in_lane(head);
  }
  const char* side = sends ? "send" : "receive";
  if (head == in_lane) return fmt::format("whose {} waits in its lane", side);
  return fmt::format("whose {} stands behind {}", side, NameOf(plan_, routes_, head));
}

bool Board::WaitsFor(int waiting, int index) const {
  const RankState& rank = ranks_[waiting];
  if (waiting == index || rank.phase != Phase::kWaits || rank.node == kNone) return false;
  if (ReplicaOf(waiting) != ReplicaOf(index)) return false;
  for (const MessageId m : program_.nodes()[rank.node].inputs) {
    if (m == kNone || messages_[MessageAt(ReplicaOf(waiting), m)].has_arrived) continue;
    if (program_.links()[program_.messages()[m].link].from_rank == RankOf(index)) return true;
  }
  return false;
}

// The rank that waits for what this one would send, else one that waits, else its neighbour.
int Board::WhoWaitsFor(int index) const {
  if (index == kNone) return kNone;
  for (int other = 0; other < num_indices_; ++other) {
    if (WaitsFor(other, index)) return other;
  }
  for (int other = 0; other < num_indices_; ++other) {
    if (other != index && ranks_[other].phase == Phase::kWaits) return other;
  }
  return num_indices_ == 1 ? kNone : index == 0 ? 1 : index - 1;
}

void Board::Arrive(int replica, MessageId m, MessageId named) {
  MessageState& state = messages_[MessageAt(replica, m)];
  const Message& message = program_.messages()[m];
  const Link& link = program_.links()[message.link];
  const int receiver = replica * num_ranks_ + link.to_rank;
  const int sender = replica * num_ranks_ + link.from_rank;
  if (named != m || state.has_arrived) {
    const std::string what =
        named != m ? fmt::format("arrives as message {}", named) : "arrives a second time";
    return Record(
        FailureKind::kWrongMessage, receiver, sender, message.to,
        fmt::format("{} of {}, message {} to {} for {}, {}", ToString(routes_.op_of(m)),
                    RankInWords(sender), m, RankInWords(receiver), InWords(message.to), what));
  }
  state.has_arrived = true;
  FinishHalf(replica, program_.receive_node(m), message_times_[MessageAt(replica, m)].arrival);
}

void Board::Ended(int index, std::string_view how, bool was_over) {
  RankState& rank = ranks_[index];
  SharedMutex::Outcome outcome = common_->mutex.LockWithin(kLockLimit);
  if (!rank.has_ended) {
    rank.has_ended = true;
    CopyText(how, rank.how_it_ended);
    if (rank.phase != Phase::kHasLeft) rank.phase = Phase::kDied;
    common_->ended.fetch_add(1);
  }
  if (rank.phase == Phase::kDied && !was_over) CorrectHolder(index);
  if (outcome != SharedMutex::Outcome::kTimedOut) common_->mutex.Unlock();
  common_->watcher.Ring();
}

void Board::CorrectHolder(int index) {
  FailureRecord& record = common_->failure;
  if (!record.is_set || !record.is_by_holder) return;
  record.is_by_holder = false;  // the first that dies is it
  record.kind = FailureKind::kDied;
  record.index = index;
  record.peer = WhoWaitsFor(index);
  record.node = ranks_[index].node;
  CopyText(RankInWords(index) + " died while it handed over messages", record.message);
}

TimeNs Board::StallLimit() const {
  if (options_.stall_limit) return *options_.stall_limit;
  TimeNs longest = 0;
  for (const NodeCost& cost : program_.costs()) {
    longest = std::max(longest, cost.launch + cost.duration);
  }
  constexpr TimeNs kBeyond = 5'000'000'000;
  return kBeyond + 4 * longest;
}

void Board::Watch() {
  if (stopping().load()) return;
  const SharedMutex::Outcome outcome = common_->mutex.LockWithin(kLockLimit);
  if (outcome == SharedMutex::Outcome::kTimedOut) {
    // Who holds it is stopped: nobody else can have what it protects.
    const int holder = common_->holder;
    Record(FailureKind::kStalled, holder, WhoWaitsFor(holder), kNone,
           holder == kNone ? "a rank stops while it hands over messages"
                           : RankInWords(holder) + " stops while it hands over messages");
    common_->failure.is_by_holder = true;
    return;
  }
  const TimeNs now = Now();
  for (int index = 0; index < num_indices_ && !common_->failure.is_set; ++index) {
    WatchRank(index, now);
  }
  common_->mutex.Unlock();
}

void Board::StoppedInSetup(int index) {
  if (common_->mutex.LockWithin(kLockLimit) == SharedMutex::Outcome::kTimedOut) return;
  const Phase phase = ranks_[index].phase;
  if (!common_->failure.is_set && (phase == Phase::kSetup || phase == Phase::kMet)) {
    const int peer = WhoWaitsFor(index);
    Record(FailureKind::kStalled, index, peer, kNone,
           fmt::format("{} is stopped before its first node{}", RankInWords(index),
                       peer == kNone ? "" : fmt::format("; {} waits for it", RankInWords(peer))));
  }
  common_->mutex.Unlock();
}

void Board::WatchRank(int index, TimeNs now) {
  const RankState& rank = ranks_[index];
  const int peer = WhoWaitsFor(index);
  const std::string waits =
      peer == kNone ? "" : fmt::format("; {} waits for it", RankInWords(peer));
  if (rank.phase == Phase::kDied) {
    const std::string where =
        rank.node == kNone ? "before its first node" : "in " + InWords(rank.node);
    return Record(
        FailureKind::kDied, index, peer, rank.node,
        fmt::format("{} {} {}{}", RankInWords(index), rank.how_it_ended.data(), where, waits));
  }
  if (common_->origin == 0) {
    if (rank.phase != Phase::kSetup || now - common_->setup_began <= options_.setup_limit) return;
    return Record(FailureKind::kStalled, index, peer, kNone,
                  RankInWords(index) + " is not ready to begin" + waits);
  }
  TimeNs since = rank.since;
  if (rank.phase == Phase::kWaits) {
    if (IsStuck(index)) return;
    if (rank.node != kNone) since = std::max(since, head_[At(ReplicaOf(index), rank.node)]);
  } else if (rank.phase != Phase::kRuns) {
    return;
  }
  if (now - since <= StallLimit()) return;
  const std::string where =
      rank.node == kNone ? "behind its last node" : "in " + InWords(rank.node);
  Record(FailureKind::kStalled, index, peer, rank.node,
         fmt::format("{} has been {} for {}{}", RankInWords(index), where, FormatTime(now - since),
                     waits));
}

}  // namespace spiritlevel
