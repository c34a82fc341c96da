// Reads a Perfetto trace as its trace processor does, and as strictly as its documentation allows:
// packets in the order of the file, each with the state of its sequence; events in the order of
// time, those of one time in the order of the file.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"

namespace spiritlevel {

struct TrackRead {
  std::string name{};
  uint64_t parent = 0;
  bool is_process = false;
  bool is_counter = false;
  bool counts_bytes = false;
  int64_t multiplier = 1;
  std::string share_key{};
};

struct SliceRead {
  std::string name{};
  TimeNs start = 0;
  TimeNs end = 0;   // of an instant its start
  Bytes bytes = 0;  // beside it

  friend bool operator==(const SliceRead&, const SliceRead&) = default;
  friend void PrintTo(const SliceRead& slice, std::ostream* out) {
    *out << slice.name << " [" << slice.start << ", " << slice.end << ") " << slice.bytes << " B";
  }
};

// What a viewer makes of the file.
struct TraceRead {
  std::map<uint64_t, TrackRead> tracks{};
  std::map<uint64_t, std::vector<SliceRead>> slices{};                     // by track
  std::map<uint64_t, std::vector<std::pair<TimeNs, int64_t>>> counters{};  // by track
  std::map<uint64_t, std::vector<TimeNs>> flow_starts{};
  std::map<uint64_t, std::vector<TimeNs>> flow_ends{};
  size_t interned_names = 0;
  std::vector<std::string> wrong{};  // whatever a strict reader would not take

  // The track of a process; one without a process where `process` is empty. 0: there is none.
  uint64_t Find(std::string_view process, std::string_view track) const;
  // Empty where there is none.
  std::vector<SliceRead> SlicesOf(std::string_view process, std::string_view track) const;
};

TraceRead ReadTrace(const std::string& file);

}  // namespace spiritlevel
