// The run, packed for the page. assets/10_run.js reads it back; both follow this list, all of it
// varints (zigzag where marked ±):
//
//   ranks, memory categories K
//   number of shapes, then of each: kind, passes (1 + pass of the first op, of the second; 0 for
//     none), stage and chunk of the first, stage and chunk of the second
//   number of memory changes, then of each: K ± at the start, K ± at the end
//   for each rank: K ± that lie there from the beginning; nodes of an iteration; nodes; for each:
//     shape; ± micro-batch of each of its ops, less the last one of the same shape;
//     ± gap since the end of the node before it; ± duration, less the last one of the same shape;
//     memory change; and where the gap is not 0: launch, transfer (both parts of it), and 0 or
//     1 + the rank that made the input that was made last, ± number of the node there that did,
//     less the last such number of that rank.
//
// Most of these are 0 or 1 in most ops, so that an op takes some seven bytes.
#include <algorithm>
#include <array>
#include <map>
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

  friend auto operator<=>(const Shape&, const Shape&) = default;
};

// A node of another kind than the page knows has the first number that it does not.
uint64_t NumberOf(NodeKind kind) {
  switch (kind) {
    case NodeKind::kOp:
      return 0;
    case NodeKind::kPair:
      return 1;
    case NodeKind::kCollective:
      return 2;
    case NodeKind::kOptimizer:
      return 3;
    default:
      return 4;
  }
}

class Packer {
 public:
  Packer(const Program& program, const Timeline& timeline, int iterations)
      : program_(program), timeline_(timeline), iterations_(iterations) {}

  HtmlRun Run() {
    std::string ranks;
    for (rank_ = 0; rank_ < program_.num_ranks(); ++rank_) PackRank(ranks);
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
    AppendVarint(shapes_.size(), out);
    for (const Shape& shape : shapes_) {
      AppendVarint(NumberOf(shape.kind), out);
      for (const int value : {shape.pass[0], shape.pass[1], shape.stage[0], shape.chunk[0],
                              shape.stage[1], shape.chunk[1]}) {
        AppendVarint(static_cast<uint64_t>(value), out);
      }
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
    AppendVarint(static_cast<uint64_t>(program_.iteration_begin(rank_, 1) - begin), out);
    AppendVarint(static_cast<uint64_t>(end - begin), out);
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
    const bool op = node.kind == NodeKind::kOp || node.kind == NodeKind::kPair;
    ops_ += op ? 1 : 0;
    if (op) PackMicroBatch(node.op.micro_batch, last.micro_batch[0], out);
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

  size_t ShapeOf(const Node& node) {
    Shape shape{.kind = node.kind};
    const auto add = [&](size_t i, const Op& op) {
      shape.pass[i] = 1 + static_cast<int>(op.pass);
      shape.stage[i] = op.stage;
      shape.chunk[i] = program_.chunk_of(rank_, op.stage);
    };
    if (node.kind == NodeKind::kOp || node.kind == NodeKind::kPair) add(0, node.op);
    if (node.kind == NodeKind::kPair) add(1, program_.second_op(node));
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
};

}  // namespace

HtmlRun PackRun(const Program& program, const Timeline& timeline, int iterations) {
  return Packer(program, timeline, iterations).Run();
}

}  // namespace spiritlevel
