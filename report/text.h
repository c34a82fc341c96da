// Small help for everything that is read in a terminal: wrapping, percentages, columns of numbers
// in one unit.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace spiritlevel {

inline constexpr size_t kTerminalColumns = 100;

// `text` broken at spaces, every line but the first indented by `indent`; the first is taken to
// start at `indent` too. Line breaks of the text stay. No line break at the end.
std::string Wrap(std::string_view text, size_t indent, size_t width = kTerminalColumns);

// What an InputError says, in one paragraph: its way out follows after a semicolon. Text of more
// lines than that is a picture (a deadlock) and stays as it is.
std::string OneParagraph(std::string_view reason);

std::string PadLeft(std::string_view text, size_t width);
std::string PadRight(std::string_view text, size_t width);

// "31.1 %" for 0.3108; "31.1" without the sign.
std::string Percent(double share);
std::string PercentNumber(double share);

// "1.32x"
std::string Times(double factor);

// Like FormatBytes(), but small numbers stay exact: who types 16000 as a limit counts activations,
// and "15.62 KiB" would be a riddle. Binary units only.
std::string FormatMemory(Bytes bytes);

// One unit and one number of decimals for a whole column, so that its numbers can be compared at a
// glance. Four significant digits of the largest.
class Scale {
 public:
  static Scale ForTimes(TimeNs largest);
  static Scale ForMemory(Bytes largest);

  const std::string& unit() const { return unit_; }
  std::string Number(int64_t value) const;  // without the unit

 private:
  Scale(std::string unit, double size, double largest);

  std::string unit_;
  double size_ = 1;
  int decimals_ = 0;
};

}  // namespace spiritlevel
