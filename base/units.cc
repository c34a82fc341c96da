#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace spiritlevel {

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
  struct Unit {
    double ns;
    const char* name;
  };
  constexpr std::array<Unit, 3> kUnits = {{{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}}};
  const double magnitude = std::abs(static_cast<double>(t));
  for (const Unit& unit : kUnits) {
    if (magnitude >= unit.ns) return fmt::format("{:.4g} {}", static_cast<double>(t) / unit.ns, unit.name);
  }
  return fmt::format("{} ns", t);
}

std::string FormatBytes(Bytes b) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(b);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", b);
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

}  // namespace spiritlevel
