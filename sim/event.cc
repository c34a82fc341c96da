#include "sim/event.h"

#include <algorithm>
#include <span>

namespace spiritlevel {
namespace {

void Add(MemoryByCategory& to, const MemoryByCategory& change) {
  for (size_t i = 0; i < kNumMemoryCategories; ++i) to[i] += change[i];
}

// When the results that stay on a rank were made: what its ops wait for beside messages. The order
// of the compute lane makes an engine keep these without looking at them.
class LocalResults {
 public:
  explicit LocalResults(const Program& program)
      : program_(program),
        micro_batches_(static_cast<size_t>(program.num_micro_batches())),
        chunk_of_(static_cast<size_t>(program.num_stages()) + 2, kNotHere) {}

  // A rank starts with nothing but its parameters.
  void StartRank(int rank) {
    std::fill(chunk_of_.begin(), chunk_of_.end(), kNotHere);
    const std::span<const int> stages = program_.stages_of(rank);
    for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
      chunk_of_[static_cast<size_t>(stages[chunk]) + 1] = static_cast<int>(chunk);
    }
    forward_.assign(stages.size() * micro_batches_, 0);
    backward_.assign(forward_.size(), 0);
    parameters_ = 0;
  }

  void Made(const Op& op, TimeNs end) {
    if (op.pass == Pass::kW) return;
    std::vector<TimeNs>& made = op.pass == Pass::kF ? forward_ : backward_;
    made[Cell(op.stage, op)] = end;
  }
  void HasParameters(TimeNs end) { parameters_ = end; }

  // At least 0, also where all inputs come from other ranks.
  TimeNs ReadyFor(const Op& op) const {
    if (op.pass == Pass::kF) return std::max(parameters_, Of(forward_, op.stage - 1, op));
    if (op.pass == Pass::kW) return std::max(parameters_, Of(backward_, op.stage, op));
    return std::max({parameters_, Of(forward_, op.stage, op), Of(backward_, op.stage + 1, op)});
  }

 private:
  static constexpr int kNotHere = -1;

  size_t Cell(int stage, const Op& op) const {
    return static_cast<size_t>(chunk_of_[static_cast<size_t>(stage + 1)]) * micro_batches_ +
           static_cast<size_t>(op.micro_batch);
  }
  TimeNs Of(const std::vector<TimeNs>& made, int stage, const Op& op) const {
    const bool here = chunk_of_[static_cast<size_t>(stage + 1)] != kNotHere;
    return here ? made[Cell(stage, op)] : 0;
  }

  const Program& program_;
  size_t micro_batches_;
  std::vector<int> chunk_of_;  // by stage + 1, so that there is one before the first
  std::vector<TimeNs> forward_;
  std::vector<TimeNs> backward_;
  TimeNs parameters_ = 0;  // since when this version of them is there
};

class Reader {
 public:
  Reader(const Program& program, const Timeline& timeline,
         const std::function<void(const Event&)>& visit)
      : program_(program), timeline_(timeline), visit_(visit), local_(program) {}

  void ReadRank(int rank, int iterations) {
    node_event_.after = program_.static_memory(rank);
    local_.StartRank(rank);
    TimeNs lane_free = 0;
    const NodeId end = program_.iteration_begin(rank, iterations);
    for (NodeId id = program_.rank_begin(rank); id < end; ++id) {
      DescribeNode(id, rank, lane_free);
      lane_free = node_event_.end;
      KeepResults(node_event_);
      visit_(node_event_);
      const Node& node = program_.nodes()[id];
      for (const MessageId input : node.inputs) {
        if (input != kNone) VisitMessage(input, NodeKind::kReceive);
      }
      if (node.kind == NodeKind::kRollback) {
        for (const MessageId m : program_.drained()[static_cast<size_t>(node.extra)]) {
          VisitMessage(m, NodeKind::kReceive);
        }
      }
      for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
        VisitMessage(m, NodeKind::kSend);
      }
      if (id + 1 == program_.iteration_begin(rank, node.iteration + 1)) {
        VisitGradientSums(rank, node.iteration);
        VisitReduction(rank, node.iteration);
      }
    }
  }

 private:
  static bool HasOp(NodeKind kind) { return RunsOps(kind) || kind == NodeKind::kDroppedOp; }

  const Reduction& ReductionOf(int rank, int iteration) const {
    return program_.reductions()[static_cast<size_t>(program_.reduction_of(rank, iteration))];
  }
  const NodeTimes& ReductionTimes(int rank, int iteration) const {
    return timeline_.reductions[static_cast<size_t>(program_.reduction_of(rank, iteration))];
  }

  void VisitGradientSums(int rank, int iteration) {
    const int32_t end = program_.gradient_sums_end(rank, iteration);
    for (int32_t i = program_.gradient_sums_begin(rank, iteration); i < end; ++i) {
      const Reduction& sum = program_.reductions()[static_cast<size_t>(i)];
      const NodeTimes& times = timeline_.reductions[static_cast<size_t>(i)];
      Event event{.kind = sum.kind,
                  .iteration = iteration,
                  .rank = rank,
                  .parameter_version = iteration,
                  .ready = times.ready,
                  .issue = times.ready,
                  .start = times.start,
                  .end = times.end,
                  .collective = sum.collective,
                  .gradient_bucket = sum.bucket,
                  .bytes = program_.collectives()[static_cast<size_t>(sum.collective)].bytes};
      event.op.stage = static_cast<uint16_t>(sum.stage);
      event.chunk = program_.chunk_of(rank, sum.stage);
      visit_(event);
    }
  }

  void VisitReduction(int rank, int iteration) {
    if (!IsPostValidation(program_.tail())) return;
    const NodeTimes& times = ReductionTimes(rank, iteration);
    visit_({.kind = NodeKind::kReduction,
            .iteration = iteration,
            .rank = rank,
            .parameter_version = iteration,
            .ready = times.ready,
            .issue = times.ready,
            .start = times.start,
            .end = times.end,
            .collective = ReductionOf(rank, iteration).collective});
  }

  void DescribeNode(NodeId id, int rank, TimeNs lane_free) {
    const Node& node = program_.nodes()[id];
    const NodeTimes& times = timeline_.nodes[static_cast<size_t>(id)];
    Event& event = node_event_;
    event.kind = node.kind;
    event.iteration = node.iteration;
    event.rank = rank;
    event.parameter_version = node.iteration + (node.kind == NodeKind::kOptimizer ? 1 : 0);
    DescribeOps(node, rank);
    event.ready = ReadyTime(node, times, lane_free);
    event.issue = std::max(event.ready, lane_free);
    event.start = times.start;
    event.end = times.end;
    event.live = times.live;
    event.collective = node.kind == NodeKind::kCollective ? node.extra : kNone;
    if (node.kind == NodeKind::kValidation && node.iteration > 0) {
      event.collective = ReductionOf(rank, node.iteration - 1).collective;
    }
    event.provisional = program_.is_provisional(id, rank);
    event.before = event.during = event.after;  // what the node before it left
    if (node.cost != kNone) {
      Add(event.during, program_.costs()[node.cost].at_start);
      event.after = event.during;
      Add(event.after, program_.costs()[node.cost].at_end);
    }
    DescribeInput(node, times.cause);
  }

  // All inputs are there: those that came as messages, and those that were made on this rank.
  TimeNs ReadyTime(const Node& node, const NodeTimes& times, TimeNs lane_free) const {
    if (node.kind == NodeKind::kCollective) return times.ready;
    if (node.kind == NodeKind::kOptimizer) return std::max(lane_free, times.ready);
    if (node.kind == NodeKind::kRollback) return times.ready;
    if (node.kind == NodeKind::kValidation) {
      return node.iteration == 0 ? 0 : ReductionTimes(node_event_.rank, node.iteration - 1).end;
    }
    TimeNs ready = local_.ReadyFor(node.op);
    if (node.kind == NodeKind::kPair) {
      ready = std::max(ready, local_.ReadyFor(program_.second_op(node)));
    }
    return node.inputs[0] == kNone ? ready : std::max(ready, times.ready);
  }

  void KeepResults(const Event& event) {
    const bool validates = event.kind == NodeKind::kValidation && event.iteration > 0;
    if (event.kind == NodeKind::kOptimizer || event.kind == NodeKind::kRollback || validates) {
      local_.HasParameters(event.end);
    }
    const bool whole = event.part.index + 1 == event.part.count;
    if (HasOp(event.kind) && whole) local_.Made(event.op, event.end);
    if (event.kind == NodeKind::kPair) local_.Made(event.second, event.end);
  }

  void DescribeOps(const Node& node, int rank) {
    const bool pair = node.kind == NodeKind::kPair;
    const bool op = HasOp(node.kind);
    node_event_.op = op ? node.op : Op{};
    node_event_.chunk = op ? program_.chunk_of(rank, node.op.stage) : 0;
    node_event_.part = node.kind == NodeKind::kPart ? program_.part(node) : Part{};
    node_event_.gradient_bucket = node.kind == NodeKind::kPart ? node_event_.part.index : kNone;
    node_event_.second = pair ? program_.second_op(node) : Op{};
    node_event_.second_chunk = pair ? program_.chunk_of(rank, node_event_.second.stage) : 0;
  }

  void DescribeInput(const Node& node, MessageId cause) {
    node_event_.message = cause != kNone ? cause : node.inputs[0];
    node_event_.peer = kNone;
    node_event_.bytes = 0;
    if (node_event_.message == kNone) return;
    const Link& link = program_.links()[program_.messages()[node_event_.message].link];
    node_event_.peer = link.from_rank;
    node_event_.bytes = link.hop.bytes;
  }

  // The op of a message: what its producer made for exactly this receiver. A pair makes two.
  const Op& ProducingOp(MessageId id) const {
    const Node& producer = program_.nodes()[program_.messages()[id].from];
    if (producer.kind != NodeKind::kPair) return producer.op;
    const Op& second = program_.second_op(producer);
    if (producer.num_outputs == 2) return id == producer.first_output ? producer.op : second;
    // Of one message, the reader tells which op it continues.
    const Node& reader = program_.nodes()[program_.messages()[id].to];
    const auto continues = [](const Op& made, const Op& read) {
      if (made.micro_batch != read.micro_batch) return false;
      return made.pass == Pass::kF ? read.pass == Pass::kF && read.stage == made.stage + 1
                                   : read.pass != Pass::kF && read.stage + 1 == made.stage;
    };
    const bool by_first =
        continues(producer.op, reader.op) ||
        (reader.kind == NodeKind::kPair && continues(producer.op, program_.second_op(reader)));
    return by_first ? producer.op : second;
  }

  void VisitMessage(MessageId id, NodeKind kind) {
    const Message& message = program_.messages()[id];
    const Link& link = program_.links()[message.link];
    const MessageTimes& times = timeline_.messages[static_cast<size_t>(id)];
    const Node& producer = program_.nodes()[message.from];
    const bool sends = kind == NodeKind::kSend;
    Event& event = message_event_;
    event.kind = kind;
    event.iteration = producer.iteration;
    event.rank = sends ? link.from_rank : link.to_rank;
    event.op = ProducingOp(id);
    event.op.overlaps_next = false;
    event.chunk = program_.chunk_of(link.from_rank, event.op.stage);
    event.parameter_version = producer.iteration;
    event.provisional = program_.is_provisional(message.from, link.from_rank);
    event.dropped = producer.kind == NodeKind::kDroppedOp;
    event.ready = timeline_.nodes[static_cast<size_t>(message.from)].end;
    event.issue = event.ready;
    event.start = times.start;
    event.end = times.arrival;
    event.message = id;
    event.peer = sends ? link.to_rank : link.from_rank;
    event.bytes = link.hop.bytes;
    visit_(event);
  }

  const Program& program_;
  const Timeline& timeline_;
  const std::function<void(const Event&)>& visit_;
  // Written over again and again: an Event has so many fields that making one takes longer than
  // filling in those that matter. Each kind has its own, so that what it never sets stays empty.
  LocalResults local_;
  Event node_event_;
  Event message_event_;
};

}  // namespace

void ForEachEvent(const Program& program, const Timeline& timeline, int iterations,
                  const std::function<void(const Event&)>& visit) {
  Reader reader(program, timeline, visit);
  for (int rank = 0; rank < program.num_ranks(); ++rank) reader.ReadRank(rank, iterations);
}

std::vector<Event> CollectEvents(const Program& program, const Timeline& timeline, int iterations) {
  std::vector<Event> events;
  ForEachEvent(program, timeline, iterations, [&](const Event& e) { events.push_back(e); });
  return events;
}

}  // namespace spiritlevel
