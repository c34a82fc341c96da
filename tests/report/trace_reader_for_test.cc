#include "tests/report/trace_reader_for_test.h"

#include <algorithm>
#include <optional>
#include <set>

namespace spiritlevel {
namespace {

// Protobuf read without a schema: the fields of a message in their order.
struct Field {
  int number = 0;
  uint64_t value = 0;        // of a varint or a fixed64
  std::string_view bytes{};  // of a length-delimited one
};
using Fields = std::vector<Field>;

constexpr uint64_t kBootTime = 6;
bool IsOfSequence(uint64_t clock) { return clock >= 64 && clock < 128; }

std::optional<uint64_t> ReadVarint(std::string_view& data) {
  uint64_t value = 0;
  for (int shift = 0; !data.empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(data.front());
    data.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
  return std::nullopt;
}

uint64_t ValueOf(const Fields& fields, int number, uint64_t otherwise = 0) {
  uint64_t value = otherwise;  // the last one counts
  for (const Field& field : fields) {
    if (field.number == number) value = field.value;
  }
  return value;
}
bool Has(const Fields& fields, int number) {
  return std::any_of(fields.begin(), fields.end(),
                     [&](const Field& field) { return field.number == number; });
}
std::string_view BytesOf(const Fields& fields, int number) {
  for (const Field& field : fields) {
    if (field.number == number) return field.bytes;
  }
  return {};
}
std::vector<uint64_t> ValuesOf(const Fields& fields, int number) {
  std::vector<uint64_t> values;
  for (const Field& field : fields) {
    if (field.number == number) values.push_back(field.value);
  }
  return values;
}

struct Clock {
  bool is_incremental = false;
  uint64_t unit = 1;
  uint64_t last = 0;    // ns, of the clock
  int64_t to_boot = 0;  // what to add
};

// What a sequence's packets may refer to.
struct Sequence {
  bool valid = false;
  std::map<uint64_t, std::string> names{};
  std::optional<Fields> defaults{};        // of packets
  std::optional<Fields> event_defaults{};  // of track events
  std::map<uint64_t, Clock> clocks{};
};

struct EventRead {
  TimeNs time = 0;
  uint64_t type = 0;
  uint64_t track = 0;
  std::string name{};
  Bytes bytes = 0;
  std::vector<std::pair<uint64_t, int64_t>> counters{};
  std::vector<uint64_t> flows{};
  std::vector<uint64_t> terminating_flows{};
};

class TraceReader {
 public:
  TraceRead Read(const std::string& file) {
    for (const Field& packet : FieldsOf(file)) {
      if (packet.number != 1) Complain("a field of Trace that is no packet");
      ReadPacket(FieldsOf(packet.bytes));
    }
    std::stable_sort(events_.begin(), events_.end(),
                     [](const EventRead& a, const EventRead& b) { return a.time < b.time; });
    for (const EventRead& event : events_) Show(event);
    for (const auto& [track, open] : open_) {
      if (open) Complain("a slice never ends", track);
    }
    return std::move(trace_);
  }

 private:
  void Complain(std::string_view what) { trace_.wrong.emplace_back(what); }
  void Complain(std::string_view what, uint64_t track) {
    trace_.wrong.push_back(std::string(what) + ", track " + std::to_string(track) + " " +
                           trace_.tracks[track].name);
  }

  Fields FieldsOf(std::string_view data) {
    Fields fields;
    while (!data.empty()) {
      const std::optional<uint64_t> tag = ReadVarint(data);
      Field field;
      if (tag) field.number = static_cast<int>(*tag >> 3);
      const uint64_t wire = tag.value_or(7) & 7;
      std::optional<uint64_t> value;
      if (wire == 0 || wire == 2) value = ReadVarint(data);
      if (wire == 1 && data.size() >= 8) {
        value = 0;
        for (size_t i = 0; i < 8; ++i) {
          *value |= static_cast<uint64_t>(static_cast<unsigned char>(data[i])) << (8 * i);
        }
        data.remove_prefix(8);
      }
      if (!value || field.number == 0 || (wire == 2 && *value > data.size())) {
        Complain("bytes that are no message");
        return fields;
      }
      field.value = *value;
      if (wire == 2) {
        field.bytes = data.substr(0, *value);
        data.remove_prefix(*value);
      }
      fields.push_back(field);
    }
    return fields;
  }

  // In the order in which the trace processor looks at a packet's fields.
  void ReadPacket(const Fields& packet) {
    const uint64_t id = ValueOf(packet, 10);
    if (id == 0) Complain("a packet of no sequence");
    const uint64_t flags = ValueOf(packet, 13);
    Sequence& sequence = sequences_[id];
    if (flags & 1) {
      sequence = Sequence{.valid = true};
    } else if (!sequence.valid) {
      Complain("a sequence begins without clearing its state");
    }
    if (Has(packet, 59)) {
      sequence.defaults = FieldsOf(BytesOf(packet, 59));
      sequence.event_defaults = FieldsOf(BytesOf(*sequence.defaults, 11));
    }
    if (Has(packet, 12)) ReadInterned(FieldsOf(BytesOf(packet, 12)), sequence);
    if (Has(packet, 6)) {
      ReadClocks(FieldsOf(BytesOf(packet, 6)), sequence);
      if (Has(packet, 11) || Has(packet, 60)) Complain("what stands beside a snapshot is not read");
      return;
    }
    needs_state_ = (flags & 2) != 0;
    // Defaults hold for all later packets, which have to say that they need them.
    if (sequence.defaults && !needs_state_) Complain("needs its state without saying so");
    const TimeNs time = TimeOf(packet, sequence);
    if (Has(packet, 60)) ReadDescriptor(FieldsOf(BytesOf(packet, 60)));
    if (Has(packet, 11)) {
      if (!Has(packet, 8)) Complain("an event without a time");
      ReadEvent(FieldsOf(BytesOf(packet, 11)), time, sequence);
    }
  }

  void ReadInterned(const Fields& interned, Sequence& sequence) {
    for (const Field& entry : interned) {
      if (entry.number != 2) Complain("interned what is no event name");
      const Fields name = FieldsOf(entry.bytes);
      const uint64_t number = ValueOf(name, 1);
      if (number == 0) Complain("a name is interned as 0");
      if (!sequence.names.emplace(number, BytesOf(name, 2)).second) {
        Complain("a name is interned twice");
      }
      ++trace_.interned_names;
    }
  }

  void ReadClocks(const Fields& snapshot, Sequence& sequence) {
    std::optional<uint64_t> boot;
    std::map<uint64_t, Clock> clocks;
    for (const Field& entry : snapshot) {
      if (entry.number != 1) continue;
      const Fields fields = FieldsOf(entry.bytes);
      const uint64_t id = ValueOf(fields, 1);
      const Clock clock{.is_incremental = ValueOf(fields, 3) != 0,
                        .unit = ValueOf(fields, 4, 1),
                        .last = ValueOf(fields, 2) * ValueOf(fields, 4, 1)};
      if (id == kBootTime) boot = clock.last;
      if (!IsOfSequence(id) && clock.is_incremental) Complain("a global clock is incremental");
      if (!clocks.emplace(id, clock).second) Complain("a clock is twice in a snapshot");
    }
    if (!boot) return Complain("a snapshot that leads nowhere");
    for (auto& [id, clock] : clocks) {
      clock.to_boot = static_cast<int64_t>(*boot) - static_cast<int64_t>(clock.last);
      if (IsOfSequence(id)) sequence.clocks[id] = clock;
    }
  }

  TimeNs TimeOf(const Fields& packet, Sequence& sequence) {
    if (!Has(packet, 8)) return 0;
    const uint64_t stamp = ValueOf(packet, 8);
    uint64_t id = ValueOf(packet, 58);
    if (id == 0 && sequence.defaults) id = ValueOf(*sequence.defaults, 58);
    if (id == 0 || id == kBootTime) return static_cast<TimeNs>(stamp);
    const auto at = sequence.clocks.find(id);
    if (at == sequence.clocks.end()) {
      Complain("a clock that no snapshot has");
      return 0;
    }
    Clock& clock = at->second;
    clock.last = clock.is_incremental ? clock.last + stamp * clock.unit : stamp * clock.unit;
    return static_cast<TimeNs>(clock.last) + clock.to_boot;
  }

  void ReadDescriptor(const Fields& descriptor) {
    const uint64_t uuid = ValueOf(descriptor, 1);
    const bool is_new = !trace_.tracks.contains(uuid);
    TrackRead& track = trace_.tracks[uuid];
    if (uuid == 0) Complain("a track without a number");
    if (!is_new) Complain("a track is described twice", uuid);
    track.name = BytesOf(descriptor, 2);
    track.parent = ValueOf(descriptor, 5);
    if (track.parent != 0 && !trace_.tracks.contains(track.parent)) {
      Complain("a track's parent comes later", uuid);
    }
    if (Has(descriptor, 3)) {
      const Fields process = FieldsOf(BytesOf(descriptor, 3));
      track.name = BytesOf(process, 6);
      track.is_process = true;
      if (!Has(process, 1)) Complain("a process without a pid", uuid);
    }
    if (Has(descriptor, 8)) {
      const Fields counter = FieldsOf(BytesOf(descriptor, 8));
      track.is_counter = true;
      track.counts_bytes = ValueOf(counter, 3) == 3;
      track.multiplier = static_cast<int64_t>(ValueOf(counter, 4, 1));
      track.share_key = BytesOf(counter, 7);
    }
  }

  void ReadEvent(const Fields& fields, TimeNs time, const Sequence& sequence) {
    EventRead event{.time = time, .type = ValueOf(fields, 9)};
    if (!Has(fields, 9)) Complain("an event of no type");
    if (Has(fields, 11)) {
      event.track = ValueOf(fields, 11);
    } else if (sequence.event_defaults) {
      event.track = ValueOf(*sequence.event_defaults, 11);
    }
    if (!trace_.tracks.contains(event.track)) Complain("an event of no track", event.track);
    event.name = BytesOf(fields, 23);
    if (Has(fields, 10)) {
      if (Has(fields, 23)) Complain("an event with two names");
      if (!needs_state_) Complain("uses a name without saying so");
      const auto at = sequence.names.find(ValueOf(fields, 10));
      if (at == sequence.names.end()) Complain("a name that was never interned", event.track);
      if (at != sequence.names.end()) event.name = at->second;
    }
    for (const Field& field : fields) {
      if (field.number != 4) continue;
      const Fields annotation = FieldsOf(field.bytes);
      if (BytesOf(annotation, 10) == "bytes") {
        event.bytes = static_cast<Bytes>(ValueOf(annotation, 4));
      }
    }
    ReadCounters(fields, sequence, event);
    event.flows = ValuesOf(fields, 47);
    event.terminating_flows = ValuesOf(fields, 48);
    // A sequence's packets are written as time goes on.
    TimeNs& last = last_time_[event.track];
    if (time < last) Complain("goes back in time", event.track);
    last = time;
    events_.push_back(std::move(event));
  }

  // Values go to the tracks that the event lists, or else to the first of the defaults.
  void ReadCounters(const Fields& fields, const Sequence& sequence, EventRead& event) {
    const std::vector<uint64_t> values = ValuesOf(fields, 12);
    std::vector<uint64_t> tracks = ValuesOf(fields, 31);
    if (tracks.empty() && sequence.event_defaults) tracks = ValuesOf(*sequence.event_defaults, 31);
    if (values.size() > tracks.size()) return Complain("more values than counters", event.track);
    if (values.size() > 8) Complain("more counters than an event may have", event.track);
    for (size_t i = 0; i < values.size(); ++i) AddCounter(tracks[i], values[i], event);
    if (event.type == 4) AddCounter(event.track, ValueOf(fields, 30), event);
    if (event.type == 4 && !Has(fields, 30)) Complain("a counter without a value", event.track);
  }

  void AddCounter(uint64_t uuid, uint64_t value, EventRead& event) {
    const auto at = trace_.tracks.find(uuid);
    if (at == trace_.tracks.end() || !at->second.is_counter) {
      return Complain("a value for what is no counter", uuid);
    }
    event.counters.emplace_back(uuid, static_cast<int64_t>(value) * at->second.multiplier);
  }

  void Show(const EventRead& event) {
    const bool is_slice = event.type >= 1 && event.type <= 3;
    if (is_slice && trace_.tracks[event.track].is_counter) {
      Complain("a slice on a counter", event.track);
    }
    std::optional<SliceRead>& open = open_[event.track];
    const SliceRead slice{event.name, event.time, event.time, event.bytes};
    if (event.type == 1) {
      if (open) Complain("slices overlap", event.track);
      open = slice;
    } else if (event.type == 2) {
      if (!open) return Complain("an end without a begin", event.track);
      open->end = event.time;
      trace_.slices[event.track].push_back(*open);
      open.reset();
    } else if (event.type == 3) {
      trace_.slices[event.track].push_back(slice);
    } else if (event.type != 4) {
      Complain("an event of no known type", event.track);
    }
    for (const auto& [track, value] : event.counters) {
      trace_.counters[track].emplace_back(event.time, value);
    }
    for (const uint64_t flow : event.flows) trace_.flow_starts[flow].push_back(event.time);
    for (const uint64_t flow : event.terminating_flows) {
      if (!trace_.flow_starts.contains(flow)) Complain("a flow ends before it begins", event.track);
      trace_.flow_ends[flow].push_back(event.time);
    }
  }

  TraceRead trace_;
  bool needs_state_ = false;  // the packet says that it needs its sequence's
  std::map<uint64_t, Sequence> sequences_;
  std::vector<EventRead> events_;
  std::map<uint64_t, std::optional<SliceRead>> open_;
  std::map<uint64_t, TimeNs> last_time_;
};

}  // namespace

uint64_t TraceRead::Find(std::string_view process, std::string_view track) const {
  for (const auto& [uuid, info] : tracks) {
    if (info.name != track) continue;
    const auto parent = tracks.find(info.parent);
    if (process.empty() ? info.parent == 0
                        : parent != tracks.end() && parent->second.name == process) {
      return uuid;
    }
  }
  return 0;
}

std::vector<SliceRead> TraceRead::SlicesOf(std::string_view process, std::string_view track) const {
  const auto at = slices.find(Find(process, track));
  return at == slices.end() ? std::vector<SliceRead>{} : at->second;
}

TraceRead ReadTrace(const std::string& file) { return TraceReader().Read(file); }

}  // namespace spiritlevel
