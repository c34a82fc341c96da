#include "verify/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "verify/clock.h"
#include "verify/words.h"

namespace spiritlevel {
namespace {

// What a message's bytes cost beyond themselves in an arena is far below this.
constexpr size_t kSlack = size_t{1} << 16;

}  // namespace

// Holds the board. Where somebody died while he held it, the run has failed.
class Board::Lock {
 public:
  Lock(Board& board, int index) : board_(board), index_(index) { Acquire(); }
  ~Lock() {
    if (is_held_) Release();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void Acquire() {
    const SharedMutex::Outcome outcome = board_.common_->mutex.Lock();
    is_held_ = true;
    const int holder = std::exchange(board_.common_->holder, index_);
    if (outcome == SharedMutex::Outcome::kLocked) return;
    SPIRITLEVEL_CHECK(holder != kNone, "whoever may die has told who he is");
    board_.Record(FailureKind::kDied, holder, board_.WhoWaitsFor(holder),
                  board_.ranks_[holder].node,
                  board_.RankInWords(holder) + " died while it handed over messages");
    board_.common_->failure.is_by_holder = true;
    for (int index = 0; index < board_.num_indices_; ++index) {
      if (board_.ranks_[index].phase == Phase::kDied) board_.CorrectHolder(index);  // known by now
    }
  }
  void Release() {
    is_held_ = false;
    board_.common_->mutex.Unlock();
  }

 private:
  Board& board_;
  int index_;
  bool is_held_ = false;
};

Board::Board(const LanePlan& plan, const Routes& routes, const RunOptions& options, TimeNs patience)
    : plan_(plan),
      routes_(routes),
      program_(plan.program()),
      options_(options),
      patience_(patience),
      shared_(options.transport == Transport::kProcesses),
      num_ranks_(program_.num_ranks()),
      num_indices_(num_ranks_ * options.replicas),
      num_nodes_(static_cast<size_t>(program_.num_nodes())),
      num_messages_(program_.messages().size()),
      arena_(kSlack +
                 static_cast<size_t>(options.replicas) *
                     (num_nodes_ * (sizeof(int32_t) + sizeof(TimeNs) + sizeof(NodeTimes) +
                                    2 * sizeof(Service) + sizeof(CollectiveState) +
                                    sizeof(Contribution) + sizeof(NodeTimes)) +
                      num_messages_ * (sizeof(MessageState) + sizeof(MessageTimes)) +
                      program_.batches().size() * sizeof(BatchState) +
                      program_.links().size() * sizeof(TimeNs)) +
                 static_cast<size_t>(num_indices_) * sizeof(RankState) +
                 (shared_ ? options.shared_payload_bytes : 0),
             shared_) {
  LayOut();
  common_->mutex.Initialise(shared_);
  common_->setup_began = Now();
  if (shared_) common_->heap.Initialise(arena_.Array<std::byte>(options.shared_payload_bytes));
  Lock lock(*this, kNone);
  StartLanes();
}

Board::~Board() {
  if (shared_) return;
  for (const MessageState& message : messages_) Payload::PutTogether(message.payload);
  for (const Contribution& each : contributions_) Payload::PutTogether(each.payload);
  for (const RankState& rank : ranks_) Payload::PutTogether(rank.result);
}

void Board::LayOut() {
  const auto replicas = static_cast<size_t>(options_.replicas);
  common_ = arena_.Array<Common>(1).data();
  ranks_ = arena_.Array<RankState>(static_cast<size_t>(num_indices_));
  waits_for_ = arena_.Array<int32_t>(replicas * num_nodes_);
  head_ = arena_.Array<TimeNs>(replicas * num_nodes_);
  messages_ = arena_.Array<MessageState>(replicas * num_messages_);
  batches_ = arena_.Array<BatchState>(replicas * program_.batches().size());
  link_free_ = arena_.Array<TimeNs>(replicas * program_.links().size());
  node_times_ = arena_.Array<NodeTimes>(replicas * program_.nodes().size());
  message_times_ = arena_.Array<MessageTimes>(replicas * num_messages_);
  reduction_times_ = arena_.Array<NodeTimes>(replicas * program_.reductions().size());

  std::vector<int32_t> services_of(static_cast<size_t>(num_indices_), 0);
  std::vector<CollectiveState> states;
  int32_t contributions = 0;
  for (int32_t c = 0; c < static_cast<int32_t>(program_.collectives().size()); ++c) {
    const std::vector<NodeId>& members = program_.collectives()[c].members;
    const bool spans = plan_.spans_replicas(c);
    first_of_collective_.push_back(static_cast<int32_t>(states.size()));
    for (int replica = 0; replica < options_.replicas; ++replica) {
      for (const NodeId member : members) {
        // In its compute lane a rank joins by itself, and is only to be told of the sum.
        services_of[IndexOf(replica, member)] += program_.is_reduction(member) ? 2 : 1;
      }
      if (spans && replica > 0) continue;
      const auto count = static_cast<int32_t>(members.size()) * (spans ? options_.replicas : 1);
      states.push_back({.first_contribution = contributions, .num_members = count});
      contributions += count;
    }
  }
  collectives_ = arena_.Array<CollectiveState>(states.size());
  std::copy(states.begin(), states.end(), collectives_.begin());
  contributions_ = arena_.Array<Contribution>(static_cast<size_t>(contributions));
  int32_t services = 0;
  for (int index = 0; index < num_indices_; ++index) {
    ranks_[index].services_begin = ranks_[index].services_end = services;
    services += services_of[index];
    services_limit_.push_back(services);
  }
  services_ = arena_.Array<Service>(static_cast<size_t>(services));
}

void Board::ThrowIfStopped() const {
  if (stopping().load(std::memory_order_relaxed)) throw Stopped();
}

TimeNs Board::Meet(int index) {
  Lock lock(*this, index);
  RankState& rank = ranks_[index];
  rank.phase = Phase::kMet;
  if (++common_->met == num_indices_) {
    common_->origin = Now();
    for (RankState& other : ranks_) {
      other.since = common_->origin;
      other.bell.Ring();
    }
  }
  while (common_->origin == 0) {
    ThrowIfStopped();
    const uint32_t heard = rank.bell.rings();
    lock.Release();
    rank.bell.WaitForRing(heard, patience_, 0);
    lock.Acquire();
  }
  return common_->origin;
}

// What is done for collectives is done without the lock, since it is the work's.
void Board::Serve(int index, Lock& lock, Servant& servant) {
  RankState& rank = ranks_[index];
  const Service service = services_[rank.services_begin++];
  const Phase phase = std::exchange(rank.phase, Phase::kRuns);
  const NodeId node = std::exchange(rank.node, service.node);
  rank.since = Now();
  if (service.combines) {
    const CollectiveState& state = CollectiveOf(ReplicaOf(index), service.node);
    std::vector<std::span<const std::byte>> all;
    for (int32_t i = 0; i < state.num_members; ++i) {
      const Payload::Raw& raw = contributions_[state.first_contribution + i].payload;
      all.emplace_back(raw.data, raw.bytes);
    }
    lock.Release();
    servant.Combine(service.node, all);
    lock.Acquire();
    Combined(index, service.node);
  } else {
    lock.Release();
    const Payload::Raw contribution = Store(servant.Contribute(service.node));
    lock.Acquire();
    Join(index, service.node, contribution);
  }
  rank.phase = phase;
  rank.node = node;
  rank.since = Now();
  ThrowIfStopped();
}

void Board::ServeAll(int index, Lock& lock, Servant& servant) {
  while (HasServices(ranks_[index])) Serve(index, lock, servant);
}

TimeNs Board::Wait(int index, NodeId node, Servant& servant) {
  Lock lock(*this, index);
  RankState& rank = ranks_[index];
  const size_t at = At(ReplicaOf(index), node);
  rank.node = node;
  rank.phase = Phase::kWaits;
  rank.since = Now();
  while (true) {
    ThrowIfStopped();
    ServeAll(index, lock, servant);
    const bool is_ready = waits_for_[at] == 0;
    if (is_ready && (head_[at] == 0 || head_[at] <= Now())) break;
    if (!is_ready) FindDeadlock();
    ThrowIfStopped();
    const TimeNs until = is_ready ? head_[at] : 0;
    const uint32_t heard = rank.bell.rings();
    lock.Release();
    rank.bell.WaitForRing(heard, patience_, until);
    lock.Acquire();
  }
  rank.phase = Phase::kRuns;
  rank.since = Now();
  return head_[at];
}

TimeNs Board::ArrivalOf(int index, MessageId message) const {
  return message_times_[MessageAt(ReplicaOf(index), message)].arrival;
}

Payload Board::Take(int index, MessageId message) {
  Lock lock(*this, index);
  MessageState& state = messages_[MessageAt(ReplicaOf(index), message)];
  SPIRITLEVEL_CHECK(state.has_arrived && !state.is_taken,
                    "a message is taken once, when it is there");
  state.is_taken = true;
  return Payload::PutTogether(std::exchange(state.payload, {}));
}

void Board::End(int index, NodeId node, const NodeTimes& times, std::span<Outgoing> outputs) {
  const int replica = ReplicaOf(index);
  std::array<Payload::Raw, 2> stored{};
  for (size_t i = 0; i < outputs.size(); ++i) stored[i] = Store(std::move(outputs[i].payload));
  Lock lock(*this, index);
  for (size_t i = 0; i < outputs.size(); ++i) {
    MessageState& state = messages_[MessageAt(replica, outputs[i].message)];
    SPIRITLEVEL_CHECK(!state.is_posted, "a message is made once");
    state.is_posted = true;
    state.payload = stored[i];
  }
  node_times_[static_cast<size_t>(replica) * program_.nodes().size() + static_cast<size_t>(node)] =
      times;
  ranks_[index].last_ended = node;
  ranks_[index].since = times.end;
  Finish(replica, node, times.end);
  Advance();
  ThrowIfStopped();
}

NodeTimes Board::JoinAndWait(int index, NodeId node, TimeNs head, Servant& servant) {
  const Payload::Raw contribution = Store(servant.Contribute(node));
  Lock lock(*this, index);
  // Joins though the run may have been stopped meanwhile: the board frees what it holds.
  RankState& rank = ranks_[index];
  const size_t at = At(ReplicaOf(index), node);
  head_[at] = std::max(head_[at], head);
  rank.phase = Phase::kWaits;
  rank.since = Now();
  Join(index, node, contribution);
  while (true) {
    ThrowIfStopped();
    ServeAll(index, lock, servant);
    const bool has_sum = waits_for_[at] == kHasSum;
    const CollectiveState& state = CollectiveOf(ReplicaOf(index), node);
    if (has_sum && state.end <= Now()) break;
    if (!has_sum) FindDeadlock();
    ThrowIfStopped();
    const TimeNs until = has_sum ? state.end : 0;
    const uint32_t heard = rank.bell.rings();
    lock.Release();
    rank.bell.WaitForRing(heard, patience_, until);
    lock.Acquire();
  }
  rank.phase = Phase::kRuns;
  const CollectiveState& state = CollectiveOf(ReplicaOf(index), node);
  return {.start = state.start, .end = state.end, .ready = state.start};
}

// A rank is needed until the last collective that it is a member of has its sum, and goes only when
// all do: a failure anywhere is one of all.
void Board::ServeOut(int index, Servant& servant) {
  Lock lock(*this, index);
  RankState& rank = ranks_[index];
  rank.phase = Phase::kWaits;
  rank.node = kNone;
  rank.since = Now();
  while (true) {
    ThrowIfStopped();
    ServeAll(index, lock, servant);
    if (rank.services_begin == services_limit_[index]) break;
    FindDeadlock();
    ThrowIfStopped();
    const uint32_t heard = rank.bell.rings();
    lock.Release();
    rank.bell.WaitForRing(heard, patience_, 0);
    lock.Acquire();
  }
  rank.phase = Phase::kIsThrough;
  if (++common_->through == num_indices_) {
    for (RankState& other : ranks_) other.bell.Ring();
  }
  FindDeadlock();
  while (common_->through < num_indices_) {
    ThrowIfStopped();
    const uint32_t heard = rank.bell.rings();
    lock.Release();
    rank.bell.WaitForRing(heard, patience_, 0);
    lock.Acquire();
  }
  rank.phase = Phase::kRuns;
  rank.since = Now();
}

void Board::Leave(int index, Payload result) {
  const Payload::Raw stored = Store(std::move(result));
  Lock lock(*this, index);
  ranks_[index].result = stored;
  ranks_[index].phase = Phase::kHasLeft;
  FindDeadlock();
}

// Between processes the bytes are copied to where the receiver can see them.
Payload::Raw Board::Store(Payload payload) {
  if (!shared_ || !payload.has_buffer()) return std::move(payload).TakeApart();
  Payload::Raw raw = std::move(payload).TakeApart();
  if (raw.free == &Board::FreeShared) return raw;
  const Payload original = Payload::PutTogether(raw);
  std::byte* data = nullptr;
  {
    Lock lock(*this, owner_);
    data = common_->heap.Allocate(raw.bytes);
  }
  if (data == nullptr) {
    throw InputError(fmt::format("no room for a message of {} among the {} set aside for messages "
                                 "between processes",
                                 FormatBytes(static_cast<Bytes>(raw.bytes)),
                                 FormatBytes(static_cast<Bytes>(options_.shared_payload_bytes))),
                     "set more aside, or run ranks as threads");
  }
  if (raw.bytes > 0) std::memcpy(data, raw.data, raw.bytes);
  return {.data = data, .bytes = raw.bytes, .free = &Board::FreeShared, .context = this};
}

void Board::FreeShared(void* board, std::byte* data, size_t) {
  auto* self = static_cast<Board*>(board);
  Lock lock(*self, self->owner_);
  self->common_->heap.Free(data);
}

void Board::Fail(int index, FailureKind kind, NodeId node, std::string_view what) noexcept {
  Lock lock(*this, index);
  if (common_->failure.is_set) return;
  const int peer = WhoWaitsFor(index);
  std::string text = RankInWords(index);
  text += node == kNone ? " fails before its first op" : " fails in " + InWords(node);
  text += ": ";
  text += what;
  if (peer != kNone) text += "; " + RankInWords(peer) + " goes no further";
  Record(kind, index, peer, node, text);
}

void Board::WaitForEnd(TimeNs limit) {
  const uint32_t heard = common_->watcher.rings();
  if (AllHaveEnded()) return;
  common_->watcher.WaitForRing(heard, 0, Now() + limit);
}

std::optional<Failure> Board::failure() const {
  const FailureRecord& record = common_->failure;
  if (!stopping().load() || !record.is_set) return std::nullopt;
  Failure failure{.kind = record.kind, .node = record.node, .message = record.message.data()};
  if (record.index != kNone) {
    failure.rank = RankOf(record.index);
    failure.replica = ReplicaOf(record.index);
  }
  if (record.peer != kNone) failure.peer = RankOf(record.peer);
  if (record.node != kNone) failure.op = NameOf(plan_, routes_, record.node);
  return failure;
}

RunReport Board::Report() {
  RunReport report{.failure = failure()};
  const TimeNs origin = common_->origin;
  const auto since_origin = [origin](NodeTimes times) {
    if (times.start == 0) return NodeTimes{};
    times.start -= origin;
    times.end -= origin;
    times.ready -= origin;
    return times;
  };
  for (int replica = 0; replica < options_.replicas; ++replica) {
    Timeline& timeline = report.timelines.emplace_back();
    const size_t nodes = program_.nodes().size();
    for (const NodeTimes& times : node_times_.subspan(replica * nodes, nodes)) {
      timeline.nodes.push_back(since_origin(times));
    }
    for (const MessageTimes& times :
         message_times_.subspan(replica * num_messages_, num_messages_)) {
      timeline.messages.push_back(
          times.start == 0
              ? MessageTimes{}
              : MessageTimes{.start = times.start - origin, .arrival = times.arrival - origin});
    }
    const size_t reductions = program_.reductions().size();
    for (const NodeTimes& times : reduction_times_.subspan(replica * reductions, reductions)) {
      timeline.reductions.push_back(since_origin(times));
    }
  }
  for (RankState& rank : ranks_) {
    report.last_ended.push_back(rank.last_ended);
    Payload result = Payload::PutTogether(std::exchange(rank.result, {}));
    report.results.push_back(shared_ && result.has_buffer() ? Payload::CopyOf(result.bytes())
                                                            : std::move(result));
  }
  return report;
}

}  // namespace spiritlevel
