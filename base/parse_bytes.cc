#include "base/parse_bytes.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "base/check.h"

namespace spiritlevel {
namespace {

std::string_view WithoutBlanks(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

struct Unit {
  std::string_view name;
  double bytes;
};

// 0 for what is no unit.
double BytesOf(std::string_view unit) {
  constexpr std::array<Unit, 11> kUnits = {{{"", 1},
                                            {"B", 1},
                                            {"KiB", 0x1p10},
                                            {"MiB", 0x1p20},
                                            {"GiB", 0x1p30},
                                            {"TiB", 0x1p40},
                                            {"kB", 1e3},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12}}};
  for (const Unit& known : kUnits) {
    if (known.name == unit) return known.bytes;
  }
  return 0;
}

constexpr const char* kSizesLookLike = "give bytes, or 60GiB, 1.5GB, 6e9";

}  // namespace

Bytes ParseBytes(std::string_view text) {
  const std::string_view all = WithoutBlanks(text);
  // Exact for every integer up to kMaxBytes, and so is its product with a unit.
  double number = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
  const std::string_view unit = WithoutBlanks(all.substr(static_cast<size_t>(end - all.data())));
  if (error != std::errc() || !std::isfinite(number)) {
    throw InputError(fmt::format("\"{}\" is no size", text), kSizesLookLike);
  }
  if (BytesOf(unit) == 0) {
    throw InputError(fmt::format("\"{}\": \"{}\" is no unit of memory", text, unit),
                     "there are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB");
  }
  const double bytes = std::floor(number * BytesOf(unit) + 0.5);
  if (bytes < 1 || bytes > static_cast<double>(kMaxBytes)) {
    throw InputError(fmt::format("\"{}\" is not between 1 byte and 2^50", text), kSizesLookLike);
  }
  return static_cast<Bytes>(bytes);
}

}  // namespace spiritlevel
