#include "report/trace_packets.h"

#include <algorithm>

#include "base/check.h"
#include "report/varint.h"

namespace spiritlevel {
namespace {

// How a value is laid out; three bits of each tag.
enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2 };

void Tag(int field, Wire wire, std::string& out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | wire, out);
}
void Number(int field, uint64_t value, std::string& out) {
  Tag(field, kVarint, out);
  AppendVarint(value, out);
}
void Text(int field, std::string_view value, std::string& out) {
  Tag(field, kBytes, out);
  AppendVarint(value.size(), out);
  out += value;
}
void Fixed(int field, uint64_t value, std::string& out) {
  Tag(field, kFixed64, out);
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i));
}

namespace trace {
constexpr int kPacket = 1;
}
namespace packet {
constexpr int kClockSnapshot = 6, kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInterned = 12,
              kFlags = 13, kDefaults = 59, kTrackDescriptor = 60;
constexpr uint64_t kStateCleared = 1, kNeedsState = 2;
}  // namespace packet
namespace clock_snapshot {
constexpr int kClocks = 1, kId = 1, kTimestamp = 2, kIsIncremental = 3, kUnit = 4;
// The trace's own clock; and the first of those that belong to a sequence.
constexpr uint64_t kBootTime = 6, kOfSequence = 64;
}  // namespace clock_snapshot
namespace defaults {
constexpr int kTimestampClock = 58, kTrackEvent = 11;
}
namespace descriptor {
constexpr int kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kCounter = 8, kChildOrdering = 11,
              kSiblingOrder = 12;
constexpr uint64_t kExplicit = 3;
}  // namespace descriptor
namespace process {
constexpr int kPid = 1, kName = 6;
}
namespace counter {
constexpr int kUnit = 3, kMultiplier = 4, kShareKey = 7;
constexpr uint64_t kBytesUnit = 3;
}  // namespace counter
namespace event {
constexpr int kAnnotations = 4, kType = 9, kNameNumber = 10, kTrack = 11, kExtraValues = 12,
              kName = 23, kCounterValue = 30, kExtraTracks = 31, kFlows = 47,
              kTerminatingFlows = 48;
constexpr uint64_t kBegin = 1, kEnd = 2, kInstant = 3, kCounterType = 4;
}  // namespace event
namespace annotation {
constexpr int kInt = 4, kName = 10;
}
namespace interned {
constexpr int kEventNames = 2, kNumber = 1, kName = 2;
}

constexpr uint64_t kDescriptions = 1;  // the sequence of all descriptors

}  // namespace

TracePackets::TracePackets(bool intern_names) : intern_names_(intern_names) {
  Number(packet::kSequence, kDescriptions, packet_);
  Number(packet::kFlags, packet::kStateCleared, packet_);
  AddPacket();
}

void TracePackets::AddPacket() {
  Text(trace::kPacket, packet_, out_);
  packet_.clear();
}

void TracePackets::AddDescriptor() {
  Number(packet::kSequence, kDescriptions, packet_);
  Text(packet::kTrackDescriptor, event_, packet_);
  AddPacket();
}

TracePackets::Line& TracePackets::LineOf(uint64_t track) {
  if (track >= lines_.size()) lines_.resize(track + 1);
  return lines_[track];
}

void TracePackets::Process(uint64_t uuid, int pid, std::string_view name, int order) {
  std::string of_process;
  Number(process::kPid, static_cast<uint64_t>(pid), of_process);
  Text(process::kName, name, of_process);
  event_.clear();
  Number(descriptor::kUuid, uuid, event_);
  Text(descriptor::kProcess, of_process, event_);
  Number(descriptor::kChildOrdering, descriptor::kExplicit, event_);
  Number(descriptor::kSiblingOrder, static_cast<uint64_t>(order), event_);
  AddDescriptor();
}

void TracePackets::Track(const TrackInfo& track) {
  event_.clear();
  Number(descriptor::kUuid, track.uuid, event_);
  if (track.parent != 0) Number(descriptor::kParent, track.parent, event_);
  Text(descriptor::kName, track.name, event_);
  Number(descriptor::kSiblingOrder, static_cast<uint64_t>(track.order), event_);
  if (track.bytes_each > 0) {
    LineOf(track.uuid).bytes_each = track.bytes_each;
    std::string of_counter;
    Number(counter::kUnit, counter::kBytesUnit, of_counter);
    if (track.bytes_each > 1) {
      Number(counter::kMultiplier, static_cast<uint64_t>(track.bytes_each), of_counter);
    }
    Text(counter::kShareKey, "live memory", of_counter);  // one scale for all ranks
    Text(descriptor::kCounter, of_counter, event_);
  }
  AddDescriptor();
}

void TracePackets::SetCounters(uint64_t track, std::vector<uint64_t> counters) {
  Line& line = LineOf(track);
  line.counters = std::move(counters);
  line.sequence = ++last_sequence_;
}

void TracePackets::BeginSequence(uint64_t track) {
  Line& line = LineOf(track);
  line.begun = true;
  if (line.sequence == 0) line.sequence = ++last_sequence_;
  std::string snapshot, clock;
  for (const uint64_t id : {clock_snapshot::kBootTime, clock_snapshot::kOfSequence}) {
    clock.clear();
    Number(clock_snapshot::kId, id, clock);
    Number(clock_snapshot::kTimestamp, 0, clock);
    if (id == clock_snapshot::kOfSequence) {
      Number(clock_snapshot::kIsIncremental, 1, clock);
      if (time_unit_ > 1) {
        Number(clock_snapshot::kUnit, static_cast<uint64_t>(time_unit_), clock);
      }
    }
    Text(clock_snapshot::kClocks, clock, snapshot);
  }
  std::string of_events, of_packets;
  Number(event::kTrack, track, of_events);
  for (const uint64_t counter : line.counters) Number(event::kExtraTracks, counter, of_events);
  Text(defaults::kTrackEvent, of_events, of_packets);
  Number(defaults::kTimestampClock, clock_snapshot::kOfSequence, of_packets);
  std::string first;
  Number(packet::kSequence, line.sequence, first);
  Number(packet::kFlags, packet::kStateCleared, first);
  Text(packet::kClockSnapshot, snapshot, first);
  Text(packet::kDefaults, of_packets, first);
  Text(trace::kPacket, first, out_);
}

void TracePackets::AddName(Line& line, std::string_view name) {
  if (name.empty()) return;
  if (!intern_names_) {
    Text(event::kName, name, event_);
    return;
  }
  key_ = name;
  const auto [at, added] = line.names.try_emplace(key_, line.names.size() + 1);
  if (added) {
    std::string entry;
    Number(interned::kNumber, at->second, entry);
    Text(interned::kName, name, entry);
    Text(interned::kEventNames, entry, interned_);
  }
  Number(event::kNameNumber, at->second, event_);
}

int64_t TracePackets::Scaled(const CounterValue& counter) {
  Line& of_counter = LineOf(counter.track);
  SPIRITLEVEL_CHECK(counter.value % of_counter.bytes_each == 0,
                    "a counter's values are multiples of its unit");
  of_counter.value = counter.value / of_counter.bytes_each;
  of_counter.has_value = true;
  return of_counter.value;
}

// Values belong to the first of the line's counters unless the event says to which. So a value that
// did not change is repeated where it stands before one that did; more than one is not worth it.
void TracePackets::AddCounters(const Line& line, std::span<const CounterValue> counters) {
  if (counters.empty()) return;
  size_t first = 0;  // of the line's counters, how many it takes to reach all that change
  for (const CounterValue& c : counters) {
    Scaled(c);
    const auto at = std::find(line.counters.begin(), line.counters.end(), c.track);
    first = std::max(first, static_cast<size_t>(at - line.counters.begin()) + 1);
  }
  bool by_place = first <= line.counters.size() && first <= counters.size() + 1;
  for (size_t i = 0; by_place && i < first; ++i) by_place = LineOf(line.counters[i]).has_value;
  if (by_place) {
    for (size_t i = 0; i < first; ++i) {
      const int64_t value = LineOf(line.counters[i]).value;
      Number(event::kExtraValues, static_cast<uint64_t>(value), event_);
    }
    return;
  }
  for (const CounterValue& c : counters) {
    Number(event::kExtraValues, static_cast<uint64_t>(LineOf(c.track).value), event_);
    Number(event::kExtraTracks, c.track, event_);
  }
}

void TracePackets::AddEventPacket(Line& line, TimeNs time) {
  const TimeNs since = time - line.time;
  SPIRITLEVEL_CHECK(since >= 0 && since % time_unit_ == 0,
                    "a track's events come in the order of time, at multiples of its unit");
  Number(packet::kTimestamp, static_cast<uint64_t>(since / time_unit_), packet_);
  line.time = time;
  Number(packet::kSequence, line.sequence, packet_);
  Number(packet::kFlags, packet::kNeedsState, packet_);
  if (!interned_.empty()) Text(packet::kInterned, interned_, packet_);
  Text(packet::kTrackEvent, event_, packet_);
  AddPacket();
}

void TracePackets::AddEvent(uint64_t type, uint64_t track, TimeNs time, std::string_view name,
                            const EventExtras& extras) {
  if (!LineOf(track).begun) BeginSequence(track);
  // Every track has been described by now, so the lines stay where they are.
  Line& line = LineOf(track);
  event_.clear();
  interned_.clear();
  Number(event::kType, type, event_);
  AddName(line, name);
  AddCounters(line, extras.counters);
  for (const uint64_t flow : extras.flows) Fixed(event::kFlows, flow, event_);
  for (const uint64_t flow : extras.terminating_flows) {
    Fixed(event::kTerminatingFlows, flow, event_);
  }
  if (extras.bytes != 0) {
    std::string bytes;
    Text(annotation::kName, "bytes", bytes);
    Number(annotation::kInt, static_cast<uint64_t>(extras.bytes), bytes);
    Text(event::kAnnotations, bytes, event_);
  }
  AddEventPacket(line, time);
}

void TracePackets::Begin(uint64_t track, TimeNs time, std::string_view name,
                         const EventExtras& extras) {
  AddEvent(event::kBegin, track, time, name, extras);
}

void TracePackets::End(uint64_t track, TimeNs time, const EventExtras& extras) {
  AddEvent(event::kEnd, track, time, "", extras);
}

void TracePackets::Instant(uint64_t track, TimeNs time, std::string_view name,
                           const EventExtras& extras) {
  AddEvent(event::kInstant, track, time, name, extras);
}

void TracePackets::Counter(uint64_t track, const CounterValue& c, TimeNs time) {
  if (!LineOf(track).begun) BeginSequence(track);
  event_.clear();
  interned_.clear();
  Number(event::kType, event::kCounterType, event_);
  Number(event::kTrack, c.track, event_);
  Number(event::kCounterValue, static_cast<uint64_t>(Scaled(c)), event_);
  AddEventPacket(LineOf(track), time);
}

}  // namespace spiritlevel
