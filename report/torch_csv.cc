#include "report/torch_csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"

namespace spiritlevel {
namespace {

std::string_view TorchLetter(Pass pass) {
  switch (pass) {
    case Pass::kF:
      return "F";
    case Pass::kB:
      return "I";
    case Pass::kW:
      return "W";
    case Pass::kBW:
      return "B";
  }
  return "";
}

void Append(std::string& out, const Op& op) {
  fmt::format_to(std::back_inserter(out), "{}{}{}", op.stage, TorchLetter(op.pass), op.micro_batch);
}

void AppendRow(std::string& out, std::span<const Op> ops) {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (i > 0) out += ',';
    if (!ops[i].overlaps_next) {
      Append(out, ops[i]);
      continue;
    }
    out += '(';
    Append(out, ops[i++]);
    out += ';';
    Append(out, ops[i]);
    out += ")OVERLAP_F_B";
  }
  out += '\n';
}

void RefuseStageOnTwoRanks(const Schedule& schedule) {
  if (schedule.one_rank_per_stage()) return;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    const int first = schedule.rank_of(stage, 0);
    for (int i = 1; i < schedule.num_micro_batches(); ++i) {
      const int rank = schedule.rank_of(stage, i);
      if (rank == first) continue;
      throw InputError(
          fmt::format("torch-csv: stage {} lies on rank {} and on rank {}", stage, first, rank),
          "PyTorch builds each stage on one rank, so that DualPipe cannot be written;\n"
          "use dualpipe-v");
    }
  }
}

void RefuseLossesOutOfOrder(const Schedule& schedule) {
  const int last = schedule.num_stages() - 1;
  const int rank = schedule.rank_of(last, 0);
  int expected = 0;
  for (const Op& op : schedule.ops(rank)) {
    if (op.stage != last || op.pass != Pass::kF || op.micro_batch == expected++) continue;
    throw InputError(
        fmt::format("torch-csv: rank {}: {} runs before {}F{}", rank, ToString(op), last,
                    expected - 1),
        "PyTorch keeps the losses in the order in which the last stage runs, and would give them "
        "to the wrong micro-batches;\nnumber the micro-batches in that order");
  }
}

enum class Style { kLoop, kV, kNeither };

// PyTorch's rule for V: down the ranks and up again, turning on the spot.
int RankInV(int stage, int ranks) {
  const int at = stage % ranks;
  return stage / ranks % 2 == 0 ? at : ranks - 1 - at;
}

Style StyleOf(const Schedule& schedule) {
  const int ranks = schedule.num_ranks();
  if (schedule.num_stages() % ranks != 0) return Style::kNeither;
  bool loop = true;
  bool v = true;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    const int rank = schedule.rank_of(stage, 0);
    loop &= rank == stage % ranks;
    v &= rank == RankInV(stage, ranks);
  }
  return loop ? Style::kLoop : v ? Style::kV : Style::kNeither;
}

std::string StyleLine(Style style) {
  switch (style) {
    case Style::kLoop:
      return "placement style: loop\n";
    case Style::kV:
      return "placement style: v\n";
    case Style::kNeither:
      break;
  }
  return "placement style: neither loop nor v; build the stages by the list above\n";
}

// torchtitan builds the stages by the name of a schedule that it is then told not to run.
std::string TorchtitanLine(Style style, int stages_per_rank) {
  constexpr std::string_view kFlag = "torchtitan: pipeline_parallel_schedule_csv=FILE with ";
  if (style == Style::kNeither) return "torchtitan: cannot, it places stages by loop or v only\n";
  if (style == Style::kV) {
    if (stages_per_rank != 2) return "torchtitan: cannot, its v has two stages on each rank\n";
    return fmt::format("{}pipeline_parallel_schedule=\"ZBVZeroBubble\"\n", kFlag);
  }
  if (stages_per_rank == 1) return fmt::format("{}pipeline_parallel_schedule=\"1F1B\"\n", kFlag);
  std::string line = fmt::format("{}pipeline_parallel_schedule=\"Interleaved1F1B\"", kFlag);
  if (stages_per_rank != 2) {
    line += fmt::format(
        ",\n    and pipeline_parallel_layers_per_stage so that {} stages are made "
        "for each rank",
        stages_per_rank);
  }
  return line + '\n';
}

bool Any(const Schedule& schedule, bool (*holds)(const Op&)) {
  const std::span<const Op> ops = schedule.all_ops();
  return std::any_of(ops.begin(), ops.end(), holds);
}

bool SomeRankHasOneStage(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    if (schedule.stages_of(rank).size() == 1) return true;
  }
  return false;
}

// Where PyTorch does other than one would think.
std::string Remarks(const Schedule& schedule) {
  std::string out;
  if (SomeRankHasOneStage(schedule)) {
    out += "note: older releases of PyTorch refuse a rank with a single stage in this class\n";
  }
  if (Any(schedule, [](const Op& op) { return op.overlaps_next; })) {
    out +=
        "note: an OVERLAP_F_B runs its two parts one after the other unless a function for it "
        "is given\n    to register_custom_function\n";
  }
  if (Any(schedule, [](const Op& op) { return op.stage == 0 && op.pass == Pass::kB; })) {
    out += "note: for stage 0 PyTorch does nothing in I and the whole backward in W\n";
  }
  return out;
}

// From here on the other side: what was written, read as PyTorch reads it.

// PyTorch's letters; values are bits of a set.
enum Letter : uint8_t { kF = 1, kI = 2, kW = 4, kB = 8 };

struct Action {
  int stage = 0;
  int micro_batch = 0;
  Letter letter = kF;
};

// One action, or the two of an F&B pair.
using Cell = std::vector<Action>;
using Rows = std::vector<std::vector<Cell>>;

std::string NameOf(const Action& a) {
  const char letter = a.letter == kF ? 'F' : a.letter == kI ? 'I' : a.letter == kW ? 'W' : 'B';
  return fmt::format("{}{}{}", a.stage, letter, a.micro_batch);
}

// Takes the text up to `separator`, and the separator, off the front of `text`.
std::string_view TakeUpTo(char separator, std::string_view& text) {
  const size_t end = text.find(separator);
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return taken;
}

bool TakeNumber(std::string_view& text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool ReadAction(std::string_view text, Cell& cell) {
  Action action;
  if (!TakeNumber(text, action.stage) || text.empty()) return false;
  switch (text.front()) {
    case 'F':
      action.letter = kF;
      break;
    case 'I':
      action.letter = kI;
      break;
    case 'W':
      action.letter = kW;
      break;
    case 'B':
      action.letter = kB;
      break;
    default:
      return false;
  }
  text.remove_prefix(1);
  if (!TakeNumber(text, action.micro_batch) || !text.empty()) return false;
  cell.push_back(action);
  return true;
}

bool ReadCell(std::string_view text, Cell& cell) {
  if (!text.starts_with('(')) return ReadAction(text, cell);
  text.remove_prefix(1);
  const std::string_view first = TakeUpTo(';', text);
  const std::string_view second = TakeUpTo(')', text);
  return text == "OVERLAP_F_B" && ReadAction(first, cell) && ReadAction(second, cell);
}

class Examination {
 public:
  Examination(int stages, int micro_batches)
      : stages_(stages),
        micro_batches_(micro_batches),
        rank_of_(static_cast<size_t>(stages), kNoRank),
        done_(static_cast<size_t>(stages) * static_cast<size_t>(micro_batches)) {}

  std::string Run(std::string_view csv) {
    Read(csv);
    if (objection_.empty()) CheckRows();
    if (objection_.empty()) CheckCounts();
    if (objection_.empty()) CheckProgress();
    return objection_;
  }

 private:
  static constexpr int kNoRank = -1;

  void Object(std::string what) {
    if (objection_.empty()) objection_ = std::move(what);
  }

  void Read(std::string_view csv) {
    while (!csv.empty() && objection_.empty()) {
      std::string_view line = TakeUpTo('\n', csv);
      const size_t rank = rows_.size();
      rows_.emplace_back();
      if (line.empty()) Object(fmt::format("rank {}: has no action", rank));
      while (!line.empty() && objection_.empty()) {
        const std::string_view text = TakeUpTo(',', line);
        rows_.back().emplace_back();
        if (!ReadCell(text, rows_.back().back())) {
          Object(fmt::format("rank {}: \"{}\" is not an action", rank, text));
        }
      }
    }
    if (rows_.empty()) Object("has no rows");
  }

  uint8_t& Done(int stage, int micro_batch) {
    return done_[static_cast<size_t>(stage) * static_cast<size_t>(micro_batches_) +
                 static_cast<size_t>(micro_batch)];
  }

  void CheckRows() {
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      for (const Cell& cell : rows_[rank]) {
        for (const Action& action : cell) {
          CheckAction(action, static_cast<int>(rank));
          if (!objection_.empty()) return;
        }
      }
    }
  }

  void CheckAction(const Action& a, int rank) {
    const std::string_view wrong = [&]() -> std::string_view {
      if (a.stage >= stages_) return "names a stage that is not there";
      if (a.micro_batch >= micro_batches_) return "names a micro-batch that is not there";
      int& held_by = rank_of_[static_cast<size_t>(a.stage)];
      if (held_by != kNoRank && held_by != rank) return "is of a stage that is on another rank too";
      held_by = rank;
      const uint8_t done = Done(a.stage, a.micro_batch);
      if ((done & a.letter) != 0) return "stands twice";
      if ((a.letter == kB || a.letter == kI) && (done & kF) == 0) return "before its F";
      if (a.letter == kW && (done & kI) == 0) return "before its I";
      if (a.letter == kF && a.stage == stages_ - 1 && a.micro_batch != next_loss_++) {
        return "is out of order: losses are kept in the order of execution";
      }
      return "";
    }();
    if (!wrong.empty()) return Object(fmt::format("rank {}: {} {}", rank, NameOf(a), wrong));
    uint8_t& done = Done(a.stage, a.micro_batch);
    done = static_cast<uint8_t>(done | a.letter);
  }

  void CheckCounts() {
    for (int stage = 0; stage < stages_; ++stage) {
      const auto count = [&](Letter letter) {
        int n = 0;
        for (int m = 0; m < micro_batches_; ++m) n += (Done(stage, m) & letter) != 0 ? 1 : 0;
        return n;
      };
      const int i = count(kI);
      if (count(kF) != micro_batches_ || count(kW) != i || count(kB) + i != micro_batches_) {
        Object(fmt::format("stage {}: {} F, {} B, {} I and {} W for {} micro-batches", stage,
                           count(kF), count(kB), i, count(kW), micro_batches_));
      }
    }
  }

  bool IsReady(const Action& a) {
    if (a.letter == kF) return a.stage == 0 || (Done(a.stage - 1, a.micro_batch) & kF) != 0;
    if (a.letter == kW || a.stage == stages_ - 1) return true;
    return (Done(a.stage + 1, a.micro_batch) & (kI | kB)) != 0;
  }

  // Rounds over the ranks. PyTorch takes one cell of a rank in each round; as nothing that is ready
  // ever stops being so, taking all that are ready ends in the same place.
  void CheckProgress() {
    std::fill(done_.begin(), done_.end(), uint8_t{0});
    std::vector<size_t> next(rows_.size(), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t rank = 0; rank < rows_.size(); ++rank) {
        const size_t before = next[rank];
        while (next[rank] < rows_[rank].size() && TryToRun(rows_[rank][next[rank]])) ++next[rank];
        progress |= next[rank] != before;
      }
    }
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      if (next[rank] == rows_[rank].size()) continue;
      Object(fmt::format("rank {}: {} is never ready", rank, NameOf(rows_[rank][next[rank]][0])));
    }
  }

  bool TryToRun(const Cell& cell) {
    if (!std::all_of(cell.begin(), cell.end(), [&](const Action& a) { return IsReady(a); })) {
      return false;
    }
    for (const Action& a : cell) {
      uint8_t& done = Done(a.stage, a.micro_batch);
      done = static_cast<uint8_t>(done | a.letter);
    }
    return true;
  }

  int stages_;
  int micro_batches_;
  Rows rows_;
  std::vector<int> rank_of_;
  std::vector<uint8_t> done_;  // by stage, then micro-batch: a set of letters
  int next_loss_ = 0;
  std::string objection_;
};

}  // namespace

std::string TorchObjection(std::string_view csv, int stages, int micro_batches) {
  return Examination(stages, micro_batches).Run(csv);
}

std::string ToTorchCsv(const Schedule& schedule) {
  RefuseStageOnTwoRanks(schedule);
  RefuseLossesOutOfOrder(schedule);
  std::string csv;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) AppendRow(csv, schedule.ops(rank));
  const std::string objection =
      TorchObjection(csv, schedule.num_stages(), schedule.num_micro_batches());
  SPIRITLEVEL_CHECK(objection.empty(),
                    ("PyTorch accepts the CSV that is written: " + objection).c_str());
  return csv;
}

bool NumberedSchedule::is_as_it_was() const { return std::is_sorted(order.begin(), order.end()); }

NumberedSchedule NumberedByLosses(const Schedule& schedule) {
  RefuseStageOnTwoRanks(schedule);
  const int last = schedule.num_stages() - 1;
  std::vector<int> order;
  std::vector<int> number(static_cast<size_t>(schedule.num_micro_batches()));
  for (const Op& op : schedule.ops(schedule.rank_of(last, 0))) {
    if (op.stage != last || op.pass != Pass::kF) continue;
    number[static_cast<size_t>(op.micro_batch)] = static_cast<int>(order.size());
    order.push_back(op.micro_batch);
  }
  Orders orders = schedule.ToOrders();
  for (std::vector<Op>& ops : orders) {
    for (Op& op : ops) op.micro_batch = number[static_cast<size_t>(op.micro_batch)];
  }
  return {Schedule(std::move(orders)), std::move(order)};
}

std::string DescribeTorchPlacement(const Schedule& schedule, TorchForm form) {
  RefuseStageOnTwoRanks(schedule);
  const int ranks = schedule.num_ranks();
  std::string out;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::span<const int> stages = schedule.stages_of(rank);
    out += fmt::format("rank {}: {} {}\n", rank, stages.size() == 1 ? "stage" : "stages",
                       fmt::join(stages, ", "));
  }
  const Style style = StyleOf(schedule);
  out += StyleLine(style);
  out += fmt::format(
      "PyTorch: schedule = _PipelineScheduleRuntime(stages, n_microbatches={}, loss_fn=...);\n"
      "    schedule._load_csv(FILE{})\n",
      schedule.num_micro_batches(),
      form == TorchForm::kComputeComms ? ", format=\"compute_comms\"" : "");
  out += form == TorchForm::kComputeComms
             ? "torchtitan: cannot, it loads files without sends and receives only\n"
             : TorchtitanLine(style, schedule.num_stages() / ranks);
  return out + Remarks(schedule);
}

}  // namespace spiritlevel
