// Time and memory as integers: int64 nanoseconds and int64 bytes, everywhere.
//
// Integers, not double: two paths of equal length must compare equal, or event order (and with it
// every result) depends on rounding.
#pragma once

#include <cstdint>
#include <string>

namespace spiritlevel {

using TimeNs = int64_t;
using Bytes = int64_t;

// For products and sums that may pass 64 bits on the way to a result that does not.
__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

// a / b, halves rounded up (towards +infinity). b > 0.
constexpr int64_t DivideHalfUp(int64_t a, int64_t b) {
  const Int128 doubled = 2 * static_cast<Int128>(a) + b;
  const Int128 divisor = 2 * static_cast<Int128>(b);
  const Int128 floor = doubled >= 0 ? doubled / divisor : -((-doubled + divisor - 1) / divisor);
  return static_cast<int64_t>(floor);
}

// Microseconds, as people write them, to nanoseconds, halves rounded up. Throws InputError for
// NaN, infinities, negative values and anything above kMaxPassTime.
TimeNs NanosecondsFromMicroseconds(double microseconds);

// A pass longer than a day, or a rank with more than a pebibyte, is a typing error; the bounds
// also keep every sum of ours far from overflow.
inline constexpr TimeNs kMaxPassTime = 86'400'000'000'000;
inline constexpr Bytes kMaxBytes = Bytes{1} << 50;

// For people: "1.457 s", "601 us", "0 ns"; four significant digits.
std::string FormatTime(TimeNs t);
// "15 KiB", "1.5 GiB"; binary units only, so GB and GiB are never mixed.
std::string FormatBytes(Bytes b);

}  // namespace spiritlevel
