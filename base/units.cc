#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "base/check.h"

namespace spiritlevel {
namespace {

struct Unit {
  const char* name;
  double size;  // in units of the one before
};

// Four significant digits, in the largest unit that leaves at least 1 before the point once they
// are rounded: "1 ms" for 999'999 ns, not "1000 us". `carry` is the value that rounds up to one of
// the next unit. Never an exponent, however large the value.
std::string FourDigits(double value, std::span<const Unit> units, double carry) {
  size_t unit = 0;
  while (unit + 1 < units.size() && std::abs(value) >= (unit == 0 ? units[1].size : carry)) {
    ++unit;
    value /= units[unit].size;
  }
  // From 1000 on, four digits are no more than the integer.
  if (std::abs(value) >= 999.95) return fmt::format("{:.0f} {}", value, units[unit].name);
  return fmt::format("{:.4g} {}", value, units[unit].name);
}

}  // namespace

TimeNs NanosecondsFromMicroseconds(double microseconds) {
  if (!std::isfinite(microseconds)) {
    throw InputError("is not a finite number", "give a time in microseconds, 0 or more");
  }
  if (microseconds < 0) {
    throw InputError(fmt::format("{} is negative", microseconds),
                     "give a time in microseconds, 0 or more");
  }
  const double nanoseconds = microseconds * 1e3;
  if (nanoseconds > static_cast<double>(kMaxPassTime)) {
    throw InputError(fmt::format("{} us is longer than a day", microseconds),
                     "times are in microseconds: 18.5 ms is 18500");
  }
  // Half up on the decimal the user wrote: 0.0005 us is 0.5 ns in decimal but may be a hair less
  // in binary, which the next representable value makes good.
  return static_cast<TimeNs>(
      std::floor(std::nextafter(nanoseconds, std::numeric_limits<double>::infinity()) + 0.5));
}

std::string FormatTime(TimeNs t) {
  constexpr std::array<Unit, 4> kUnits = {{{"ns", 1}, {"us", 1e3}, {"ms", 1e3}, {"s", 1e3}}};
  return FourDigits(static_cast<double>(t), kUnits, 999.95);
}

std::string FormatBytes(Bytes b) {
  constexpr std::array<Unit, 5> kUnits = {
      {{"B", 1}, {"KiB", 1024}, {"MiB", 1024}, {"GiB", 1024}, {"TiB", 1024}}};
  return FourDigits(static_cast<double>(b), kUnits, 1023.5);
}

}  // namespace spiritlevel
