// Writes the packets of a Perfetto trace, by hand: the format is Protobuf's, the fields are those
// of protos/perfetto/trace/ in Perfetto's sources.
//
//   TracePackets packets(/*intern_names=*/false);
//   packets.Process(/*uuid=*/1, /*pid=*/1, "rank 0", /*order=*/0);
//   packets.Track({.uuid = 2, .parent = 1, .name = "compute"});
//   packets.Begin(2, 0, "F0");
//   packets.End(2, 11307000);
//   WriteFile("run.pftrace", packets.Take());
//
// Tracks are described on a packet sequence of their own, number 1, and each track's events are
// another one, so that what they share need not be repeated: its first packet clears the sequence's
// state, makes the track and its counters the defaults, and begins a clock of the sequence that
// counts from one event to the next. Events of a track are to come in the order of time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"

namespace spiritlevel {

struct CounterValue {
  uint64_t track = 0;
  int64_t value = 0;
};

// What hangs on a slice's begin, its end, or an instant.
struct EventExtras {
  std::span<const CounterValue> counters{};
  std::span<const uint64_t> flows{};              // ids that begin here or go on from here
  std::span<const uint64_t> terminating_flows{};  // ids that end here
  Bytes bytes = 0;                                // shown beside the slice unless 0
};

class TracePackets {
 public:
  struct TrackInfo {
    uint64_t uuid = 0;
    uint64_t parent = 0;  // 0: none
    std::string_view name{};
    int order = 0;           // among the tracks of its parent
    int64_t bytes_each = 0;  // of a counter: what one of it is; all its values are multiples
  };

  // Names that a track uses again and again are better interned: worth it from four uses each.
  explicit TracePackets(bool intern_names);

  // Before any event: all their times are multiples of this, which makes them shorter.
  void SetTimeUnit(TimeNs unit) { time_unit_ = unit; }
  void Process(uint64_t uuid, int pid, std::string_view name, int order);
  void Track(const TrackInfo& track);
  // The counters that events of `track` change, those that change most often first; before any of
  // its events. Sequences of such tracks have the smallest numbers, which are the shortest.
  void SetCounters(uint64_t track, std::vector<uint64_t> counters);

  void Begin(uint64_t track, TimeNs time, std::string_view name, const EventExtras& extras = {});
  void End(uint64_t track, TimeNs time, const EventExtras& extras = {});
  void Instant(uint64_t track, TimeNs time, std::string_view name, const EventExtras& extras = {});
  // A value that no event of `track` brings along.
  void Counter(uint64_t track, const CounterValue& counter, TimeNs time);

  std::string Take() { return std::move(out_); }

 private:
  // A track, and the sequence of its events.
  struct Line {
    uint64_t sequence = 0;
    bool begun = false;
    TimeNs time = 0;  // of its last event
    std::vector<uint64_t> counters{};
    std::unordered_map<std::string, uint64_t> names{};
    int64_t bytes_each = 1;  // of a counter, as is its last value
    int64_t value = 0;
    bool has_value = false;
  };

  Line& LineOf(uint64_t track);
  void BeginSequence(uint64_t track);
  void AddEvent(uint64_t type, uint64_t track, TimeNs time, std::string_view name,
                const EventExtras& extras);
  void AddName(Line& line, std::string_view name);
  void AddCounters(const Line& line, std::span<const CounterValue> counters);
  int64_t Scaled(const CounterValue& counter);
  void AddEventPacket(Line& line, TimeNs time);
  void AddPacket();
  void AddDescriptor();

  const bool intern_names_;
  TimeNs time_unit_ = 1;
  uint64_t last_sequence_ = 1;
  std::string out_;
  std::string packet_;  // scratch, as are these
  std::string event_;
  std::string interned_;
  std::string key_;
  std::vector<Line> lines_;  // by uuid of the track
};

}  // namespace spiritlevel
