#include "report/grid.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

size_t Sum(const std::vector<size_t>& widths, size_t first, size_t end, size_t gap) {
  const auto from = widths.begin() + static_cast<std::ptrdiff_t>(first);
  const auto to = widths.begin() + static_cast<std::ptrdiff_t>(end);
  return std::accumulate(from, to, size_t{0}) + gap * (end - first - 1);
}

// "-- stalls, % --": a group that spans columns shows how far it goes.
std::string Spanning(std::string_view group, size_t width) {
  if (width < group.size() + 4) return PadLeft(group, width);
  const size_t dashes = width - group.size() - 2;
  return std::string(dashes / 2, '-') + " " + std::string(group) + " " +
         std::string(dashes - dashes / 2, '-');
}

void EndLine(std::string& out) {
  while (!out.empty() && out.back() == ' ') out.pop_back();
  out += '\n';
}

}  // namespace

void Grid::Add(Column column) {
  SPIRITLEVEL_CHECK(columns_.empty() || columns_.front().cells.size() == column.cells.size(),
                    "all columns of a grid have the same rows");
  columns_.push_back(std::move(column));
}

void Grid::ReplaceRow(size_t row, std::string text) { replaced_[row] = std::move(text); }

size_t Grid::EndOfGroup(size_t first) const {
  size_t end = first + 1;
  if (columns_[first].group.empty()) return end;
  while (end < columns_.size() && columns_[end].group == columns_[first].group) ++end;
  return end;
}

std::vector<size_t> Grid::Widths(size_t gap) const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) {
    size_t width = column.name.size();
    for (const std::string& cell : column.cells) width = std::max(width, cell.size());
    widths.push_back(width);
  }
  for (size_t first = 0; first < columns_.size(); first = EndOfGroup(first)) {
    const size_t end = EndOfGroup(first);
    const size_t have = Sum(widths, first, end, gap);
    const size_t need = columns_[first].group.size();
    if (need > have) widths[first] += need - have;
  }
  return widths;
}

std::string Grid::ToString() const {
  size_t gap = 2;
  std::vector<size_t> widths = Widths(gap);
  if (Sum(widths, 0, widths.size(), gap) > kTerminalColumns) widths = Widths(gap = 1);
  const std::string space(gap, ' ');
  std::string out;
  for (size_t first = 0; first < columns_.size(); first = EndOfGroup(first)) {
    const size_t end = EndOfGroup(first);
    const size_t width = Sum(widths, first, end, gap);
    const std::string& group = columns_[first].group;
    if (first > 0) out += space;
    out += end - first > 1 ? Spanning(group, width) : PadLeft(group, width);
  }
  EndLine(out);
  if (out == "\n") out.clear();  // no column has a group
  const auto add_line = [&](auto text_of) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) out += space;
      const std::string& text = text_of(columns_[i]);
      out += columns_[i].left ? PadRight(text, widths[i]) : PadLeft(text, widths[i]);
    }
    EndLine(out);
  };
  add_line([](const Column& c) -> const std::string& { return c.name; });
  for (size_t row = 0; row < columns_.front().cells.size(); ++row) {
    const auto replaced = replaced_.find(row);
    if (replaced == replaced_.end()) {
      add_line([row](const Column& c) -> const std::string& { return c.cells[row]; });
      continue;
    }
    out += PadRight(columns_.front().cells[row], widths[0]) + space +
           Wrap(replaced->second, widths[0] + gap);
    EndLine(out);
  }
  return out;
}

}  // namespace spiritlevel
