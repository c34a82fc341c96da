#include "report/trace_packets.h"

#include <utility>

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
constexpr int kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInterned = 12, kFlags = 13,
              kTrackDescriptor = 60;
constexpr uint64_t kStateCleared = 1, kNeedsState = 2;
}  // namespace packet
namespace descriptor {
constexpr int kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kCounter = 8, kChildOrdering = 11,
              kSiblingOrder = 12;
constexpr uint64_t kExplicit = 3;
}  // namespace descriptor
namespace process {
constexpr int kPid = 1, kName = 6;
}
namespace counter {
constexpr int kUnit = 3, kShareKey = 7;
constexpr uint64_t kBytesUnit = 3;
}  // namespace counter
namespace event {
constexpr int kType = 9, kNameNumber = 10, kTrack = 11, kExtraValues = 12, kCounterValue = 30,
              kExtraTracks = 31, kFlows = 47, kTerminatingFlows = 48;
constexpr uint64_t kBegin = 1, kEnd = 2, kInstant = 3, kCounterType = 4;
}  // namespace event
namespace interned {
constexpr int kEventNames = 2, kNumber = 1, kName = 2;
}

constexpr uint64_t kOurSequence = 1;

}  // namespace

TracePackets::TracePackets() {
  packet_.clear();
  Number(packet::kSequence, kOurSequence, packet_);
  Number(packet::kFlags, packet::kStateCleared, packet_);
  AddPacket();
}

void TracePackets::AddPacket() {
  Text(trace::kPacket, packet_, out_);
  packet_.clear();
}

void TracePackets::AddDescriptor() {
  Number(packet::kSequence, kOurSequence, packet_);
  Text(packet::kTrackDescriptor, event_, packet_);
  AddPacket();
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
  if (track.counts_bytes) {
    std::string of_counter;
    Number(counter::kUnit, counter::kBytesUnit, of_counter);
    Text(counter::kShareKey, "live memory", of_counter);  // one scale for all ranks
    Text(descriptor::kCounter, of_counter, event_);
  }
  AddDescriptor();
}

uint64_t TracePackets::NumberOfName(std::string_view name) {
  key_ = name;
  const auto [at, added] = names_.try_emplace(key_, names_.size() + 1);
  if (added) {
    std::string entry;
    Number(interned::kNumber, at->second, entry);
    Text(interned::kName, name, entry);
    Text(interned::kEventNames, entry, interned_);
  }
  return at->second;
}

void TracePackets::AddEvent(uint64_t type, uint64_t track, TimeNs time, std::string_view name,
                            const EventExtras& extras) {
  event_.clear();
  interned_.clear();
  Number(event::kType, type, event_);
  if (!name.empty()) Number(event::kNameNumber, NumberOfName(name), event_);
  Number(event::kTrack, track, event_);
  for (const CounterValue& c : extras.counters) {
    Number(event::kExtraValues, static_cast<uint64_t>(c.value), event_);
    Number(event::kExtraTracks, c.track, event_);
  }
  for (const uint64_t flow : extras.flows) Fixed(event::kFlows, flow, event_);
  for (const uint64_t flow : extras.terminating_flows) {
    Fixed(event::kTerminatingFlows, flow, event_);
  }
  Number(packet::kTimestamp, static_cast<uint64_t>(time), packet_);
  Number(packet::kSequence, kOurSequence, packet_);
  Text(packet::kTrackEvent, event_, packet_);
  if (!interned_.empty()) Text(packet::kInterned, interned_, packet_);
  if (!name.empty()) Number(packet::kFlags, packet::kNeedsState, packet_);
  AddPacket();
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

void TracePackets::Counter(const CounterValue& c, TimeNs time) {
  event_.clear();
  Number(event::kType, event::kCounterType, event_);
  Number(event::kTrack, c.track, event_);
  Number(event::kCounterValue, static_cast<uint64_t>(c.value), event_);
  Number(packet::kTimestamp, static_cast<uint64_t>(time), packet_);
  Number(packet::kSequence, kOurSequence, packet_);
  Text(packet::kTrackEvent, event_, packet_);
  AddPacket();
}

}  // namespace spiritlevel
