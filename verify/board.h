// Board: the state of all lanes of a run, in one place under one lock.
//
// Whoever ends a compute node advances every communication lane that this moves, on all ranks, and
// rings the ranks that now have what they wait for. So communication goes on although every rank is
// one thread that may be inside a kernel, and since the board sees all ranks it also sees at once
// when none of them can go on.
//
// Lies in an Arena, and serves threads and processes alike. A rank is told by its index,
// replica * ranks + rank.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/timeline.h"
#include "verify/arena.h"
#include "verify/bell.h"
#include "verify/exchange.h"
#include "verify/lane_plan.h"
#include "verify/routes.h"
#include "verify/run.h"
#include "verify/shared_heap.h"
#include "verify/shared_mutex.h"

namespace spiritlevel {

class Board {
 public:
  Board(const LanePlan& plan, const Routes& routes, const RunOptions& options, TimeNs patience);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // --- For the threads of ranks, by BoardExchange; these throw Stopped.
  TimeNs Meet(int index);
  TimeNs Wait(int index, NodeId node, Servant& servant);
  TimeNs ArrivalOf(int index, MessageId message) const;
  Payload Take(int index, MessageId message);
  void End(int index, NodeId node, const NodeTimes& times, std::span<Outgoing> outputs);
  NodeTimes JoinAndWait(int index, NodeId node, TimeNs head, Servant& servant);
  void ServeOut(int index, Servant& servant);
  void Leave(int index, Payload result);
  // The first failure is the run's; all later ones are dropped.
  void Fail(int index, FailureKind kind, NodeId node, std::string_view what) noexcept;
  // This copy of the board is that of a rank's own process.
  void BelongsTo(int index) { owner_ = index; }
  // Its process is, and nobody waits for one of its nodes yet. Of no effect behind that.
  void StoppedInSetup(int index);

  const std::atomic<bool>& stopping() const { return common_->stopping; }

  // --- For who watches over the run.
  // A rank's thread or process has ended; `how` in words, as "was killed by signal 9". Where the
  // run `was_over` for it, it had failed before.
  void Ended(int index, std::string_view how, bool was_over = false);
  // Ends the run if a rank has died, or is in one node for too long.
  void Watch();
  bool AllHaveEnded() const { return common_->ended.load() == num_indices_; }
  void WaitForEnd(TimeNs limit);  // of any rank, or of the run
  std::optional<Failure> failure() const;
  RunReport Report();

 private:
  enum class Phase : uint8_t { kSetup, kMet, kRuns, kWaits, kIsThrough, kHasLeft, kDied };

  struct Service {
    NodeId node = kNone;
    bool combines = false;  // or contributes
  };

  struct alignas(64) RankState {
    Bell bell;
    Phase phase = Phase::kSetup;
    bool has_ended = false;
    NodeId node = kNone;  // that it is in, or waits for
    NodeId last_ended = kNone;
    TimeNs since = 0;
    int32_t services_begin = 0;  // in services_: those not taken up
    int32_t services_end = 0;
    Payload::Raw result{};
    std::array<char, 120> how_it_ended{};
  };

  struct MessageState {
    int8_t heads = 0;  // of the two sides, how many have reached theirs
    bool is_posted = false;
    bool has_left = false;
    bool has_arrived = false;
    bool is_taken = false;
    TimeNs ready = 0;
    Payload::Raw payload{};
  };

  struct BatchState {
    int32_t open = 0;
    TimeNs end = 0;
  };

  struct CollectiveState {
    int32_t joined = 0;
    int32_t combined = 0;
    TimeNs start = 0;
    TimeNs end = 0;
    int32_t first_contribution = 0;
    int32_t num_members = 0;
  };

  struct Contribution {
    bool is_there = false;
    Payload::Raw payload{};
  };

  struct FailureRecord {
    bool is_set = false;
    FailureKind kind = FailureKind::kInternal;
    int index = kNone;
    int peer = kNone;
    NodeId node = kNone;
    // It follows from who held the board last. Who dies as he takes it has not told so yet.
    bool is_by_holder = false;
    std::array<char, 4096> message{};
  };

  struct Common {
    SharedMutex mutex;
    int holder = kNone;  // who has locked it last
    std::atomic<bool> stopping{false};
    std::atomic<int> ended{0};
    Bell watcher;
    int met = 0;
    int through = 0;
    TimeNs origin = 0;
    TimeNs setup_began = 0;
    FailureRecord failure;
    SharedHeap heap;
  };

  // In waits_for_: a compute node that is a collective, once its rank has the sum.
  static constexpr int32_t kHasSum = -1;

  class Lock;

  // A node of one replica.
  struct Reached {
    int replica = 0;
    NodeId node = kNone;
  };

  // board.cc
  void LayOut();
  size_t At(int replica, NodeId node) const {
    return static_cast<size_t>(replica) * num_nodes_ + static_cast<size_t>(node);
  }
  size_t MessageAt(int replica, MessageId message) const {
    return static_cast<size_t>(replica) * num_messages_ + static_cast<size_t>(message);
  }
  int IndexOf(int replica, NodeId node) const { return replica * num_ranks_ + plan_.rank_of(node); }
  int ReplicaOf(int index) const { return index / num_ranks_; }
  int RankOf(int index) const { return index % num_ranks_; }
  bool HasServices(const RankState& rank) const { return rank.services_begin < rank.services_end; }
  void Serve(int index, Lock& lock, Servant& servant);
  void ServeAll(int index, Lock& lock, Servant& servant);
  void ThrowIfStopped() const;
  Payload::Raw Store(Payload payload);
  static void FreeShared(void* board, std::byte* data, size_t bytes);

  // board_lanes.cc; the lock is held.
  void StartLanes();
  void Advance();
  void Finish(int replica, NodeId node, TimeNs at);
  void Release(int replica, NodeId node, TimeNs at);
  void ReachHead(int replica, NodeId node);
  void JoinMessage(int replica, NodeId half, TimeNs at);
  void Transfer(int replica, MessageId message);
  void Arrive(int replica, MessageId message, MessageId named);
  void FinishHalf(int replica, NodeId half, TimeNs at);
  CollectiveState& CollectiveOf(int replica, NodeId member);
  void Join(int index, NodeId member, Payload::Raw contribution);
  void Complete(int32_t collective, int replica, CollectiveState& state);
  void Combined(int index, NodeId member);
  template <class Visit>
  void ForEachMember(int32_t collective, int replica, Visit&& visit) const;
  void AddService(int index, const Service& service);
  const Fault* FaultOf(int replica, MessageId message, FaultKind kind) const;

  // board_failures.cc; the lock is held.
  void Record(FailureKind kind, int index, int peer, NodeId node, const std::string& message);
  void FindDeadlock();
  bool IsDone(int index) const {
    return ranks_[index].phase == Phase::kIsThrough || ranks_[index].phase == Phase::kHasLeft;
  }
  bool IsStuck(int index) const;
  std::string WhyStuck(int index, int* peer) const;
  std::string WhyNotArrived(int replica, MessageId message) const;
  std::string WhyNotStarted(int replica, NodeId in_lane, bool sends) const;
  int WhoWaitsFor(int index) const;
  bool WaitsFor(int waiting, int index) const;
  std::string InWords(NodeId node) const;
  std::string RankInWords(int index) const;
  void WatchRank(int index, TimeNs now);
  void CorrectHolder(int index);
  TimeNs StallLimit() const;

  const LanePlan& plan_;
  const Routes& routes_;
  const Program& program_;
  const RunOptions& options_;
  const TimeNs patience_;
  const bool shared_;
  int owner_ = kNone;  // of the process
  const int num_ranks_;
  const int num_indices_;
  const size_t num_nodes_;
  const size_t num_messages_;
  std::vector<int32_t> first_of_collective_;  // in collectives_, of each of the Program's
  std::vector<int32_t> services_limit_;       // by index: where its services end at last

  Arena arena_;
  Common* common_ = nullptr;
  std::span<RankState> ranks_;
  std::span<Service> services_;
  std::span<int32_t> waits_for_;
  std::span<TimeNs> head_;
  std::span<MessageState> messages_;
  std::span<BatchState> batches_;
  std::span<CollectiveState> collectives_;
  std::span<Contribution> contributions_;
  std::span<TimeNs> link_free_;
  std::span<NodeTimes> node_times_;
  std::span<MessageTimes> message_times_;
  std::span<NodeTimes> reduction_times_;

  // Of whoever advances, and empty when it is done: no process needs another's.
  std::vector<Reached> reached_;
  TimeNs now_ = 0;
};

// One rank's view of a Board.
class BoardExchange : public Exchange {
 public:
  BoardExchange(Board& board, int index) : board_(board), index_(index) {}

  TimeNs Meet() override { return board_.Meet(index_); }
  TimeNs Wait(NodeId node, Servant& servant) override { return board_.Wait(index_, node, servant); }
  TimeNs ArrivalOf(MessageId message) override { return board_.ArrivalOf(index_, message); }
  Payload Take(MessageId message) override { return board_.Take(index_, message); }
  void End(NodeId node, const NodeTimes& times, std::span<Outgoing> outputs) override {
    board_.End(index_, node, times, outputs);
  }
  NodeTimes JoinAndWait(NodeId node, TimeNs head, Servant& servant) override {
    return board_.JoinAndWait(index_, node, head, servant);
  }
  void ServeOut(Servant& servant) override { board_.ServeOut(index_, servant); }
  void Leave(Payload result) override { board_.Leave(index_, std::move(result)); }
  void Fail(FailureKind kind, NodeId node, std::string_view what) noexcept override {
    board_.Fail(index_, kind, node, what);
  }
  const std::atomic<bool>& stopping() const override { return board_.stopping(); }

 private:
  Board& board_;
  int index_;
};

}  // namespace spiritlevel
