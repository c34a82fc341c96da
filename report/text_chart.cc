#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "report/chart.h"

namespace spiritlevel {
namespace {

char LetterOf(Pass pass) {
  switch (pass) {
    case Pass::kF:
      return 'f';
    case Pass::kB:
      return 'b';
    case Pass::kW:
      return 'w';
    case Pass::kBW:
      return 'B';
  }
  return '?';
}

size_t Digits(int largest) { return std::to_string(largest).size(); }

class Chart {
 public:
  Chart(const Program& program, const Timeline& timeline, TimeNs unit)
      : program_(program), timeline_(timeline), unit_(unit) {
    SPIRITLEVEL_CHECK(unit > 0, "a chart's unit is a time");
    several_stages_ = program.num_stages() > program.num_ranks() ||
                      program.parameter_copies() > 1 || !program.pairs().empty();
    micro_batch_digits_ = Digits(program.num_micro_batches() - 1);
    stage_digits_ = Digits(program.num_stages() - 1);
    TimeNs end = 0;
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      const NodeId last = program.iteration_begin(rank, 1) - 1;
      end = std::max(end, timeline.nodes[static_cast<size_t>(last)].end);
    }
    cells_ = (end + unit - 1) / unit;
  }

  std::string ToString() const {
    std::string out;
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      AddRow(rank, out);
      while (out.back() == ' ') out.pop_back();
      out += '\n';
    }
    return out;
  }

 private:
  std::string NameOf(const Op& op) const {
    const std::string name =
        fmt::format("{}{:0{}}", LetterOf(op.pass), op.micro_batch, micro_batch_digits_);
    return several_stages_ ? fmt::format("{:>{}}{}", op.stage, stage_digits_, name) : name;
  }

  std::string Filled(char with) const {
    const size_t width = 1 + micro_batch_digits_ + (several_stages_ ? stage_digits_ : 0);
    return std::string(width, with) + (several_stages_ ? " " : "");
  }

  // The first cell whose middle lies after `t`.
  TimeNs CellAt(TimeNs t) const { return DivideHalfUp(t, unit_); }

  void AddRow(int rank, std::string& out) const {
    TimeNs drawn = 0;
    for (NodeId id = program_.iteration_begin(rank, 0); id < program_.iteration_begin(rank, 1);
         ++id) {
      const NodeTimes& times = timeline_.nodes[static_cast<size_t>(id)];
      const TimeNs begin = CellAt(times.start), end = CellAt(times.end);
      for (; drawn < begin; ++drawn) out += Filled('.');
      for (TimeNs cell = begin; cell < end; ++cell)
        out += CellOf(program_.nodes()[id], cell, begin, end);
      drawn = std::max(drawn, end);
    }
    for (; drawn < cells_; ++drawn) out += Filled('.');
  }

  std::string CellOf(const Node& node, TimeNs cell, TimeNs begin, TimeNs end) const {
    switch (node.kind) {
      case NodeKind::kOp:
      case NodeKind::kPart:
      case NodeKind::kDroppedOp:
        return NameOf(node.op) + (several_stages_ ? " " : "");
      case NodeKind::kPair:
        return NameOf((cell - begin) % 2 == 0 ? node.op : program_.second_op(node)) +
               (cell + 1 < end ? "&" : " ");
      case NodeKind::kOptimizer:
      case NodeKind::kValidation:
      case NodeKind::kRollback:
        return Filled('o');
      case NodeKind::kCollective:
        return Filled('=');
      case NodeKind::kSend:
      case NodeKind::kReceive:
      case NodeKind::kReduction:
      case NodeKind::kBucketSum:
      case NodeKind::kTwinSum:
      case NodeKind::kTiedSum:
        break;
    }
    SPIRITLEVEL_CHECK(false, "a compute lane holds no messages and no sums");
    return "";
  }

  const Program& program_;
  const Timeline& timeline_;
  const TimeNs unit_;
  bool several_stages_ = false;
  size_t micro_batch_digits_ = 1;
  size_t stage_digits_ = 1;
  TimeNs cells_ = 0;
};

}  // namespace

std::string TextChart(const Program& program, const Timeline& timeline, TimeNs unit) {
  return Chart(program, timeline, unit).ToString();
}

}  // namespace spiritlevel
