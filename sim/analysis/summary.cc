#include "sim/analysis/summary.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace spiritlevel {
namespace {

bool IsOp(const Node& node) { return RunsOps(node.kind); }

// Stage activations that wait, and the most of them at any time.
class Waiting {
 public:
  void Begin() { most_ = std::max(most_, ++now_); }
  void End() { --now_; }
  int most() const { return most_; }

 private:
  int now_ = 0;
  int most_ = 0;
};

// One rank of the first iteration, front to back.
class RankReader {
 public:
  RankReader(const Program& program, const Timeline& timeline, int rank)
      : program_(program), timeline_(timeline), rank_(rank) {}

  void Read() {
    for (NodeId id = program_.iteration_begin(rank_, 0); id < program_.iteration_begin(rank_, 1);
         ++id) {
      const Node& node = program_.nodes()[id];
      const NodeTimes& times = timeline_.nodes[static_cast<size_t>(id)];
      peak_bytes = std::max(peak_bytes, times.live);
      messages += node.num_outputs;
      for (int i = 0; i < node.num_outputs; ++i) {
        bytes += program_.links()[program_.messages()[node.first_output + i].link].hop.bytes;
      }
      if (!IsOp(node)) continue;
      if (first_start < 0) first_start = times.start;
      last_end = times.end;
      const bool pair = node.kind == NodeKind::kPair;
      const Part part = node.kind == NodeKind::kPart ? program_.part(node) : Part{};
      if (part.index == 0) Begin(node.op);
      if (pair) Begin(program_.second_op(node));
      if (part.index + 1 == part.count) End(node.op);
      if (pair) End(program_.second_op(node));
    }
  }

  TimeNs first_start = -1;
  TimeNs last_end = 0;
  Bytes peak_bytes = 0;
  int64_t messages = 0;
  Bytes bytes = 0;
  Waiting for_b;
  Waiting for_w;

 private:
  void Begin(const Op& op) {
    if (op.pass == Pass::kF) for_b.Begin();
    if (op.pass == Pass::kB || op.pass == Pass::kBW) for_w.Begin();
  }
  void End(const Op& op) {
    if (op.pass == Pass::kB || op.pass == Pass::kBW) for_b.End();
    if (op.pass == Pass::kW || op.pass == Pass::kBW) for_w.End();
  }

  const Program& program_;
  const Timeline& timeline_;
  int rank_;
};

// Of an op, also of one that is dropped; a validation may stand before it.
TimeNs FirstStart(const Program& program, const Timeline& timeline, int rank, int iteration) {
  NodeId id = program.iteration_begin(rank, iteration);
  while (!IsOp(program.nodes()[id]) && program.nodes()[id].kind != NodeKind::kDroppedOp) ++id;
  return timeline.nodes[static_cast<size_t>(id)].start;
}

double Share(TimeNs part, TimeNs whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

TimeNs PeriodOf(const Program& program, const Timeline& timeline) {
  const int last = program.num_iterations() - 1;
  SPIRITLEVEL_CHECK(last + 1 >= kPeriodIterations, "a period is read off iterations in a row");
  TimeNs period = 0;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    period = std::max(period, FirstStart(program, timeline, rank, last) -
                                  FirstStart(program, timeline, rank, last - 1));
  }
  return period;
}

TimeNs ExpectedPeriod(TimeNs period_ok, TimeNs period_rejected, double q) {
  SPIRITLEVEL_CHECK(q >= 0 && q <= 1, "a probability is between 0 and 1");
  // Half up, also where a rejection would save time.
  const double more = q * static_cast<double>(period_rejected - period_ok);
  return period_ok + static_cast<TimeNs>(std::floor(more + 0.5));
}

int Summary::fullest_rank() const {
  return static_cast<int>(std::max_element(peak_bytes.begin(), peak_bytes.end()) -
                          peak_bytes.begin());
}

bool Summary::fits(std::optional<Bytes> memory_limit) const {
  return !memory_limit || peak_bytes[static_cast<size_t>(fullest_rank())] <= *memory_limit;
}

Summary Summarize(const Program& program, const Costs& costs, const Timeline& timeline,
                  TimeNs period) {
  Summary summary{.stalls = AccountForStalls(program, costs, timeline)};
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    RankReader reader(program, timeline, rank);
    reader.Read();
    summary.max_rank_span = std::max(summary.max_rank_span, reader.last_end - reader.first_start);
    summary.peak_bytes.push_back(reader.peak_bytes);
    summary.peak_activation_bytes.push_back(reader.peak_bytes - Total(program.static_memory(rank)));
    summary.peak_waiting_b = std::max(summary.peak_waiting_b, reader.for_b.most());
    summary.peak_waiting_w = std::max(summary.peak_waiting_w, reader.for_w.most());
    summary.messages += reader.messages;
    summary.pp_bytes += reader.bytes;
  }
  const std::vector<TimeNs>& busy = summary.stalls.busy;
  summary.makespan = summary.stalls.makespan;
  summary.bubble_rate = Share(summary.max_rank_span - *std::max_element(busy.begin(), busy.end()),
                              summary.max_rank_span);
  Int128 total_busy = 0;
  for (const TimeNs b : busy) total_busy += b;
  const Int128 all = static_cast<Int128>(summary.makespan) * program.num_ranks();
  summary.bubble_fraction =
      all == 0 ? 0 : static_cast<double>(all - total_busy) / static_cast<double>(all);
  summary.period = summary.step = period;
  summary.parameter_copies = program.parameter_copies();
  return summary;
}

Summary Summarize(const Program& program, const Costs& costs, const Timeline& timeline) {
  return Summarize(program, costs, timeline, PeriodOf(program, timeline));
}

}  // namespace spiritlevel
