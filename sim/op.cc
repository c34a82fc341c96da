#include "sim/op.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/check.h"

namespace spiritlevel {
namespace {

constexpr std::array<std::string_view, kNumPasses> kNames = {"F", "B", "W", "BW"};

constexpr bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Reads the text of one rank's ops from the left.
class RowReader {
 public:
  RowReader(std::string_view text, int line) : text_(text), line_(line) {}

  std::vector<Op> Read() {
    std::vector<Op> ops;
    for (SkipBlanks(); !text_.empty(); SkipBlanks()) {
      if (Take('(')) {
        ops.push_back(ReadOp());
        ops.back().overlaps_next = true;
        if (!Take(';')) Fail("';' between the two ops of an F&B pair");
        ops.push_back(ReadOp());
        if (!Take(')')) Fail("')' after an F&B pair");
      } else {
        ops.push_back(ReadOp());
      }
    }
    return ops;
  }

 private:
  void SkipBlanks() {
    while (!text_.empty() && IsBlank(text_.front())) text_.remove_prefix(1);
  }

  bool Take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  Op ReadOp() {
    const auto stage = ReadNumber<uint16_t>("a stage number");
    const Pass pass = ReadPass();
    return {
        .micro_batch = ReadNumber<int32_t>("a micro-batch number"), .stage = stage, .pass = pass};
  }

  template <class T>
  T ReadNumber(std::string_view expected) {
    T value{};
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc{} || text_.front() == '-') Fail(expected);
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return value;
  }

  Pass ReadPass() {
    for (const Pass pass : {Pass::kBW, Pass::kF, Pass::kB, Pass::kW}) {  // BW before B
      const std::string_view name = Name(pass);
      if (!text_.starts_with(name)) continue;
      text_.remove_prefix(name.size());
      return pass;
    }
    Fail("one of F, B, W, BW");
  }

  [[noreturn]] void Fail(std::string_view expected) const {
    throw InputError(
        fmt::format("line {}: expected {} at \"{}\"", line_, expected, text_.substr(0, 16)),
        "an op is written 2F0: stage, pass, micro-batch");
  }

  std::string_view text_;
  int line_;
};

}  // namespace

std::string_view Name(Pass pass) { return kNames[static_cast<size_t>(pass)]; }

std::string ToString(const Op& op) {
  return fmt::format("{}{}{}", op.stage, Name(op.pass), op.micro_batch);
}

std::string ToString(const Orders& orders) {
  std::string out;
  for (const std::vector<Op>& ops : orders) {
    for (size_t i = 0; i < ops.size(); ++i) {
      if (i > 0) out += ' ';
      if (ops[i].overlaps_next && i + 1 < ops.size()) {
        out += fmt::format("({};{})", ToString(ops[i]), ToString(ops[i + 1]));
        ++i;
      } else {
        out += ToString(ops[i]);
      }
    }
    out += '\n';
  }
  return out;
}

Orders ParseOrders(std::string_view text) {
  Orders orders;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    orders.push_back(RowReader(text.substr(0, end), static_cast<int>(orders.size()) + 1).Read());
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return orders;
}

}  // namespace spiritlevel
