// Where in a file a number stands, and the numbers checked with that place at hand.
// Internal to scenarios/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "scenarios/source.h"

namespace spiritlevel {

// A field by the way that leads to it. Lives on the stack beside the code that reads the field; a
// path is written only when there is something to say about it.
class Place {
 public:
  Place() = default;  // the whole file
  Place(const Place& outer, std::string_view field, int index = -1)
      : outer_(&outer), field_(field), index_(index) {}

  std::string Path() const;  // "costs.table.row[2].forward_us"
  const Place* outer() const { return outer_; }

 private:
  const Place* outer_ = nullptr;
  std::string_view field_;
  int index_ = -1;
};

// Checks numbers and words complaints: "FILE:LINE: FIELD: what".
class Judge {
 public:
  Judge(const Source& source, const google::protobuf::Descriptor* root)
      : source_(source), root_(root) {}

  [[noreturn]] void Refuse(const Place& place, std::string_view what,
                           std::string_view way_out) const;
  // `example` is a line that would do.
  [[noreturn]] void RefuseMissing(const Place& place, std::string_view example) const;
  void Warn(const Place& place, std::string_view what);

  TimeNs Time(const Place& place, double microseconds) const;
  Bytes Size(const Place& place, int64_t bytes) const;
  int Count(const Place& place, int64_t count, int most, std::string_view way_out) const;

  // "FILE:LINE: FIELD" of the field, or of what encloses it where it does not stand in the file.
  std::string Where(const Place& place) const;

  std::vector<std::string> TakeWarnings() { return std::move(warnings_); }

 private:
  const Source& source_;
  const google::protobuf::Descriptor* root_;
  std::vector<std::string> warnings_;
};

}  // namespace spiritlevel
