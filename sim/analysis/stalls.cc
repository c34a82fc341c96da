#include "sim/analysis/stalls.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace spiritlevel {
namespace {

size_t Index(StallCategory category) { return static_cast<size_t>(category); }

// Accounts for the first iteration, rank by rank. Between two nodes of a lane lies one gap; it is
// cut where its cause changes.
class Accountant {
 public:
  Accountant(const Program& program, const Costs& costs, const Timeline& timeline)
      : program_(program), costs_(costs), timeline_(timeline) {
    report_.busy.resize(static_cast<size_t>(program.num_ranks()));
    report_.stalls.resize(report_.busy.size());
  }

  StallReport Run() {
    FindEnds();
    for (rank_ = 0; rank_ < program_.num_ranks(); ++rank_) AccountRank();
    return std::move(report_);
  }

 private:
  const NodeTimes& TimesOf(NodeId id) const { return timeline_.nodes[static_cast<size_t>(id)]; }

  static bool IsOp(const Node& node) { return RunsOps(node.kind); }

  NodeId FirstNode(int rank) const { return program_.iteration_begin(rank, 0); }
  NodeId EndNode(int rank) const { return program_.iteration_begin(rank, 1); }

  NodeId FirstOp(int rank) const {
    NodeId id = FirstNode(rank);
    while (!IsOp(program_.nodes()[id])) ++id;
    return id;
  }

  // The ops of an iteration stand before its tail.
  NodeId EndOfOps(int rank) const {
    NodeId id = EndNode(rank);
    while (!IsOp(program_.nodes()[id - 1])) --id;
    return id;
  }

  void FindEnds() {
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      report_.makespan = std::max(report_.makespan, TimesOf(EndNode(rank) - 1).end);
      if (IsPostValidation(program_.tail())) {
        const auto reduction = static_cast<size_t>(program_.reduction_of(rank, 0));
        report_.makespan = std::max(report_.makespan, timeline_.reductions[reduction].end);
      }
      const TimeNs end = TimesOf(EndOfOps(rank) - 1).end;
      if (end > last_op_end_) {
        last_op_end_ = end;
        last_rank_ = rank;
      }
    }
  }

  void AccountRank() {
    TimeNs free = 0;
    for (NodeId id = FirstNode(rank_); id < EndOfOps(rank_); ++id) {
      // The first iteration's validation has nothing to wait for, and takes no time.
      if (!IsOp(program_.nodes()[id])) continue;
      const NodeTimes& times = TimesOf(id);
      AccountGap(id, free);
      report_.busy[static_cast<size_t>(rank_)] += times.end - times.start;
      free = times.end;
    }
    AccountTail(free);
  }

  // The idle time before node `id`, whose lane has been free since `free`.
  void AccountGap(NodeId id, TimeNs free) {
    const NodeTimes& times = TimesOf(id);
    const TimeNs issue = std::max(free, times.ready);
    Add(StallCategory::kLaunch, times.start - issue);
    if (issue == free) return;
    const Awaited awaited = LastMade(id);
    // Before its first op a rank waits for the pipeline to fill, whatever the message's way.
    const bool first = id == FirstOp(rank_);
    const TimeNs made = first ? issue : std::clamp(awaited.made, free, issue);
    AddDependency(free, made, awaited.rank);
    Add(StallCategory::kTransfer, issue - made);
  }

  struct Awaited {
    TimeNs made = 0;
    int rank = 0;
  };

  // The input that was computed last; of simultaneous ones the first.
  Awaited LastMade(NodeId id) const {
    Awaited last{.made = -1, .rank = rank_};
    for (const MessageId input : program_.nodes()[id].inputs) {
      if (input == kNone) continue;
      const Message& message = program_.messages()[input];
      const TimeNs made = TimesOf(message.from).end;
      if (made > last.made) last = {made, program_.links()[message.link].from_rank};
    }
    return last;
  }

  // From the end of its last op, at `free`, to the makespan: `optimizer` while its own optimizer
  // steps and once every rank's last op has ended, `dependency` otherwise.
  void AccountTail(TimeNs free) {
    const NodeTimes& step = TimesOf(EndNode(rank_) - 1);
    const TimeNs all_done = std::max(free, last_op_end_);
    const TimeNs step_start = std::min(step.start, all_done);
    const TimeNs step_end = std::min(step.end, all_done);
    AddDependency(free, step_start, last_rank_);
    Add(StallCategory::kOptimizer, step_end - step_start);
    AddDependency(step_end, all_done, last_rank_);
    Add(StallCategory::kOptimizer, report_.makespan - all_done);
  }

  void Add(StallCategory category, TimeNs time) {
    report_.stalls[static_cast<size_t>(rank_)][Index(category)] += time;
  }

  // [from, to) is waited for `awaited` to compute. What its ops take above the mean over ranks is
  // imbalance, the rest the bubble proper.
  void AddDependency(TimeNs from, TimeNs to, int awaited) {
    if (to <= from) return;
    const TimeNs imbalance = costs_.stages_are_equal() ? 0 : ImbalanceIn(from, to, awaited);
    Add(StallCategory::kImbalance, imbalance);
    Add(StallCategory::kDependency, to - from - imbalance);
  }

  TimeNs ImbalanceIn(TimeNs from, TimeNs to, int awaited) const {
    const NodeId begin = FirstNode(awaited);
    const std::span<const NodeTimes> times(timeline_.nodes.data() + begin,
                                           timeline_.nodes.data() + EndOfOps(awaited));
    const auto first = std::partition_point(times.begin(), times.end(),
                                            [&](const NodeTimes& t) { return t.end <= from; });
    TimeNs sum = 0;
    for (auto t = first; t != times.end() && t->start < to; ++t) {
      const TimeNs overlap = std::min(t->end, to) - std::max(t->start, from);
      if (overlap <= 0) continue;
      sum += Excess(begin + static_cast<NodeId>(t - times.begin()), overlap, t->end - t->start);
    }
    return std::min(sum, to - from);
  }

  // overlap * (t - mean) / t, where positive.
  TimeNs Excess(NodeId id, TimeNs overlap, TimeNs t) const {
    const Node& node = program_.nodes()[id];
    const TimeNs stages = costs_.num_stages();
    TimeNs sum = costs_.sum_over_stages(node.op.pass, node.op.micro_batch);
    if (node.kind == NodeKind::kPart) {
      // Its share of the op's mean, and all alike: what counts is the op.
      const TimeNs whole = costs_.duration(node.op);
      if (whole == 0) return 0;
      sum = static_cast<TimeNs>(static_cast<Int128>(sum) * t / whole);
    }
    if (node.kind == NodeKind::kPair) {
      const Op& second = program_.second_op(node);
      sum += costs_.sum_over_stages(second.pass, second.micro_batch);
      // A pair that overlaps well takes less than its parts; its mean shrinks by as much.
      const TimeNs parts = costs_.duration(node.op) + costs_.duration(second);
      if (parts == 0) return 0;
      sum = static_cast<TimeNs>(static_cast<Int128>(sum) * t / parts);
    }
    const Int128 excess = static_cast<Int128>(t) * stages - sum;
    if (excess <= 0) return 0;
    const Int128 divisor = static_cast<Int128>(t) * stages;
    return static_cast<TimeNs>((2 * excess * overlap + divisor) / (2 * divisor));
  }

  const Program& program_;
  const Costs& costs_;
  const Timeline& timeline_;
  int rank_ = 0;
  TimeNs last_op_end_ = -1;
  int last_rank_ = 0;
  StallReport report_;
};

}  // namespace

std::string_view Name(StallCategory category) {
  constexpr std::array<std::string_view, kNumStallCategories> kNames = {
      "dependency", "imbalance", "transfer", "memory", "collective", "optimizer", "launch"};
  return kNames[Index(category)];
}

StallReport AccountForStalls(const Program& program, const Costs& costs, const Timeline& timeline) {
  return Accountant(program, costs, timeline).Run();
}

}  // namespace spiritlevel
