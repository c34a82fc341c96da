#include "scenarios/place.h"

#include <fmt/format.h>

#include "base/check.h"

namespace spiritlevel {

std::string Place::Path() const {
  if (outer_ == nullptr) return "";
  std::string path = outer_->Path();
  if (!path.empty()) path += '.';
  path += field_;
  if (index_ >= 0) path += fmt::format("[{}]", index_);
  return path;
}

std::string Judge::Where(const Place& place) const {
  int line = 0;
  for (const Place* at = &place; line == 0 && at->outer() != nullptr; at = at->outer()) {
    line = LineOf(source_, root_, at->Path());
  }
  const std::string path = place.Path();
  return path.empty() ? source_.At(line) : fmt::format("{}: {}", source_.At(line), path);
}

void Judge::Refuse(const Place& place, std::string_view what, std::string_view way_out) const {
  throw InputError(fmt::format("{}: {}", Where(place), what), std::string(way_out));
}

void Judge::RefuseMissing(const Place& place, std::string_view example) const {
  Refuse(place, "is missing", fmt::format("add it, for example {}", example));
}

void Judge::Warn(const Place& place, std::string_view what) {
  warnings_.push_back(fmt::format("{}: {}", Where(place), what));
}

TimeNs Judge::Time(const Place& place, double microseconds) const {
  try {
    return NanosecondsFromMicroseconds(microseconds);
  } catch (const InputError& error) {
    throw error.At(Where(place));
  }
}

Bytes Judge::Size(const Place& place, int64_t bytes) const {
  if (bytes < 0) Refuse(place, fmt::format("{} is negative", bytes), "give bytes, 0 or more");
  if (bytes > kMaxBytes) {
    Refuse(place, fmt::format("{} is more than a pebibyte", bytes),
           fmt::format("give bytes, at most {}", kMaxBytes));
  }
  return bytes;
}

int Judge::Count(const Place& place, int64_t count, int most, std::string_view way_out) const {
  if (count < 1) {
    Refuse(place, fmt::format("{} is {}", count, count == 0 ? "zero" : "negative"), way_out);
  }
  if (count > most) Refuse(place, fmt::format("{} is more than {}", count, most), way_out);
  return static_cast<int>(count);
}

}  // namespace spiritlevel
