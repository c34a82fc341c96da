// Program: what every rank does, step by step, communication and tail included; no times of day.
//
// For each rank one compute lane and one lane for each communicator, each an ordered list of
// nodes. A node starts when its predecessor in the lane is done, its edges are done, and its link
// is free. Ranks are joined only by messages and collectives. The simulator plays it and the
// runtime executes it: on a GPU a lane is a stream and an edge an event.
//
// Node ids. Compute-lane nodes come first, rank by rank in lane order, so that a lane is a range
// of ids and the predecessor of n is n - 1. Message k is the send node num_lane_nodes() + 2k and
// the receive node num_lane_nodes() + 2k + 1. Messages are numbered in the order in which their
// producers stand, so those of one node are consecutive.
//
// Edges. A compute node waits for the receive nodes of `inputs`; a send waits for its message's
// producer. Dependencies inside a rank follow from the order of its compute lane.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/costs.h"
#include "sim/memory.h"
#include "sim/raw_vector.h"
#include "sim/schedule.h"

namespace spiritlevel {

using NodeId = int32_t;
using MessageId = int32_t;
inline constexpr int32_t kNone = -1;

enum class NodeKind : uint8_t {
  kOp,          // one op
  kPair,        // F&B: two ops as one
  kCollective,  // starts when every member heads its lane
  kOptimizer,
  kSend,
  kReceive,
};

// How messages are posted; a lowering knows, the engines only see lanes, edges and nodes.
//   ideal: one lane for each directed pair of ranks; eager sends, receives posted early.
enum class Posting : uint8_t { kIdeal };

// What ends an iteration.
//   none:    each rank steps its optimizer after its own last op.
//   barrier: a collective of all ranks (gradient norm, overflow check) stands before the step.
enum class Tail : uint8_t { kNoTail, kBarrier };

std::string_view Name(Posting posting);
std::string_view Name(Tail tail);

struct Node {
  Op op;                 // of a pair, the first
  int32_t cost = kNone;  // index into Program::costs(); kNone takes no time, no memory
  MessageId inputs[2] = {kNone, kNone};
  MessageId first_output = kNone;
  int32_t extra = kNone;  // pair: index into pairs(); collective: index into collectives()
  uint16_t iteration = 0;
  NodeKind kind = NodeKind::kOp;
  uint8_t num_outputs = 0;
};
static_assert(sizeof(Node) == 32);

// Nodes that cost the same share one of these.
struct NodeCost {
  TimeNs duration = 0;
  TimeNs launch = 0;  // between being taken up by the lane and starting
  Bytes grow = 0;     // >= 0, at the start
  Bytes shrink = 0;   // >= 0, at the end
  // The same two, told apart. At the end a B turns what waited for it into what waits for W, so
  // these may have both signs; they sum to `grow` and to -`shrink`.
  MemoryByCategory at_start{};
  MemoryByCategory at_end{};
};

// One transfer, shared by a send node and a receive node. All are eager: it starts when the send
// heads its lane.
struct Message {
  NodeId from = kNone;  // compute node that produces it
  NodeId to = kNone;    // compute node that waits for it
  int32_t link = kNone;
};

// A directed pair of ranks. FIFO: one message occupies it at a time, for `hop.busy`.
struct Link {
  int from_rank = 0;
  int to_rank = 0;
  HopCost hop;
};

// `duration` after its last member heads its lane, all members are done.
struct Collective {
  std::vector<NodeId> members;  // by rank
  TimeNs duration = 0;
};

// A communication lane. Compute lanes are the ranges rank_nodes().
struct Lane {
  int rank = 0;
  int link = 0;
  bool sends = false;  // else receives
  std::vector<NodeId> nodes;
};

class Program {
 public:
  int num_ranks() const { return static_cast<int>(rank_begin_.size()) - 1; }
  int num_stages() const { return num_stages_; }
  int num_micro_batches() const { return num_micro_batches_; }
  int num_iterations() const { return num_iterations_; }
  Posting posting() const { return posting_; }
  Tail tail() const { return tail_; }

  std::span<const Node> nodes() const { return nodes_; }  // of the compute lanes
  NodeId num_lane_nodes() const { return static_cast<NodeId>(nodes_.size()); }
  NodeId rank_begin(int rank) const { return rank_begin_[rank]; }
  NodeId rank_end(int rank) const { return rank_begin_[rank + 1]; }
  // The nodes of iteration `i` on `rank` are [begin, end) of these.
  NodeId iteration_begin(int rank, int iteration) const {
    return rank_begin_[rank] + iteration * nodes_per_iteration_[rank];
  }
  int rank_of(NodeId lane_node) const;

  std::span<const NodeCost> costs() const { return costs_; }
  std::span<const Op> pairs() const { return pairs_; }  // the second op of each pair
  std::span<const Message> messages() const { return messages_; }
  std::span<const Link> links() const { return links_; }
  std::span<const Collective> collectives() const { return collectives_; }
  std::vector<Lane> CommunicationLanes() const;

  NodeId send_node(MessageId m) const { return num_lane_nodes() + 2 * m; }
  NodeId receive_node(MessageId m) const { return num_lane_nodes() + 2 * m + 1; }

  const Op& second_op(const Node& pair) const { return pairs_[pair.extra]; }

  // What lies on the rank before its first op, by category.
  const MemoryByCategory& static_memory(int rank) const { return static_memory_[rank]; }

  int parameter_copies() const { return parameter_copies_; }
  std::span<const int> stages_of(int rank) const { return stages_of_[rank]; }
  int chunk_of(int rank, int stage) const;

 private:
  friend class Lowering;

  int num_stages_ = 0;
  int num_micro_batches_ = 0;
  int num_iterations_ = 0;
  int parameter_copies_ = 1;
  Posting posting_ = Posting::kIdeal;
  Tail tail_ = Tail::kBarrier;
  RawVector<Node> nodes_;
  std::vector<NodeId> rank_begin_;
  std::vector<NodeId> nodes_per_iteration_;
  std::vector<NodeCost> costs_;
  std::vector<Op> pairs_;
  RawVector<Message> messages_;
  std::vector<Link> links_;
  std::vector<Collective> collectives_;
  std::vector<MemoryByCategory> static_memory_;
  std::vector<std::vector<int>> stages_of_;
};

struct LoweringOptions {
  Posting posting = Posting::kIdeal;
  Tail tail = Tail::kBarrier;
  int iterations = 1;
};

// Schedule -> Program: adds sends, receives and the tail. `costs` must be for the same numbers of
// stages and micro-batches.
Program Lower(const Schedule& schedule, const Costs& costs, const LoweringOptions& options);

}  // namespace spiritlevel
