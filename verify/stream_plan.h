// StreamPlan: a Program as the streams and events of a GPU runtime.
//
// Each rank has a stream for its compute lane and one for each of its communication lanes. What the
// host does is one list of steps, in an order in which every event is recorded before anything is
// told to wait for it: a wait for an event that was never recorded is no wait in CUDA.
//
//   compute     `stream` waits for the ends in `waits`, runs `node`, records its end.
//   post        the same, but a communication lane comes to its next half or batch. A transport
//               that sends and receives by itself (NCCL) posts `messages` here, as one group.
//   transfer    one message, of which both sides are posted (eager: its send). A transport that
//               copies does it here: on the stream of the send, once that of the receive is there
//               (rendezvous), which then waits for the copy.
//   done        the half or batch has ended: its end is recorded on `stream`.
//   collective  all members. Each member's stream waits for its own ends; what it needs of the
//               others is the transport's.
//
// Whoever issues for all ranks takes all steps; whoever issues for one rank and has a transport of
// the first kind takes those on its streams.
//
// Waits are for ends of nodes. That lanes are in order follows from their streams, and what a
// stream has waited for already, directly, it is not made to wait for again.
//
// Read-only once made; the Program must outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program.h"
#include "sim/timeline.h"

namespace spiritlevel {

class StreamPlan {
 public:
  enum class StepKind : uint8_t { kCompute, kPost, kTransfer, kDone, kCollective };

  struct Wait {
    int32_t stream = kNone;
    NodeId for_end_of = kNone;  // of a half in a batch: the batch

    friend bool operator==(const Wait&, const Wait&) = default;
  };

  struct Step {
    StepKind kind = StepKind::kCompute;
    // The one that it is about; of a transfer that of its send, of a collective that of its first
    // member.
    int32_t stream = kNone;
    NodeId node = kNone;  // a batch rather than its halves
    std::span<const Wait> waits;
    // Of a post those of its halves, ascending; of a transfer one.
    std::span<const MessageId> messages;
    std::span<const NodeId> members;  // of a collective, by rank
  };

  // Of what may be issued next, comes first what starts first in `expected`, a Timeline of the
  // Program; then by number. The Program must not deadlock.
  StreamPlan(const Program& program, const Timeline& expected);

  int num_steps() const { return static_cast<int>(steps_.size()); }
  Step step(int i) const;

  // Those of compute lanes are the ranks' numbers; then the communication lanes in the order of
  // CommunicationLanes().
  int num_streams() const { return static_cast<int>(rank_of_stream_.size()); }
  int rank_of_stream(int32_t stream) const { return rank_of_stream_[stream]; }
  bool is_compute(int32_t stream) const { return stream < program_.num_ranks(); }
  int32_t stream_of(NodeId node) const { return stream_of_[node]; }

  const Program& program() const { return program_; }

 private:
  friend class StreamPlanner;

  struct FlatStep {
    StepKind kind = StepKind::kCompute;
    int32_t stream = kNone;
    NodeId node = kNone;
    int32_t waits_end = 0;
    int32_t messages_end = 0;
  };

  const Program& program_;
  std::vector<FlatStep> steps_;
  std::vector<Wait> waits_;
  std::vector<MessageId> messages_;
  std::vector<int32_t> rank_of_stream_;
  std::vector<int32_t> stream_of_;
};

}  // namespace spiritlevel
