// MpiExchange: what lies between ranks where each is a process of an MPI job.
//
// There is no board that all ranks see. Each has the state of its own lanes, and advances them in
// its own thread: between nodes and while it waits, not while a kernel runs. A message's number is
// its tag. Under rendezvous it is sent synchronously and asked for only once its receive heads its
// lane, so that it moves when both sides are there, as the Program has it.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "verify/exchange.h"
#include "verify/side_channel.h"
#include "verify/transports.h"

namespace spiritlevel {

// As it is handed round.
struct MpiFailure {
  int64_t is_set = 0;
  int64_t kind = 0;
  int64_t index = kNone;
  int64_t peer = kNone;
  int64_t node = kNone;
  int64_t time = 0;  // the first of several is the run's
  char message[2048] = {};
};

class MpiExchange : public Exchange, private SideChannel {
 public:
  // `clock_offset`: what is added to this process's clock to have that of index 0.
  MpiExchange(const RunSetting& setting, MPI_Comm comm, int index, TimeNs clock_offset);
  ~MpiExchange() override;

  // Messages, collectives, topics, what ends a run early and what ends it.
  static size_t NumTags(const Program& program) {
    return program.messages().size() + program.collectives().size() + kTopics + 2;
  }

  TimeNs Meet() override;
  TimeNs Wait(NodeId node, Servant& servant) override;
  TimeNs ArrivalOf(MessageId message) override { return messages_[message].arrival; }
  Payload Take(MessageId message) override;
  void End(NodeId node, const NodeTimes& times, std::span<Outgoing> outputs) override;
  NodeTimes JoinAndWait(NodeId node, TimeNs head, Servant& servant) override;
  void ServeOut(Servant& servant) override;
  void Leave(Payload result) override { result_ = std::move(result); }
  void Fail(FailureKind kind, NodeId node, std::string_view what) noexcept override;
  const std::atomic<bool>& stopping() const override { return stopping_; }
  SideChannel* side_channel() override { return this; }

  const MpiFailure& failure() const { return failure_; }
  NodeId last_ended() const { return last_ended_; }
  TimeNs began() const { return began_; }  // on this process's clock; 0: it has not
  Payload& result() { return result_; }
  // Of this rank alone, on the clock of index 0: of messages it sends the start, of those it
  // receives the arrival; all else is zero. The reductions' `start` is when this rank had joined.
  Timeline& timeline() { return timeline_; }

 private:
  void Send(int to, int topic, std::span<const std::byte> bytes) override;
  std::optional<SideMessage> Poll(int topic) override;
  SideMessage Receive(int topic) override;

  struct MessageState {
    Payload payload{};
    TimeNs arrival = 0;
    bool is_there = false;
  };
  struct Sending {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<std::byte> header_and_bytes{};
    NodeId half = kNone;  // to be finished with it; kNone: it has been
  };
  struct Joining {
    NodeId member = kNone;
    std::vector<Payload> contributions{};  // by member
    std::vector<bool> is_there{};
    int missing = 0;
  };

  int PeerOf(NodeId half) const;
  int TagOf(int32_t collective) const { return num_messages_ + collective; }
  int AbortTag() const { return num_messages_ + num_collectives_; }
  int TagOfTopic(int topic) const { return AbortTag() + 1 + topic; }
  int LastTag() const { return TagOfTopic(kTopics); }  // of what each sends behind all else
  std::vector<int> IndicesOf(int32_t collective) const;

  void Finish(NodeId node, TimeNs at);
  void Release(NodeId node, TimeNs at);
  void Advance();
  void ReachHead(NodeId node);
  void StartHalf(NodeId half);
  void FinishHalf(NodeId half, TimeNs at);
  void Post(int to, int tag, int64_t number, std::span<const std::byte> bytes, bool synchronous,
            NodeId half);
  // Nothing has come, or what has; checks its number.
  std::optional<Payload> PollFor(int from, int tag, int64_t number);
  void Join(NodeId member, Payload contribution);
  // 1 if the last message of another rank has come just now, else 0.
  int TakeLastOf(int other);

  void Progress(Servant& servant);
  void ProgressLanes();
  void ProgressSends();
  void ProgressReceives();
  void ProgressSide();
  void ProgressSums(Servant& servant);
  void LookForAbort();
  void ThrowIfStopped() const;
  // One turn of a wait that began at `since`; fails the run if that is too long ago.
  void WaitATurn(TimeNs since, NodeId node);
  [[noreturn]] void FailStalled(NodeId node, int peer, const std::string& why, TimeNs waited);
  void Record(const MpiFailure& failure);
  std::string WhyWaiting(NodeId node, int* peer) const;
  TimeNs WaitLimit() const;
  const Fault* FaultOf(MessageId message, FaultKind kind) const;

  const RunSetting& setting_;
  const LanePlan& plan_;
  const Program& program_;
  MPI_Comm comm_;
  int index_;
  int rank_;
  int replica_;
  int num_ranks_;
  int num_messages_;
  int num_collectives_;
  TimeNs clock_offset_;
  TimeNs wait_limit_;

  std::vector<int32_t> waits_for_;
  std::vector<TimeNs> head_;
  std::vector<int32_t> open_;  // by batch
  std::vector<TimeNs> batch_end_;
  std::vector<MessageState> messages_;
  std::vector<NodeId> reached_;
  std::vector<NodeId> receiving_;  // halves
  std::deque<Sending> sending_;
  std::deque<NodeId> to_contribute_;
  std::vector<Joining> joining_;
  std::array<std::deque<SideMessage>, kTopics> side_;  // by topic: come, and not asked for yet
  std::vector<bool> has_sum_;                          // by collective, of those on compute lanes
  int sums_left_ = 0;  // that this rank is a member of, and has not combined
  std::atomic<bool> stopping_{false};
  MpiFailure failure_{};
  NodeId last_ended_ = kNone;
  TimeNs began_ = 0;
  Payload result_{};
  Timeline timeline_;
};

}  // namespace spiritlevel
