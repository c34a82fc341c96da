#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sim/gradient_plan.h"
#include "sim/node_costs.h"
#include "sim/posting.h"
#include "sim/program.h"

namespace spiritlevel {
namespace {

// Where an op of one iteration stands: its node, counted within its rank, and the message it
// makes, counted within its rank's messages.
struct Place {
  int32_t node = kNone;
  MessageId message = kNone;
};

}  // namespace

// Lays out iteration 0 rank by rank, then repeats it: every iteration is the same but for the
// numbers of its nodes and messages, and for what stands before one that is replayed: the ops that
// are dropped, their failed validation and the rollback. Nodes and messages are raw memory until
// they are written.
class Lowering {
 public:
  Lowering(const Schedule& schedule, const Costs& costs, const LoweringOptions& options)
      : schedule_(schedule),
        costs_(costs),
        options_(options),
        classes_(costs),
        micro_batches_(static_cast<size_t>(schedule.num_micro_batches())),
        forward_(static_cast<size_t>(schedule.num_stages()) * micro_batches_),
        backward_(forward_.size()) {}

  Program Run() {
    SetFacts();
    const int ranks = schedule_.num_ranks();
    if (!costs_.common().gradients.buckets.empty()) {
      steps_ = StepsByBucket(schedule_, costs_, options_.weight_grads);
    }
    for (int rank = 0; rank < ranks; ++rank) PlaceOps(rank);
    CountDroppedOps();
    SetRanges();
    for (int rank = 0; rank < ranks; ++rank) WriteFirstIteration(rank);
    for (int rank = 0; rank < ranks; ++rank) ConnectInputs(rank);
    if (options_.iterations > 1) RepeatIterations();
    for (int i = 0; i < options_.iterations && has_barrier(); ++i) AddBarrier(i);
    for (const int i : program_.rejected_) WriteReplay(i + 1);
    program_.costs_ = classes_.Take();
    PostingPlan(program_, options_).Write();
    if (IsPostValidation(options_.tail)) AddReductions();
    if (HasGradientSums(schedule_, costs_)) {
      GradientPlan(program_, schedule_, costs_, nodes_in_tail()).Write();
    }
    return std::move(program_);
  }

 private:
  bool has_barrier() const { return options_.tail == Tail::kBarrier; }
  int nodes_in_tail() const { return has_barrier() ? 2 : 1; }

  void SetFacts() {
    SPIRITLEVEL_CHECK(costs_.num_stages() == schedule_.num_stages() &&
                          costs_.num_micro_batches() == schedule_.num_micro_batches(),
                      "costs are for the schedule's stages and micro-batches");
    SPIRITLEVEL_CHECK(
        options_.iterations >= 1 && options_.iterations <= std::numeric_limits<uint16_t>::max(),
        "iterations fit in a node");
    program_.num_stages_ = schedule_.num_stages();
    program_.num_micro_batches_ = schedule_.num_micro_batches();
    program_.num_iterations_ = options_.iterations;
    program_.parameter_copies_ = schedule_.parameter_copies();
    program_.posting_ = options_.posting;
    program_.tail_ = options_.tail;
    SetRejected();
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      const std::span<const int> stages = schedule_.stages_of(rank);
      program_.stages_of_.emplace_back(stages.begin(), stages.end());
      program_.static_memory_.push_back(costs_.static_memory(stages, schedule_.num_ranks()));
      optimizers_.push_back(classes_.Add({.duration = costs_.optimizer(stages)}));
    }
  }

  void SetRejected() {
    std::vector<int>& rejected = program_.rejected_;
    rejected = options_.rejected;
    std::sort(rejected.begin(), rejected.end());
    rejected.erase(std::unique(rejected.begin(), rejected.end()), rejected.end());
    replayed_.resize(static_cast<size_t>(options_.iterations), 0);
    if (rejected.empty()) return;
    if (options_.tail != Tail::kSpeculativeValidation || options_.posting != Posting::kIdeal) {
      throw InputError("a rejected version is played only under ideal posting and the tail " +
                           std::string(Name(Tail::kSpeculativeValidation)),
                       "under other tails nothing has been computed from it");
    }
    if (rejected.front() < 0 || rejected.back() >= options_.iterations - 1) {
      throw InputError("a rejected version is left by an iteration that another one follows",
                       "iterations count from 0");
    }
    for (const int i : rejected) replayed_[static_cast<size_t>(i + 1)] = 1;
  }

  // Is this where the rank waits for the verdict on what it reads?
  bool IsValidatedBefore(const Op& op, NodeId node) const {
    if (options_.tail == Tail::kStrictValidation) return node == 0;
    return options_.tail == Tail::kSpeculativeValidation &&
           (op.pass != Pass::kF || op.overlaps_next);
  }

  Place& PlaceOf(const Op& op) {
    std::vector<Place>& places = op.pass == Pass::kF ? forward_ : backward_;
    return places[op.stage * micro_batches_ + static_cast<size_t>(op.micro_batch)];
  }

  // The op that waits for what `op` makes on another rank, if there is one.
  bool SendsTo(const Op& op, int rank, int& to_rank, Op& consumer) const {
    if (op.pass == Pass::kW) return false;
    const int stage = op.pass == Pass::kF ? op.stage + 1 : op.stage - 1;
    if (stage < 0 || stage >= schedule_.num_stages()) return false;
    to_rank = schedule_.rank_of(stage, op.micro_batch);
    consumer = {
        .micro_batch = op.micro_batch, .stage = static_cast<uint16_t>(stage), .pass = op.pass};
    return to_rank != rank;
  }

  // The op whose result `op` needs from another rank, if there is one.
  bool ReceivesFrom(const Op& op, int rank, Op& producer) const {
    if (op.pass == Pass::kW) return false;
    const int stage = op.pass == Pass::kF ? op.stage - 1 : op.stage + 1;
    if (stage < 0 || stage >= schedule_.num_stages()) return false;
    producer = {
        .micro_batch = op.micro_batch, .stage = static_cast<uint16_t>(stage), .pass = op.pass};
    return schedule_.rank_of(stage, op.micro_batch) != rank;
  }

  // Calls `visit` with the op and the part of it for each node that runs ops of `rank`; of a pair
  // with the first, behind which the second stands.
  template <class Visit>
  void ForEachStep(int rank, Visit&& visit) const {
    const std::span<const Op> ops = schedule_.ops(rank);
    if (!steps_.empty()) {
      for (const Step& step : steps_[static_cast<size_t>(rank)]) visit(&ops[step.op], step.part);
      return;
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      visit(&ops[i], Part{});
      if (ops[i].overlaps_next) ++i;
    }
  }

  void PlaceOps(int rank) {
    int32_t nodes = 0;
    MessageId messages = 0;
    bool validated = !IsPostValidation(options_.tail);
    ForEachStep(rank, [&](const Op* op, const Part& part) {
      if (!validated && IsValidatedBefore(*op, nodes)) {
        validated = true;
        program_.validation_place_.push_back(nodes++);
      }
      if (part.index == 0) PlaceOp(*op, rank, nodes, messages);
      if (op->overlaps_next) PlaceOp(op[1], rank, nodes, messages);
      ++nodes;
    });
    program_.nodes_per_iteration_.push_back(nodes + nodes_in_tail());
    program_.messages_per_iteration_.push_back(messages);
  }

  void PlaceOp(const Op& op, int rank, int32_t node, MessageId& messages) {
    if (op.pass == Pass::kW) return;
    Op consumer;
    int to_rank = 0;
    Place& place = PlaceOf(op);
    place.node = node;
    if (SendsTo(op, rank, to_rank, consumer)) place.message = messages++;
  }

  // Of each rank, the forwards before its first backward, as far as all their inputs are made by
  // such forwards.
  void CountDroppedOps() {
    if (program_.rejected_.empty()) return;
    const size_t ranks = program_.messages_per_iteration_.size();
    dropped_.resize(ranks, 0);
    dropped_messages_.resize(ranks, 0);
    for (bool more = true; more;) {
      more = false;
      for (int rank = 0; rank < static_cast<int>(ranks); ++rank) {
        while (DropsNext(rank)) more = true;
      }
    }
    for (const NodeId dropped : dropped_) program_.nodes_before_replay_.push_back(dropped + 2);
  }

  bool DropsNext(int rank) {
    NodeId& dropped = dropped_[static_cast<size_t>(rank)];
    if (dropped == program_.validation_place_[static_cast<size_t>(rank)]) return false;
    const Op& op = schedule_.ops(rank)[static_cast<size_t>(dropped)];
    Op producer;
    if (ReceivesFrom(op, rank, producer)) {
      const int from = schedule_.rank_of(producer.stage, producer.micro_batch);
      if (PlaceOf(producer).node >= dropped_[static_cast<size_t>(from)]) return false;
    }
    ++dropped;
    if (PlaceOf(op).message != kNone) ++dropped_messages_[static_cast<size_t>(rank)];
    return true;
  }

  void SetRanges() {
    const auto replays = static_cast<int64_t>(program_.rejected_.size());
    int64_t nodes = 0;
    int64_t messages = 0;
    for (size_t rank = 0; rank < program_.messages_per_iteration_.size(); ++rank) {
      program_.rank_begin_.push_back(static_cast<NodeId>(nodes));
      message_begin_.push_back(static_cast<MessageId>(messages));
      nodes += int64_t{options_.iterations} * program_.nodes_per_iteration_[rank];
      messages += int64_t{options_.iterations} * program_.messages_per_iteration_[rank];
      if (replays == 0) continue;
      nodes += replays * program_.nodes_before_replay_[rank];
      messages += replays * dropped_messages_[rank];
    }
    SPIRITLEVEL_CHECK(nodes + 2 * messages <= std::numeric_limits<NodeId>::max(),
                      "node numbers fit in 32 bits");
    program_.rank_begin_.push_back(static_cast<NodeId>(nodes));
    program_.nodes_.resize(static_cast<size_t>(nodes));
    program_.messages_.resize(static_cast<size_t>(messages));
    peers_.resize(program_.messages_per_iteration_.size());
  }

  void WriteFirstIteration(int rank) {
    NodeId id = program_.rank_begin_[rank];
    MessageId message = message_begin_[rank];
    const NodeId validation =
        IsPostValidation(options_.tail) ? id + program_.validation_place_[rank] : kNone;
    ForEachStep(rank, [&](const Op* op, const Part& part) {
      if (id == validation) program_.nodes_[id++] = {.op = {}, .kind = NodeKind::kValidation};
      WriteNode(op, part, rank, id++, message);
    });
    if (has_barrier()) program_.nodes_[id++] = {.op = {}, .kind = NodeKind::kCollective};
    program_.nodes_[id] = {.op = {}, .cost = optimizers_[rank], .kind = NodeKind::kOptimizer};
  }

  void WriteNode(const Op* op, const Part& part, int rank, NodeId id, MessageId& message) {
    Node& node = program_.nodes_[id];
    node = Node{};
    node.op = *op;
    node.first_output = message;
    if (part.index + 1 == part.count) AddMessage(*op, rank, id, message);
    if (part.count > 1) {
      node.kind = NodeKind::kPart;
      node.extra = static_cast<int32_t>(program_.parts_.size());
      node.cost = classes_.OfPart(*op, part);
      program_.parts_.push_back(part);
    } else if (op->overlaps_next) {
      node.kind = NodeKind::kPair;
      node.extra = static_cast<int32_t>(program_.pairs_.size());
      node.cost = classes_.OfPair(op[0], op[1]);
      program_.pairs_.push_back(op[1]);
      AddMessage(op[1], rank, id, message);
    } else {
      node.cost = classes_.Of(*op);
    }
    node.num_outputs = static_cast<uint8_t>(message - node.first_output);
  }

  void AddMessage(const Op& op, int rank, NodeId from, MessageId& message) {
    Op consumer;
    int to_rank = 0;
    if (!SendsTo(op, rank, to_rank, consumer)) return;
    program_.messages_[message++] = {.from = from,
                                     .to = program_.rank_begin_[to_rank] + PlaceOf(consumer).node,
                                     .link = LinkBetween(rank, to_rank)};
  }

  int32_t LinkBetween(int from, int to) {
    for (const auto& [peer, link] : peers_[from]) {
      if (peer == to) return link;
    }
    const auto link = static_cast<int32_t>(program_.links_.size());
    program_.links_.push_back({.from_rank = from, .to_rank = to, .hop = costs_.hop(from, to)});
    peers_[from].emplace_back(to, link);
    return link;
  }

  void ConnectInputs(int rank) {
    for (NodeId id = program_.rank_begin_[rank];
         id < program_.iteration_begin(rank, 0) + program_.nodes_per_iteration_[rank]; ++id) {
      Node& node = program_.nodes_[id];
      int inputs = 0;
      const bool first_part = node.kind == NodeKind::kPart && program_.part(node).index == 0;
      if (node.kind == NodeKind::kOp || node.kind == NodeKind::kPair || first_part) {
        AddInput(node.op, rank, node, inputs);
      }
      if (node.kind == NodeKind::kPair) AddInput(program_.second_op(node), rank, node, inputs);
    }
  }

  void AddInput(const Op& op, int rank, Node& node, int& inputs) {
    Op producer;
    if (!ReceivesFrom(op, rank, producer)) return;
    const int from = schedule_.rank_of(producer.stage, producer.micro_batch);
    node.inputs[inputs++] = message_begin_[from] + PlaceOf(producer).message;
  }

  void RepeatIterations() {
    if (program_.rejected_.empty()) {
      RepeatIterations<false>();
    } else {
      RepeatIterations<true>();
    }
  }

  // Two copies, since to ask of each node whether its iteration is replayed costs a tenth.
  template <bool kAnyReplayed>
  void RepeatIterations() {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      const NodeId first = program_.iteration_begin(rank, 0);
      for (NodeId i = 0; i < program_.nodes_per_iteration_[rank]; ++i) {
        RepeatNode<kAnyReplayed>(first + i, rank);
      }
      const MessageId message = message_begin_[rank];
      for (MessageId i = 0; i < program_.messages_per_iteration_[rank]; ++i)
        RepeatMessage<kAnyReplayed>(message + i, rank);
    }
  }

  // All copies of a node at once, since what its numbers grow by takes longer to find than to add.
  template <bool kAnyReplayed>
  void RepeatNode(NodeId id, int rank) {
    Node node = program_.nodes_[id];
    MessageId input_growth[2] = {0, 0};
    int senders[2] = {kNone, kNone};
    for (int i = 0; i < 2 && node.inputs[i] != kNone; ++i) {
      senders[i] = SenderOf(node.inputs[i]);
      input_growth[i] = program_.messages_per_iteration_[senders[i]];
    }
    const MessageId output_growth =
        node.first_output == kNone ? 0 : program_.messages_per_iteration_[rank];
    for (int iteration = 1; iteration < options_.iterations; ++iteration) {
      if (kAnyReplayed && IsReplayed(iteration)) {
        id += program_.nodes_before_replay_[rank];
        if (node.first_output != kNone) node.first_output += dropped_messages_[rank];
        for (int i = 0; i < 2 && senders[i] != kNone; ++i) {
          node.inputs[i] += dropped_messages_[senders[i]];
        }
      }
      id += program_.nodes_per_iteration_[rank];
      node.iteration = static_cast<uint16_t>(iteration);
      node.first_output += output_growth;
      for (int i = 0; i < 2; ++i) node.inputs[i] += input_growth[i];
      program_.nodes_[id] = node;
    }
  }

  template <bool kAnyReplayed>
  void RepeatMessage(MessageId id, int rank) {
    Message message = program_.messages_[id];
    const int to_rank = program_.links_[message.link].to_rank;
    for (int iteration = 1; iteration < options_.iterations; ++iteration) {
      if (kAnyReplayed && IsReplayed(iteration)) {
        id += dropped_messages_[rank];
        message.from += program_.nodes_before_replay_[rank];
        message.to += program_.nodes_before_replay_[to_rank];
      }
      id += program_.messages_per_iteration_[rank];
      message.from += program_.nodes_per_iteration_[rank];
      message.to += program_.nodes_per_iteration_[to_rank];
      program_.messages_[id] = message;
    }
  }

  bool IsReplayed(int iteration) const { return replayed_[static_cast<size_t>(iteration)] != 0; }

  // The number of a rank's first message of an iteration, dropped ones included.
  MessageId FirstMessage(int rank, int iteration) const {
    return message_begin_[rank] + iteration * program_.messages_per_iteration_[rank] +
           program_.ReplaysBefore(iteration) * dropped_messages_[rank];
  }

  // What stands before iteration `i` is run again. The ops that are dropped come first in their
  // lanes, and so do their messages.
  void WriteReplay(int iteration) {
    std::vector<std::vector<MessageId>> drained(program_.messages_per_iteration_.size());
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      const NodeId begin = program_.iteration_begin(rank, iteration);
      Bytes freed = 0;
      for (NodeId i = 0; i < dropped_[rank]; ++i) {
        Node node = program_.nodes_[program_.rank_begin_[rank] + i];
        node.kind = NodeKind::kDroppedOp;
        node.iteration = static_cast<uint16_t>(iteration);
        node.first_output += FirstMessage(rank, iteration) - message_begin_[rank];
        for (MessageId& input : node.inputs) {
          if (input == kNone) continue;
          const int from = SenderOf(input);
          input += FirstMessage(from, iteration) - message_begin_[from];
        }
        program_.nodes_[begin + i] = node;
        const Op& op = node.op;
        freed += costs_.of(op.stage, op.micro_batch).activation;
      }
      for (MessageId i = 0; i < dropped_messages_[rank]; ++i)
        WriteDropped(rank, i, iteration, drained);
      WriteRejection(rank, iteration, freed);
    }
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      Node& rollback = program_.nodes_[RollbackOf(rank, iteration)];
      rollback.extra = static_cast<int32_t>(program_.drained_.size());
      program_.drained_.push_back(std::move(drained[rank]));
    }
  }

  NodeId RollbackOf(int rank, int iteration) const {
    return program_.iteration_begin(rank, iteration) + dropped_[rank] + 1;
  }

  // A message whose reader is not run before the rejection is taken all the same, and dropped.
  void WriteDropped(int rank, MessageId offset, int iteration,
                    std::vector<std::vector<MessageId>>& drained) {
    Message message = program_.messages_[message_begin_[rank] + offset];
    const int to_rank = program_.links_[message.link].to_rank;
    const NodeId reader = message.to - program_.rank_begin_[to_rank];
    const MessageId id = FirstMessage(rank, iteration) + offset;
    message.from += program_.iteration_begin(rank, iteration) - program_.rank_begin_[rank];
    if (reader < dropped_[to_rank]) {
      message.to = program_.iteration_begin(to_rank, iteration) + reader;
    } else {
      message.to = RollbackOf(to_rank, iteration);
      drained[to_rank].push_back(id);
    }
    program_.messages_[id] = message;
  }

  void WriteRejection(int rank, int iteration, Bytes freed) {
    NodeCost drop{.shrink = freed};
    drop.at_end[static_cast<size_t>(MemoryCategory::kWaitingForB)] = -freed;
    const NodeId rollback = RollbackOf(rank, iteration);
    program_.nodes_[rollback - 1] = {.op = {},
                                     .cost = classes_.Add(drop),
                                     .iteration = static_cast<uint16_t>(iteration),
                                     .kind = NodeKind::kValidation};
    program_.nodes_[rollback] = {.op = {},
                                 .cost = optimizers_[rank],
                                 .iteration = static_cast<uint16_t>(iteration),
                                 .kind = NodeKind::kRollback};
  }

  int SenderOf(MessageId message) const {
    return program_.links_[program_.messages_[message].link].from_rank;
  }

  void AddBarrier(int iteration) {
    Collective barrier{.members = {}, .duration = costs_.common().barrier};
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      // The last node is the optimizer; the barrier stands before it.
      const NodeId id = program_.iteration_begin(rank, iteration + 1) - 2;
      program_.nodes_[id].extra = static_cast<int32_t>(program_.collectives_.size());
      barrier.members.push_back(id);
    }
    program_.collectives_.push_back(std::move(barrier));
  }

  // Beside compute, on a lane of its own: it starts when the last ops of all ranks have ended, and
  // each rank waits for it where the next iteration has its first validation.
  void AddReductions() {
    const int ranks = schedule_.num_ranks();
    std::vector<Lane> lanes(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) lanes[rank].rank = rank;
    for (int i = 0; i < options_.iterations; ++i) {
      Collective reduction{.members = {}, .duration = costs_.common().barrier};
      for (int rank = 0; rank < ranks; ++rank) {
        const NodeId id = program_.reduction_node(program_.reduction_of(rank, i));
        program_.reductions_.push_back(
            {.rank = rank, .collective = static_cast<int32_t>(program_.collectives_.size())});
        reduction.members.push_back(id);
        lanes[rank].nodes.push_back(id);
        // The last node is the optimizer; the last op stands before it.
        program_.edges_.push_back({.from = program_.iteration_begin(rank, i + 1) - 2, .to = id});
        if (i + 1 < options_.iterations) {
          program_.edges_.push_back({.from = id, .to = FirstValidation(rank, i + 1)});
        }
      }
      program_.collectives_.push_back(std::move(reduction));
    }
    for (Lane& lane : lanes) program_.lanes_.push_back(std::move(lane));
  }

  NodeId FirstValidation(int rank, int iteration) const {
    if (IsReplayed(iteration)) return RollbackOf(rank, iteration) - 1;
    return program_.iteration_begin(rank, iteration) + program_.validation_place_[rank];
  }

  const Schedule& schedule_;
  const Costs& costs_;
  LoweringOptions options_;
  CostClasses classes_;
  size_t micro_batches_;
  std::vector<Place> forward_;
  std::vector<Place> backward_;
  std::vector<std::vector<Step>> steps_;  // by rank, where gradients fill buckets
  std::vector<MessageId> message_begin_;
  std::vector<std::vector<std::pair<int, int32_t>>> peers_;
  std::vector<int32_t> optimizers_;  // by rank, the class of its step
  std::vector<uint8_t> replayed_;    // by iteration
  // By rank, of the iteration that is replayed: the ops that run before the rejection, and what
  // they send.
  std::vector<NodeId> dropped_;
  std::vector<MessageId> dropped_messages_;
  Program program_;
};

Program Lower(const Schedule& schedule, const Costs& costs, const LoweringOptions& options) {
  return Lowering(schedule, costs, options).Run();
}

}  // namespace spiritlevel
