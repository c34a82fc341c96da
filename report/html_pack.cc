// The run, packed for the page. assets/10_run.js reads it back; both follow this list, all of it
// varints (zigzag where marked ±):
//
//   ranks, memory categories K, iterations I
//   number of shapes, then of each: kind, passes (1 + pass of the first op, of the second; 0 for
//     none), stage and chunk of the first, stage and chunk of the second; of a part also which of
//     its op's parts it is, from 0, and how many there are
//   number of memory changes, then of each: K ± at the start, K ± at the end
//   for each rank: K ± that lie there from the beginning; the nodes of each of the I iterations;
//     for each node: shape; ± micro-batch of each of its ops, less the last one of the same shape;
//     ± gap since the end of the node before it; ± duration, less the last one of the same shape;
//     memory change; and where the gap is not 0: launch, transfer (both parts of it), and 0 or
//     1 + the rank that made the input that was made last, ± number of the node there that did,
//     less the last such number of that rank
//   for each rank: number of its sums on communication lanes, then of each: kind, iteration; 1 +
//   its
//     stage and 1 + its bucket, 0 for all; bytes; ± collective, less the last one of the rank;
//     ± start, less the last end of the same kind; of that the wait for its other members; duration
//
// Kinds of nodes and of sums: NumberOf() below. Most of these numbers are 0 or 1 in most ops, so
// that an op takes some seven bytes.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "report/html.h"
#include "report/varint.h"

namespace spiritlevel {
namespace {

// What ops of one kind on one rank have in common.
struct Shape {
  NodeKind kind = NodeKind::kOp;
  std::array<int, 2> pass{};  // 1 + pass
  std::array<int, 2> stage{};
  std::array<int, 2> chunk{};
  Part part{};

  auto AsTuple() const { return std::tie(kind, pass, stage, chunk, part.index, part.count); }
  friend bool operator<(const Shape& a, const Shape& b) { return a.AsTuple() < b.AsTuple(); }
};

// Those that work on ops come first. 8 is for what the page has no name for.
uint64_t NumberOf(NodeKind kind) {
  switch (kind) {
    case NodeKind::kOp:
      return 0;
    case NodeKind::kPair:
      return 1;
    case NodeKind::kPart:
      return 2;
    case NodeKind::kDroppedOp:
      return 3;
    case NodeKind::kCollective:
      return 4;
    case NodeKind::kOptimizer:
      return 5;
    case NodeKind::kValidation:
      return 6;
    case NodeKind::kRollback:
      return 7;
    case NodeKind::kBucketSum:
      return 0;
    case NodeKind::kTwinSum:
      return 1;
    case NodeKind::kTiedSum:
      return 2;
    case NodeKind::kReduction:
      return 3;
    case NodeKind::kSend:
    case NodeKind::kReceive:
      break;
  }
  return 8;
}

constexpr size_t kKindsOfSums = 4;

bool HasOp(NodeKind kind) { return RunsOps(kind) || kind == NodeKind::kDroppedOp; }

class Packer {
 public:
  Packer(const Program& program, const Timeline& timeline, int iterations)
      : program_(program), timeline_(timeline), iterations_(iterations) {}

  HtmlRun Run() {
    std::string ranks;
    for (rank_ = 0; rank_ < program_.num_ranks(); ++rank_) PackRank(ranks);
    FindSummands();
    for (int rank = 0; rank < program_.num_ranks(); ++rank) PackSums(rank, ranks);
    HtmlRun run{.packed = Head() + ranks, .ops = ops_, .waterfall = {}};
    return run;
  }

 private:
  struct Last {
    std::array<int64_t, 2> micro_batch{};
    TimeNs duration = 0;
  };

  const NodeTimes& TimesOf(NodeId id) const { return timeline_.nodes[static_cast<size_t>(id)]; }

  std::string Head() const {
    std::string out;
    AppendVarint(static_cast<uint64_t>(program_.num_ranks()), out);
    AppendVarint(kNumMemoryCategories, out);
    AppendVarint(static_cast<uint64_t>(iterations_), out);
    AppendVarint(shapes_.size(), out);
    for (const Shape& shape : shapes_) {
      AppendVarint(NumberOf(shape.kind), out);
      for (const int value : {shape.pass[0], shape.pass[1], shape.stage[0], shape.chunk[0],
                              shape.stage[1], shape.chunk[1]}) {
        AppendVarint(static_cast<uint64_t>(value), out);
      }
      if (shape.kind != NodeKind::kPart) continue;
      AppendVarint(static_cast<uint64_t>(shape.part.index), out);
      AppendVarint(static_cast<uint64_t>(shape.part.count), out);
    }
    AppendVarint(changes_.size(), out);
    for (const MemoryChange& change : changes_) {
      for (const MemoryByCategory& part : change) {
        for (const Bytes bytes : part) AppendZigzag(bytes, out);
      }
    }
    return out;
  }

  void PackRank(std::string& out) {
    for (const Bytes bytes : program_.static_memory(rank_)) AppendZigzag(bytes, out);
    const NodeId begin = program_.rank_begin(rank_);
    const NodeId end = program_.iteration_begin(rank_, iterations_);
    for (int i = 0; i < iterations_; ++i) {
      const NodeId nodes =
          program_.iteration_begin(rank_, i + 1) - program_.iteration_begin(rank_, i);
      AppendVarint(static_cast<uint64_t>(nodes), out);
    }
    last_of_shape_.assign(last_of_shape_.size(), {});
    last_cause_.assign(static_cast<size_t>(program_.num_ranks()), 0);
    TimeNs free = 0;
    for (NodeId id = begin; id < end; ++id) {
      PackNode(id, free, out);
      free = TimesOf(id).end;
    }
  }

  void PackNode(NodeId id, TimeNs free, std::string& out) {
    const Node& node = program_.nodes()[id];
    const NodeTimes& times = TimesOf(id);
    const size_t shape = ShapeOf(node);
    AppendVarint(shape, out);
    Last& last = last_of_shape_[shape];
    const bool last_part =
        node.kind != NodeKind::kPart || program_.part(node).index + 1 == program_.part(node).count;
    ops_ += RunsOps(node.kind) && last_part ? 1 : 0;
    if (HasOp(node.kind)) PackMicroBatch(node.op.micro_batch, last.micro_batch[0], out);
    if (node.kind == NodeKind::kPair) {
      PackMicroBatch(program_.second_op(node).micro_batch, last.micro_batch[1], out);
    }
    AppendZigzag(times.start - free, out);
    const TimeNs duration = times.end - times.start;
    AppendZigzag(duration - last.duration, out);
    last.duration = duration;
    AppendVarint(ChangeOf(node), out);
    if (times.start != free) PackGap(id, free, out);
  }

  static void PackMicroBatch(int64_t micro_batch, int64_t& last, std::string& out) {
    AppendZigzag(micro_batch - last, out);
    last = micro_batch;
  }

  // The same cuts as in sim/analysis/stalls.cc: docs/stalls.md, "How a node starts".
  void PackGap(NodeId id, TimeNs free, std::string& out) {
    const NodeTimes& times = TimesOf(id);
    const TimeNs issue = std::clamp(times.ready, free, std::max(free, times.start));
    const NodeId producer = LastProducer(id);
    TimeNs made = issue;
    if (producer != kNone && id != program_.rank_begin(rank_)) {
      made = std::clamp(TimesOf(producer).end, free, issue);
    }
    AppendVarint(static_cast<uint64_t>(std::max<TimeNs>(0, times.start - issue)), out);
    AppendVarint(static_cast<uint64_t>(issue - made), out);
    if (producer == kNone || issue == free) {
      AppendVarint(0, out);
      return;
    }
    const int peer = program_.rank_of(producer);
    const int64_t number = producer - program_.rank_begin(peer);
    AppendVarint(static_cast<uint64_t>(peer) + 1, out);
    AppendZigzag(number - last_cause_[static_cast<size_t>(peer)], out);
    last_cause_[static_cast<size_t>(peer)] = number;
  }

  // The node whose result, of those this one waits for, was computed last.
  NodeId LastProducer(NodeId id) const {
    NodeId last = kNone;
    for (const MessageId input : program_.nodes()[id].inputs) {
      if (input == kNone) continue;
      const NodeId from = program_.messages()[input].from;
      if (last == kNone || TimesOf(from).end > TimesOf(last).end) last = from;
    }
    return last;
  }

  // When what each sum waits for on its own rank was done.
  void FindSummands() {
    summands_done_.assign(program_.reductions().size(), 0);
    for (const Edge& edge : program_.edges()) {
      if (!program_.is_reduction(edge.to)) continue;
      TimeNs& done = summands_done_[static_cast<size_t>(edge.to - program_.reduction_node(0))];
      if (edge.from < program_.num_lane_nodes()) {
        done = std::max(done, TimesOf(edge.from).end);
      } else if (program_.is_reduction(edge.from)) {
        const auto from = static_cast<size_t>(edge.from - program_.reduction_node(0));
        done = std::max(done, timeline_.reductions[from].end);
      }
    }
  }

  // Since all of that and its lane were there.
  TimeNs WaitForOthers(int32_t sum) const {
    const NodeTimes& times = timeline_.reductions[static_cast<size_t>(sum)];
    return times.start - std::max(times.ready, summands_done_[static_cast<size_t>(sum)]);
  }

  // Iteration by iteration, each lane in order, the reduction that is validated last.
  void PackSums(int rank, std::string& out) const {
    std::vector<int32_t> sums;
    std::vector<int> iteration_of;
    for (int i = 0; i < iterations_; ++i) {
      for (int32_t sum = program_.gradient_sums_begin(rank, i);
           sum < program_.gradient_sums_end(rank, i); ++sum) {
        sums.push_back(sum);
      }
      if (IsPostValidation(program_.tail())) sums.push_back(program_.reduction_of(rank, i));
      iteration_of.resize(sums.size(), i);
    }
    AppendVarint(sums.size(), out);
    std::array<TimeNs, kKindsOfSums> last_end{};
    int64_t last_collective = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const Reduction& sum = program_.reductions()[static_cast<size_t>(sums[i])];
      const NodeTimes& times = timeline_.reductions[static_cast<size_t>(sums[i])];
      const Bytes bytes = program_.collectives()[static_cast<size_t>(sum.collective)].bytes;
      TimeNs& last = last_end[NumberOf(sum.kind)];
      for (const int64_t value :
           {static_cast<int64_t>(NumberOf(sum.kind)), int64_t{iteration_of[i]},
            int64_t{sum.stage} + 1, int64_t{sum.bucket} + 1, int64_t{bytes}}) {
        AppendVarint(static_cast<uint64_t>(value), out);
      }
      AppendZigzag(sum.collective - last_collective, out);
      AppendZigzag(times.start - last, out);
      AppendVarint(static_cast<uint64_t>(std::max<TimeNs>(0, WaitForOthers(sums[i]))), out);
      AppendVarint(static_cast<uint64_t>(times.end - times.start), out);
      last = times.end;
      last_collective = sum.collective;
    }
  }

  size_t ShapeOf(const Node& node) {
    Shape shape{.kind = node.kind};
    const auto add = [&](size_t i, const Op& op) {
      shape.pass[i] = 1 + static_cast<int>(op.pass);
      shape.stage[i] = op.stage;
      shape.chunk[i] = program_.chunk_of(rank_, op.stage);
    };
    if (HasOp(node.kind)) add(0, node.op);
    if (node.kind == NodeKind::kPair) add(1, program_.second_op(node));
    if (node.kind == NodeKind::kPart) shape.part = program_.part(node);
    const auto [at, added] = shape_numbers_.try_emplace(shape, shapes_.size());
    if (added) {
      shapes_.push_back(shape);
      last_of_shape_.emplace_back();
    }
    return at->second;
  }

  using MemoryChange = std::array<MemoryByCategory, 2>;  // at the start, at the end

  // Nodes share their costs, so few are looked at here.
  size_t ChangeOf(const Node& node) {
    if (change_of_cost_.empty()) change_of_cost_.assign(program_.costs().size() + 1, kUnknown);
    size_t& number = change_of_cost_[static_cast<size_t>(node.cost + 1)];
    if (number != kUnknown) return number;
    MemoryChange change{};
    if (node.cost != kNone) {
      change = {program_.costs()[node.cost].at_start, program_.costs()[node.cost].at_end};
    }
    const auto [at, added] = change_numbers_.try_emplace(change, changes_.size());
    if (added) changes_.push_back(change);
    return number = at->second;
  }

  static constexpr size_t kUnknown = ~size_t{0};

  const Program& program_;
  const Timeline& timeline_;
  int iterations_;
  int rank_ = 0;
  int64_t ops_ = 0;
  std::vector<Shape> shapes_;
  std::map<Shape, size_t> shape_numbers_;
  std::vector<Last> last_of_shape_;
  std::vector<MemoryChange> changes_;
  std::map<MemoryChange, size_t> change_numbers_;
  std::vector<size_t> change_of_cost_;  // by 1 + cost
  std::vector<int64_t> last_cause_;     // by rank
  std::vector<TimeNs> summands_done_;   // by reduction
};

}  // namespace

HtmlRun PackRun(const Program& program, const Timeline& timeline, int iterations) {
  return Packer(program, timeline, iterations).Run();
}

}  // namespace spiritlevel
