#include "scenarios/torch_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/file.h"

namespace spiritlevel {
namespace {

// 256 ranks with 2048 split micro-batches each are 14 MB.
constexpr size_t kMaxFileBytes = size_t{32} << 20;
constexpr int kMaxStages = 65535;        // stages fit in 16 bits
constexpr int kMaxRows = 65534;          // ranks too, with one value to spare
constexpr int kMaxMicroBatch = 1 << 30;  // far from where counting on would overflow

constexpr const char* kActionGrammar =
    "an action is written 2F0: stage, one of F, I, W, B, micro-batch; an F&B pair "
    "(0F7;7B3)OVERLAP_F_B";

// The letters of the file, before it is known what they mean.
enum class Letter : uint8_t { kF, kI, kW, kB, kBW };

struct Action {
  int32_t micro_batch = 0;
  uint16_t stage = 0;
  Letter letter = Letter::kF;
  bool overlaps_next = false;
};

// Where a cell stands; both counted from 1. A row is a line, since no line between rows is blank.
struct CellPlace {
  int row = 0;
  int column = 0;
};

// What a file says, and where it first said what tells its dialect.
struct Cells {
  std::vector<std::vector<Action>> rows;
  std::optional<CellPlace> input_grad;   // I
  std::optional<CellPlace> pair;         // OVERLAP_F_B
  std::optional<CellPlace> reduce_grad;  // REDUCE_GRAD
  std::optional<CellPlace> fused;        // BW
  bool had_communication = false;
  bool had_blanks = false;
  bool had_blank_lines_at_end = false;
};

struct Token {
  std::string_view name;
  std::optional<Letter> letter;  // none: communication
  bool has_micro_batch = true;
};

// No name may stand behind one that it starts with.
constexpr std::array<Token, 12> kTokens = {{
    {"F", Letter::kF, true},
    {"I", Letter::kI, true},
    {"W", Letter::kW, true},
    {"BW", Letter::kBW, true},
    {"B", Letter::kB, true},
    {"SEND_F", std::nullopt, true},
    {"RECV_F", std::nullopt, true},
    {"SEND_B", std::nullopt, true},
    {"RECV_B", std::nullopt, true},
    {"UNSHARD", std::nullopt, false},
    {"RESHARD", std::nullopt, false},
    {"REDUCE_GRAD", std::nullopt, false},
}};

std::string_view Trimmed(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Between quotes, cut short, and with nothing in it that a terminal would obey.
std::string Quoted(std::string_view text) {
  constexpr size_t kLongest = 40;
  std::string out = "\"";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out + (text.size() > kLongest ? "...\"" : "\"");
}

// Reads one cell from the left.
class CellReader {
 public:
  CellReader(std::string_view cell, CellPlace place, std::string_view file, Cells& cells)
      : cell_(cell), rest_(cell), place_(place), file_(file), cells_(cells) {}

  void Read(std::vector<Action>& row) {
    if (rest_.front() == '(') {
      ReadPair(row);
    } else if (const std::optional<Action> action = ReadAction()) {
      Mark(*action);
      row.push_back(*action);
    }
    if (rest_.empty()) return;
    Fail(fmt::format("{} follows the action", Quoted(rest_)),
         "PyTorch would ignore it without a word; take it out, or put a comma between two actions");
  }

 private:
  void ReadPair(std::vector<Action>& row) {
    if (!cells_.pair) cells_.pair = place_;
    rest_.remove_prefix(1);
    Action first = ReadHalf();
    if (!Take(';')) FailPair("a pair needs two actions with ';' between them");
    const Action second = ReadHalf();
    if (!Take(')')) FailPair("after its two actions a pair needs ')'");
    if (first.letter == second.letter) FailPair("it is not a forward and a backward");
    constexpr std::string_view kName = "OVERLAP_F_B";
    if (!rest_.starts_with(kName)) FailPair("it does not end in )OVERLAP_F_B");
    rest_.remove_prefix(kName.size());
    first.overlaps_next = true;
    row.push_back(first);
    row.push_back(second);
  }

  Action ReadHalf() {
    rest_ = Trimmed(rest_);
    const std::optional<Action> action = ReadAction();
    if (!action || (action->letter != Letter::kF && action->letter != Letter::kB)) {
      FailPair("it may hold only F and B");
    }
    rest_ = Trimmed(rest_);
    return *action;
  }

  // None for communication, which is noted and passed over.
  std::optional<Action> ReadAction() {
    Action action{.stage = static_cast<uint16_t>(ReadNumber("stage", kMaxStages - 1))};
    const Token& token = ReadToken();
    if (token.has_micro_batch) action.micro_batch = ReadNumber("micro-batch", kMaxMicroBatch);
    if (token.letter) {
      action.letter = *token.letter;
      return action;
    }
    cells_.had_communication = true;
    if (token.name == "REDUCE_GRAD" && !cells_.reduce_grad) cells_.reduce_grad = place_;
    return std::nullopt;
  }

  int ReadNumber(std::string_view what, int largest) {
    if (rest_.empty() || !IsDigit(rest_.front())) {
      Fail(fmt::format("the {} number is missing", what), kActionGrammar);
    }
    int value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{} || value > largest) {
      Fail(fmt::format("the {} number is too large", what),
           fmt::format("the largest that can be read is {}", largest));
    }
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }

  const Token& ReadToken() {
    for (const Token& token : kTokens) {
      if (!rest_.starts_with(token.name)) continue;
      rest_.remove_prefix(token.name.size());
      return token;
    }
    Fail(rest_.empty() ? "the letter after the stage is missing"
                       : fmt::format("{} is not an action that PyTorch knows", Quoted(rest_)),
         kActionGrammar);
  }

  bool Take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void Mark(const Action& action) {
    if (action.letter == Letter::kI && !cells_.input_grad) cells_.input_grad = place_;
    if (action.letter == Letter::kBW && !cells_.fused) cells_.fused = place_;
  }

  [[noreturn]] void FailPair(std::string_view what) const {
    Fail(what, "a pair is written (0F7;7B3)OVERLAP_F_B: one F and one B, in either order");
  }

  [[noreturn]] void Fail(std::string_view what, std::string_view way_out) const {
    throw InputError(fmt::format("{}:{}: cell {}: {}: {}", file_, place_.row, place_.column,
                                 Quoted(cell_), what),
                     std::string(way_out));
  }

  std::string_view cell_;
  std::string_view rest_;
  CellPlace place_;
  std::string_view file_;
  Cells& cells_;
};

// Splits a file into rows and cells.
class FileReader {
 public:
  FileReader(std::string_view text, std::string_view file) : rest_(text), file_(file) {}

  Cells Read() {
    while (!rest_.empty()) {
      const std::string_view line = NextLine();
      if (Trimmed(line).empty()) {
        RefuseBlankLineBetweenRows();
        cells_.had_blank_lines_at_end = true;
        break;
      }
      if (++row_ > kMaxRows) {
        throw InputError(fmt::format("{}: has more than {} rows", file_, kMaxRows),
                         "each row is one pipeline rank");
      }
      cells_.rows.emplace_back();
      ReadRow(line);
    }
    return std::move(cells_);
  }

 private:
  std::string_view NextLine() {
    const size_t end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  void RefuseBlankLineBetweenRows() const {
    if (rest_.find_first_not_of(" \t\r\n") == std::string_view::npos) return;
    throw InputError(fmt::format("{}:{}: is blank", file_, row_ + 1),
                     "PyTorch counts a blank line as a rank without work; take it out");
  }

  void ReadRow(std::string_view line) {
    bool any = false;
    for (int column = 1;; ++column) {
      const size_t comma = line.find(',');
      any |= ReadCell(line.substr(0, comma), {.row = row_, .column = column});
      if (comma == std::string_view::npos) break;
      line.remove_prefix(comma + 1);
    }
    if (any) return;
    throw InputError(fmt::format("{}:{}: all cells are empty", file_, row_),
                     "each row is one pipeline rank, and each rank needs something to do");
  }

  // False if it is empty.
  bool ReadCell(std::string_view cell, CellPlace place) {
    cell = Trimmed(Unquoted(cell, place));
    if (cell.empty()) {
      cells_.had_blanks = true;
      return false;
    }
    CellReader(cell, place, file_, cells_).Read(cells_.rows.back());
    return true;
  }

  // Python's writer puts quotes round a lone empty cell, spreadsheets put them round anything.
  std::string_view Unquoted(std::string_view cell, CellPlace place) const {
    if (!cell.starts_with('"')) return cell;
    if (cell.size() >= 2 && cell.ends_with('"')) return cell.substr(1, cell.size() - 2);
    throw InputError(fmt::format("{}:{}: cell {}: {}: the quotes do not close within the cell",
                                 file_, place.row, place.column, Quoted(cell)),
                     "actions need no quotes; take them out");
  }

  std::string_view rest_;
  std::string_view file_;
  int row_ = 0;
  Cells cells_;
};

// The (stage, micro-batch)s of all W, sorted.
class WeightGrads {
 public:
  explicit WeightGrads(const Cells& cells) {
    for (const std::vector<Action>& row : cells.rows) {
      for (const Action& action : row) {
        if (action.letter == Letter::kW) keys_.push_back(KeyOf(action));
      }
    }
    std::sort(keys_.begin(), keys_.end());
  }

  bool Has(const Action& same_cell) const {
    return std::binary_search(keys_.begin(), keys_.end(), KeyOf(same_cell));
  }

 private:
  static int64_t KeyOf(const Action& action) {
    return (int64_t{action.stage} << 32) | action.micro_batch;
  }

  std::vector<int64_t> keys_;
};

void RefuseMixedDialects(const Cells& cells, std::string_view file) {
  if (!cells.fused) return;
  const auto refuse = [&](const CellPlace& current, std::string_view name) {
    throw InputError(
        fmt::format("{}: mixes two dialects: BW in row {}, cell {}; {} in row {}, cell {}", file,
                    cells.fused->row, cells.fused->column, name, current.row, current.column),
        "write the full backward as B and the input gradient as I throughout; BW is of 2024, and "
        "today's PyTorch misreads it");
  };
  if (cells.input_grad) refuse(*cells.input_grad, "I");
  if (cells.pair) refuse(*cells.pair, "OVERLAP_F_B");
  if (cells.reduce_grad) refuse(*cells.reduce_grad, "REDUCE_GRAD");
}

CsvDialect DialectOf(const Cells& cells, const WeightGrads& weight_grads) {
  if (cells.fused) return CsvDialect::kOf2024;
  if (cells.input_grad || cells.pair || cells.reduce_grad) return CsvDialect::kCurrent;
  for (const std::vector<Action>& row : cells.rows) {
    for (const Action& action : row) {
      if (action.letter == Letter::kB && weight_grads.Has(action)) return CsvDialect::kOf2024;
    }
  }
  return CsvDialect::kCurrent;
}

// What the letters of one file mean.
class Meaning {
 public:
  explicit Meaning(const Cells& cells)
      : weight_grads_(cells), dialect_(DialectOf(cells, weight_grads_)), has_bw_(cells.fused) {}

  CsvDialect dialect() const { return dialect_; }
  bool completed_a_backward() const { return completed_a_backward_; }

  Pass Of(const Action& action) {
    switch (action.letter) {
      case Letter::kF:
        return Pass::kF;
      case Letter::kI:
        return Pass::kB;
      case Letter::kW:
        return Pass::kW;
      case Letter::kBW:
        return Pass::kBW;
      case Letter::kB:
        break;
    }
    if (dialect_ == CsvDialect::kCurrent) return Pass::kBW;
    // A file that can say BW means the input gradient when it says B: then a missing W is a
    // mistake, which must not be healed in silence.
    if (has_bw_ || weight_grads_.Has(action)) return Pass::kB;
    completed_a_backward_ = true;
    return Pass::kBW;
  }

 private:
  WeightGrads weight_grads_;
  CsvDialect dialect_;
  bool has_bw_;
  bool completed_a_backward_ = false;
};

// Frees the rows as it goes, so that a large file is not held twice.
Orders OrdersFrom(std::vector<std::vector<Action>> rows, Meaning& meaning) {
  Orders orders;
  orders.reserve(rows.size());
  for (std::vector<Action>& row : rows) {
    std::vector<Op>& ops = orders.emplace_back();
    ops.reserve(row.size());
    for (const Action& action : row) {
      ops.push_back({.micro_batch = action.micro_batch,
                     .stage = action.stage,
                     .pass = meaning.Of(action),
                     .overlaps_next = action.overlaps_next});
    }
    row = {};
  }
  return orders;
}

std::vector<std::string> NotesOn(const CsvSchedule& csv, const Meaning& meaning) {
  std::vector<std::string> notes;
  if (csv.dialect == CsvDialect::kOf2024) {
    notes.emplace_back(
        "read in the dialect of 2024: B is the input gradient, BW the full backward; today's "
        "PyTorch would read B as the full backward");
  }
  if (meaning.completed_a_backward()) {
    notes.emplace_back("a B without a W of its stage and micro-batch is read as a full backward");
  }
  if (csv.had_communication) {
    notes.emplace_back("communication cells left out: the messages are derived from the order");
  }
  return notes;
}

void RefuseWhatIsNotText(std::string_view text, std::string_view file) {
  constexpr const char* kWayOut =
      "a schedule is a CSV as PyTorch writes it: one row for each rank, cells such as 0F0";
  if (text.size() > kMaxFileBytes) {
    throw InputError(fmt::format("{}: has {} bytes; more than {} is not a schedule", file,
                                 text.size(), kMaxFileBytes),
                     kWayOut);
  }
  const auto odd = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t' && c != '\r' && c != '\n') || byte >= 0x7f;
  };
  const auto found = std::find_if(text.begin(), text.end(), odd);
  if (found != text.end()) {
    const auto line = 1 + std::count(text.begin(), found, '\n');
    throw InputError(fmt::format("{}:{}: the byte 0x{:02x} is in no action", file, line,
                                 static_cast<unsigned char>(*found)),
                     kWayOut);
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InputError(fmt::format("{}: is empty", file), kWayOut);
  }
}

// True if there was one.
bool TakeByteOrderMark(std::string_view& text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (!text.starts_with(kMark)) return false;
  text.remove_prefix(kMark.size());
  return true;
}

}  // namespace

std::string_view Name(CsvDialect dialect) {
  return dialect == CsvDialect::kCurrent ? "current" : "of 2024";
}

CsvSchedule ParseTorchCsv(std::string_view text, std::string_view name_for_errors) {
  const bool had_mark = TakeByteOrderMark(text);
  RefuseWhatIsNotText(text, name_for_errors);
  Cells cells = FileReader(text, name_for_errors).Read();
  RefuseMixedDialects(cells, name_for_errors);

  Meaning meaning(cells);
  CsvSchedule csv{.orders = OrdersFrom(std::move(cells.rows), meaning),
                  .dialect = meaning.dialect(),
                  .had_communication = cells.had_communication,
                  .had_blanks = cells.had_blanks,
                  .notes = {}};
  csv.notes = NotesOn(csv, meaning);
  if (had_mark) {
    csv.notes.emplace_back(
        "left out the byte order mark before the first cell; PyTorch would not read such a file");
  }
  if (cells.had_blank_lines_at_end) {
    csv.notes.emplace_back("left out blank lines at the end; PyTorch would count them as ranks");
  }
  return csv;
}

CsvSchedule LoadTorchCsv(const std::filesystem::path& path) {
  return ParseTorchCsv(ReadFile(path, kMaxFileBytes), path.string());
}

}  // namespace spiritlevel
