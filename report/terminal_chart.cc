#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <vector>

#include "report/chart.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

constexpr int kSmallestBody = 10;
constexpr char kIdle = '.';

struct Paint {
  char letter;        // of a rank's first stage; of its others in lower case
  const char* first;  // ANSI colours of the cell
  const char* others;
  const char* meaning;
};

// Black on a colour, lighter for the stages after the first, so that a V is seen.
constexpr std::array<Paint, 7> kPaints = {{
    {'F', "30;44", "30;104", "forward"},
    {'B', "30;46", "30;106", "input gradient"},
    {'W', "30;42", "30;102", "weight gradient"},
    {'G', "30;43", "30;103", "both gradients as one op (BW)"},
    {'X', "30;45", "30;105", "a forward and a backward overlapped (F&B)"},
    {'O', "30;47", "30;47", "optimizer"},
    {'=', "30;47", "30;47", "collective of all ranks"},
}};

constexpr char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

const char* ColourOf(char letter) {
  for (const Paint& paint : kPaints) {
    if (letter == paint.letter) return paint.first;
    if (letter == Lower(paint.letter)) return paint.others;
  }
  return nullptr;
}

char LetterOf(Pass pass) {
  switch (pass) {
    case Pass::kF:
      return 'F';
    case Pass::kB:
      return 'B';
    case Pass::kW:
      return 'W';
    case Pass::kBW:
      return 'G';
  }
  return '?';
}

// 1, 2 or 5 times a power of ten, at least `t`.
TimeNs RoundStep(TimeNs t) {
  TimeNs power = 1;
  while (true) {
    for (const TimeNs digit : {1, 2, 5}) {
      if (digit * power >= t) return digit * power;
    }
    power *= 10;
  }
}

class Chart {
 public:
  Chart(const Program& program, const Timeline& timeline, int width, bool colour)
      : program_(program), timeline_(timeline), colour_(colour) {
    label_width_ = fmt::format("rank {} ", program.num_ranks() - 1).size();
    cells_ = std::max(width - static_cast<int>(label_width_) - 2, kSmallestBody);
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      makespan_ = std::max(makespan_, TimesOf(program.iteration_begin(rank, 1) - 1).end);
    }
  }

  std::string ToString() {
    if (makespan_ == 0) return "nothing takes any time\n";
    std::string out;
    for (int rank = 0; rank < program_.num_ranks(); ++rank) AddRow(rank, out);
    AddAxis(out);
    AddLegend(out);
    return out;
  }

 private:
  const NodeTimes& TimesOf(NodeId id) const { return timeline_.nodes[static_cast<size_t>(id)]; }

  char LetterOfNode(const Node& node, int rank) const {
    const auto of_stage = [&](char letter, const Op& op) {
      return program_.chunk_of(rank, op.stage) == 0 ? letter : Lower(letter);
    };
    switch (node.kind) {
      case NodeKind::kOp:
      case NodeKind::kPart:
      case NodeKind::kDroppedOp:
        return of_stage(LetterOf(node.op.pass), node.op);
      case NodeKind::kPair:  // by its forward
        return of_stage('X', node.op.pass == Pass::kF ? node.op : program_.second_op(node));
      case NodeKind::kOptimizer:
      case NodeKind::kValidation:
      case NodeKind::kRollback:
        return 'O';
      case NodeKind::kCollective:
        return '=';
      case NodeKind::kSend:
      case NodeKind::kReceive:
      case NodeKind::kReduction:
      case NodeKind::kBucketSum:
      case NodeKind::kTwinSum:
      case NodeKind::kTiedSum:
        break;
    }
    return '?';
  }

  // How much of one cell each letter fills. Few letters meet in a cell, so a list does.
  struct Fill {
    char letter;
    Int128 amount;
  };
  using Cell = std::vector<Fill>;

  // Time is counted in 1/cells_ of a nanosecond here, in which every cell is makespan_ long.
  void Spread(char letter, const NodeTimes& times, std::vector<Cell>& row) const {
    const Int128 begin = static_cast<Int128>(times.start) * cells_;
    const Int128 end = static_cast<Int128>(times.end) * cells_;
    for (Int128 at = begin; at < end;) {
      const Int128 cell = at / makespan_;
      const Int128 next = std::min(end, (cell + 1) * makespan_);
      Cell& fills = row[static_cast<size_t>(cell)];
      const auto same = std::find_if(fills.begin(), fills.end(),
                                     [&](const Fill& f) { return f.letter == letter; });
      if (same == fills.end()) {
        fills.push_back({letter, next - at});
      } else {
        same->amount += next - at;
      }
      at = next;
    }
  }

  // An op shows against as much idle time; of ops that fill the same the first.
  char Winner(const Cell& cell) const {
    Int128 idle = makespan_;
    Fill best{kIdle, 0};
    for (const Fill& fill : cell) {
      idle -= fill.amount;
      if (fill.amount > best.amount) best = fill;
    }
    return best.amount >= idle ? best.letter : kIdle;
  }

  void AddRow(int rank, std::string& out) {
    std::vector<Cell> row(static_cast<size_t>(cells_));
    for (NodeId id = program_.iteration_begin(rank, 0); id < program_.iteration_begin(rank, 1);
         ++id) {
      const NodeTimes& times = TimesOf(id);
      if (times.end == times.start) continue;
      const Node& node = program_.nodes()[id];
      const char letter = LetterOfNode(node, rank);
      // Also where it fills no cell, so that the legend owns up to it.
      if (RunsOps(node.kind)) seen_.insert(letter);
      // Parts of an op add up in their cells.
      if (RunsOps(node.kind) && node.kind != NodeKind::kPart) {
        shortest_op_ = std::min(shortest_op_, times.end - times.start);
      }
      Spread(letter, times, row);
    }
    const std::string number = std::to_string(rank);
    out += "rank " + PadLeft(number, label_width_ - 6) + " |";
    const char* colour = nullptr;
    for (const Cell& cell : row) {
      const char letter = Winner(cell);
      seen_.insert(letter);
      SwitchTo(ColourOf(letter), colour, out);
      out += letter;
    }
    SwitchTo(nullptr, colour, out);
    out += "|\n";
  }

  void SwitchTo(const char* to, const char*& colour, std::string& out) const {
    if (!colour_ || to == colour) return;
    out += to == nullptr ? std::string("\033[0m") : fmt::format("\033[{}m", to);
    colour = to;
  }

  // Ticks at round times, far enough apart for their labels.
  void AddAxis(std::string& out) const {
    constexpr TimeNs kColumnsPerTick = 12;
    const TimeNs step =
        RoundStep(std::max<TimeNs>(1, DivideHalfUp(makespan_, cells_) * kColumnsPerTick));
    std::string ticks(static_cast<size_t>(cells_), '-');
    std::string labels;
    for (TimeNs t = 0; t <= makespan_; t += step) {
      const auto column = static_cast<size_t>(static_cast<Int128>(t) * cells_ / makespan_);
      const std::string label = t == 0 ? "0" : FormatTime(t);
      if (column + label.size() > static_cast<size_t>(cells_) + 1) break;
      if (column < ticks.size()) ticks[column] = '+';
      labels = PadRight(labels, column) + label;
    }
    const std::string margin(label_width_, ' ');
    out += margin + " " + ticks + '\n' + margin + " " + labels + '\n';
  }

  void AddLegend(std::string& out) const {
    std::string legend;
    bool several_stages = false;
    for (const Paint& paint : kPaints) {
      const char lower = Lower(paint.letter);
      const bool others = lower != paint.letter && seen_.contains(lower);
      if (!seen_.contains(paint.letter) && !others) continue;
      several_stages |= others;
      legend += fmt::format("{} {}, ", paint.letter, paint.meaning);
    }
    legend += ". idle";
    if (several_stages) legend += "; lower case: of a rank's stages after the first";
    if (program_.has_gradient_sums()) legend += "; sums of gradients run beside this, not drawn";
    const TimeNs column = DivideHalfUp(makespan_, cells_);
    if (column > 0) legend += fmt::format("; a column is {}", FormatTime(column));
    if (column > shortest_op_) legend += ", so ops shorter than that may not show";
    const size_t width = label_width_ + static_cast<size_t>(cells_) + 2;
    out += Wrap(fmt::format("first iteration, {}: {}\n", FormatTime(makespan_), legend), 0, width);
  }

  const Program& program_;
  const Timeline& timeline_;
  const bool colour_;
  size_t label_width_ = 0;
  TimeNs cells_ = 0;
  TimeNs makespan_ = 0;
  TimeNs shortest_op_ = std::numeric_limits<TimeNs>::max();
  std::set<char> seen_;
};

}  // namespace

std::string TerminalChart(const Program& program, const Timeline& timeline, int width,
                          bool colour) {
  return Chart(program, timeline, width, colour).ToString();
}

}  // namespace spiritlevel
