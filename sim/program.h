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
// producers stand, so those of one node are consecutive. Batches follow, then the nodes of
// reductions: those that validate, iteration by iteration, then sums of gradients, likewise.
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
  kPart,        // of a W or BW, as much as fills one gradient bucket
  kCollective,  // starts when every member heads its lane
  kOptimizer,
  kSend,
  kReceive,
  // Like kCollective, on a communication lane: they run beside compute.
  kReduction,   // of all ranks: what a post-validation is about
  kBucketSum,   // of a gradient bucket, over the data-parallel replicas of one rank
  kTwinSum,     // of a stage's gradients, over the two ranks that hold it
  kTiedSum,     // of the embedding's gradient, over the ranks that hold it
  kValidation,  // waits for the reduction that judges the parameters which the rank reads
  kDroppedOp,   // an op that ran on parameters which were then rejected; it is run again
  kRollback,    // takes the rejected optimizer step back and does it right
};

// How messages are posted; a lowering knows, the engines only see lanes, edges and nodes.
//   ideal:     one lane for each directed pair of ranks; eager sends, receives posted early.
//   nccl-fifo: a rank's sends to and receives from a peer stand in one lane, in the order in which
//              its host issues them; rendezvous. What cannot start blocks what stands behind it.
//   batched:   before an op one batch of the sends that are due and of receives; the rank waits for
//              all of it (Megatron's fused exchanges, DualPipe's commits).
enum class Posting : uint8_t { kIdeal, kNcclFifo, kBatched };

// Where a receive stands in its lane, under nccl-fifo.
//   early:    where the sender runs, in a run in which messages take no time, as PyTorch's lowering
//             has it; it blocks the sends behind it until its data comes.
//   deferred: the same in a run in which messages take time, so that sends which are sooner due
//             stand before it; on both sides, so that no two ranks wait for each other.
//   naive:    just before the op that needs it; may deadlock.
// Under batched: early, when its sender sends, by nominal times; or naive.
enum class Receives : uint8_t { kEarly, kDeferred, kNaive };

// What shares a lane under nccl-fifo: both directions of a pair of ranks, or one.
enum class Channels : uint8_t { kPair, kDirected };

// What ends an iteration.
//   none:    each rank steps its optimizer after its own last op.
//   barrier: a collective of all ranks (gradient norm, overflow check) stands before the step.
//   post-validation: each rank steps after its own last op, and the collective runs beside what
//            comes next. What it finds is waited for in the next iteration: before the rank's first
//            op (strict), or before its first backward (speculative), so that the forwards before
//            that run on provisional parameters. docs/tails.md has the rules.
enum class Tail : uint8_t { kNoTail, kBarrier, kStrictValidation, kSpeculativeValidation };

// In which order the W's of one stage run that end a rank's work on it, where its gradients are
// summed by bucket.
//   by-micro-batch: one W after the other; only the last is done bucket by bucket.
//   by-bucket:      those at the end that nothing else stands between are done bucket by bucket for
//                   all their micro-batches, so that a bucket is full sooner.
enum class WeightGrads : uint8_t { kByMicroBatch, kByBucket };

inline bool IsPostValidation(Tail tail) {
  return tail == Tail::kStrictValidation || tail == Tail::kSpeculativeValidation;
}

std::string_view Name(Posting posting);
std::string_view Name(Receives receives);
std::string_view Name(Channels channels);
std::string_view Name(Tail tail);
std::string_view Name(WeightGrads weight_grads);

// Does a node of this kind work on ops of the schedule, which are not to be dropped?
inline bool RunsOps(NodeKind kind) { return kind <= NodeKind::kPart; }
inline bool SumsGradients(NodeKind kind) {
  return kind >= NodeKind::kBucketSum && kind <= NodeKind::kTiedSum;
}

struct Node {
  Op op;                 // of a pair, the first
  int32_t cost = kNone;  // index into Program::costs(); kNone takes no time, no memory
  MessageId inputs[2] = {kNone, kNone};
  MessageId first_output = kNone;
  // Pair: index into pairs(); part: into parts(); collective: into collectives(); rollback: into
  // drained().
  int32_t extra = kNone;
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

// One transfer, shared by a send node and a receive node. Eager: it starts when the send heads its
// lane; rendezvous (Program::rendezvous()): when both do, and both lanes are busy until it is
// there.
struct Message {
  NodeId from = kNone;  // compute node that produces it
  NodeId to = kNone;    // compute node that waits for it; a rollback, where nobody will use it
  int32_t link = kNone;
};

// A directed pair of ranks. FIFO: one message occupies it at a time, for `hop.busy`.
struct Link {
  int from_rank = 0;
  int to_rank = 0;
  HopCost hop;
};

// Which of an op's parts: the first has its inputs, the last its outputs. Each fills the gradient
// bucket of its number.
struct Part {
  int32_t index = 0;
  int32_t count = 1;
};

// `duration` after its last member heads its lane, all members are done. Members on data-parallel
// replicas are not among them: each replica runs this Program at the same time.
struct Collective {
  std::vector<NodeId> members;  // by rank
  TimeNs duration = 0;
  Bytes bytes = 0;
};

// A communication lane: what one communicator does on a rank, first to last. Compute lanes are the
// ranges from rank_begin() to rank_end().
struct Lane {
  int rank = 0;
  std::vector<NodeId> nodes;
};

// One rank's node of a collective on a communication lane.
struct Reduction {
  int rank = 0;
  int32_t collective = kNone;
  NodeKind kind = NodeKind::kReduction;
  // Of a sum of gradients: whose, and of which bucket if not of all.
  int32_t stage = kNone;
  int32_t bucket = kNone;
};

// One node that holds several messages' sends and receives: all start as they can, and it is done
// when all of them are.
struct Batch {
  int rank = 0;
  std::vector<NodeId> halves;  // send and receive nodes
};

// Between nodes of one rank: `to` starts after the end of `from`. Beside these, a send waits for
// its producer and a compute node for the receives of its inputs.
struct Edge {
  NodeId from = kNone;
  NodeId to = kNone;
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
    const NodeId begin = rank_begin_[rank] + iteration * nodes_per_iteration_[rank];
    return rejected_.empty() ? begin
                             : begin + ReplaysBefore(iteration) * nodes_before_replay_[rank];
  }
  int rank_of(NodeId lane_node) const;

  std::span<const NodeCost> costs() const { return costs_; }
  std::span<const Op> pairs() const { return pairs_; }  // the second op of each pair
  std::span<const Part> parts() const { return parts_; }
  std::span<const Message> messages() const { return messages_; }
  std::span<const Link> links() const { return links_; }
  std::span<const Collective> collectives() const { return collectives_; }
  std::span<const Batch> batches() const { return batches_; }
  std::span<const Edge> edges() const { return edges_; }
  std::span<const Reduction> reductions() const { return reductions_; }
  // The one that is validated; there is none unless the tail is a post-validation.
  int32_t reduction_of(int rank, int iteration) const { return iteration * num_ranks() + rank; }
  // The sums of gradients of `rank` in `iteration` are [begin, end) of reductions(), those of
  // buckets first, each kind in the order of its lane.
  int32_t gradient_sums_begin(int rank, int iteration) const;
  int32_t gradient_sums_end(int rank, int iteration) const;
  bool has_gradient_sums() const { return !gradient_sums_.empty(); }
  std::span<const std::vector<MessageId>> drained() const { return drained_; }
  bool rendezvous() const { return posting_ != Posting::kIdeal; }

  // Nothing but eager messages in the order in which they are made: a rank can be run as far as its
  // inputs reach without looking at communication lanes.
  bool is_simple() const { return posting_ == Posting::kIdeal && edges_.empty(); }

  // Does it read parameters that nobody has judged yet? `rank` is its rank.
  bool is_provisional(NodeId lane_node, int rank) const;
  // Is the version rejected that the iteration before this one left, and this one replayed?
  bool is_replayed(int iteration) const;

  std::vector<Lane> CommunicationLanes() const;

  // Numbers after those of the compute lanes: messages, batches, reductions.
  NodeId num_nodes() const { return reduction_node(static_cast<int32_t>(reductions_.size())); }
  NodeId reduction_node(int32_t reduction) const {
    return batch_node(static_cast<int32_t>(batches_.size())) + reduction;
  }
  bool is_reduction(NodeId node) const { return node >= reduction_node(0); }
  bool is_batch(NodeId node) const { return node >= batch_node(0) && !is_reduction(node); }
  NodeId batch_node(int32_t batch) const {
    return num_lane_nodes() + 2 * static_cast<NodeId>(messages_.size()) + batch;
  }
  bool is_send(NodeId node) const { return (node - num_lane_nodes()) % 2 == 0; }
  bool is_half(NodeId node) const { return node >= num_lane_nodes() && node < batch_node(0); }
  MessageId message_of(NodeId half) const { return (half - num_lane_nodes()) / 2; }

  NodeId send_node(MessageId m) const { return num_lane_nodes() + 2 * m; }
  NodeId receive_node(MessageId m) const { return num_lane_nodes() + 2 * m + 1; }

  const Op& second_op(const Node& pair) const { return pairs_[pair.extra]; }
  const Part& part(const Node& part) const { return parts_[part.extra]; }

  // What lies on the rank before its first op, by category.
  const MemoryByCategory& static_memory(int rank) const { return static_memory_[rank]; }

  int parameter_copies() const { return parameter_copies_; }
  std::span<const int> stages_of(int rank) const { return stages_of_[rank]; }
  int chunk_of(int rank, int stage) const;

 private:
  friend class Lowering;
  friend class PostingPlan;
  friend class GradientPlan;

  // How many iterations before this one are replayed.
  int ReplaysBefore(int iteration) const;

  int num_stages_ = 0;
  int num_micro_batches_ = 0;
  int num_iterations_ = 0;
  int parameter_copies_ = 1;
  Posting posting_ = Posting::kIdeal;
  Tail tail_ = Tail::kBarrier;
  RawVector<Node> nodes_;
  std::vector<NodeId> rank_begin_;
  std::vector<NodeId> nodes_per_iteration_;
  std::vector<MessageId> messages_per_iteration_;  // by sender
  std::vector<NodeCost> costs_;
  std::vector<Op> pairs_;
  std::vector<Part> parts_;
  RawVector<Message> messages_;
  std::vector<Link> links_;
  std::vector<Collective> collectives_;
  std::vector<Lane> lanes_;  // of communication; under ideal posting those of messages follow
  std::vector<Batch> batches_;
  std::vector<Edge> edges_;
  std::vector<Reduction> reductions_;
  std::vector<int32_t> gradient_sums_;  // by rank: where in an iteration's they begin; and the end
  std::vector<NodeId> validation_place_;     // by rank: where in an iteration; empty without any
  std::vector<int> rejected_;                // iterations, ascending
  std::vector<NodeId> nodes_before_replay_;  // by rank: dropped ops, validation and rollback
  std::vector<std::vector<MessageId>> drained_;
  std::vector<MemoryByCategory> static_memory_;
  std::vector<std::vector<int>> stages_of_;
};

struct LoweringOptions {
  Posting posting = Posting::kIdeal;
  Tail tail = Tail::kBarrier;
  int iterations = 1;
  Receives receives = Receives::kEarly;  // under nccl-fifo; early or naive under batched, too
  Channels channels = Channels::kPair;
  // Iterations whose optimizer step leaves a version that is rejected when it is validated. Only
  // under speculative post-validation and ideal posting, and not the last; else InputError.
  std::vector<int> rejected{};
  WeightGrads weight_grads = WeightGrads::kByMicroBatch;
};

// Whether gradients are summed between ranks or replicas before an optimizer step.
bool HasGradientSums(const Schedule& schedule, const Costs& costs);

// Schedule -> Program: adds sends, receives and the tail. `costs` must be for the same numbers of
// stages and micro-batches.
Program Lower(const Schedule& schedule, const Costs& costs, const LoweringOptions& options);

}  // namespace spiritlevel
