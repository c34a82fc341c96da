// Grid: columns of text under headers of two lines, no wider than the terminal where that can be.
//
//   Grid grid;
//   grid.Add({.name = "schedule", .left = true, .cells = {"1f1b", "zb-v"}});
//   grid.Add({.group = "step", .name = "ms", .cells = {"69.00", ""}});
//   grid.ReplaceRow(1, "needs ...");  // instead of all but the first column
//   grid.ToString();
//
// Neighbouring columns of one `group` share it as their upper header.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace spiritlevel {

class Grid {
 public:
  struct Column {
    std::string group{};
    std::string name{};
    bool left = false;  // text; numbers stand to the right
    std::vector<std::string> cells{};
  };

  void Add(Column column);
  // `text` is wrapped.
  void ReplaceRow(size_t row, std::string text);
  std::string ToString() const;

 private:
  std::vector<size_t> Widths(size_t gap) const;
  size_t EndOfGroup(size_t first) const;

  std::vector<Column> columns_;
  std::map<size_t, std::string> replaced_;
};

}  // namespace spiritlevel
