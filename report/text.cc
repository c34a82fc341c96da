#include "report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace spiritlevel {
namespace {

constexpr Bytes kExactBelow = 100 * 1024;

struct Unit {
  const char* name;
  double size;
};
constexpr std::array<Unit, 4> kTimeUnits = {{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
constexpr std::array<Unit, 4> kMemoryUnits = {
    {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}}};

const Unit& LargestBelow(const auto& units, double value) {
  size_t i = 0;
  while (i + 1 < units.size() && value >= units[i + 1].size) ++i;
  return units[i];
}

// One line of input, which may become several.
void WrapLine(std::string_view line, size_t indent, size_t width, std::string& out) {
  size_t column = indent;
  bool first_word = true;
  while (!line.empty()) {
    const size_t skip = std::min(line.find_first_not_of(' '), line.size());
    const std::string_view gap = line.substr(0, skip);
    line.remove_prefix(skip);
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
    if (word.empty()) return;
    if (!first_word && column + gap.size() + word.size() > width) {
      out += '\n';
      out.append(indent, ' ');
      column = indent;
    } else {
      out += gap;
      column += gap.size();
    }
    out += word;
    column += word.size();
    first_word = false;
  }
}

}  // namespace

std::string Wrap(std::string_view text, size_t indent, size_t width) {
  std::string out;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    WrapLine(text.substr(0, end), indent, width, out);
    if (end == text.size()) return out;
    out += '\n';
    out.append(indent, ' ');
    text.remove_prefix(end + 1);
  }
}

std::string OneParagraph(std::string_view reason) {
  while (!reason.empty() && (reason.back() == '\n' || reason.back() == ' '))
    reason.remove_suffix(1);
  if (std::count(reason.begin(), reason.end(), '\n') != 1) return std::string(reason);
  const size_t end = reason.find('\n');
  const std::string_view way_out = reason.substr(end + 1);
  const size_t skip = std::min(way_out.find_first_not_of(' '), way_out.size());
  return fmt::format("{}; {}", reason.substr(0, end), way_out.substr(skip));
}

std::string PadLeft(std::string_view text, size_t width) {
  return fmt::format("{:>{}}", text, width);
}
std::string PadRight(std::string_view text, size_t width) {
  return fmt::format("{:<{}}", text, width);
}

std::string PercentNumber(double share) {
  const std::string text = fmt::format("{:.1f}", 100 * share);
  return text == "-0.0" ? "0.0" : text;
}
std::string Percent(double share) { return PercentNumber(share) + " %"; }

std::string Times(double factor) { return fmt::format("{:.2f}x", factor); }

std::string FormatMemory(Bytes bytes) {
  if (std::abs(bytes) < kExactBelow) return fmt::format("{} B", bytes);
  return FormatBytes(bytes);
}

Scale::Scale(std::string unit, double size, double largest) : unit_(std::move(unit)), size_(size) {
  if (size == 1) return;  // counted, not measured: no decimals
  const double value = std::max(largest / size, 1.0);
  decimals_ = std::max(0, 3 - static_cast<int>(std::floor(std::log10(value))));
}

Scale Scale::ForTimes(TimeNs largest) {
  const double value = static_cast<double>(largest);
  const Unit& unit = LargestBelow(kTimeUnits, value);
  return Scale(unit.name, unit.size, value);
}

Scale Scale::ForMemory(Bytes largest) {
  const double value = static_cast<double>(largest);
  if (largest < kExactBelow) return Scale("B", 1, value);
  const Unit& unit = LargestBelow(kMemoryUnits, value);
  return Scale(unit.name, unit.size, value);
}

std::string Scale::Number(int64_t value) const {
  return fmt::format("{:.{}f}", static_cast<double>(value) / size_, decimals_);
}

}  // namespace spiritlevel
