// Writes the packets of a Perfetto trace, by hand: the format is Protobuf's, the fields are those
// of protos/perfetto/trace/ in Perfetto's sources. All packets form one sequence.
//
//   TracePackets packets;
//   packets.Process(/*uuid=*/1, /*pid=*/1, "rank 0", /*order=*/0);
//   packets.Track({.uuid = 2, .parent = 1, .name = "compute"});
//   packets.Begin(2, 0, "F0");
//   packets.End(2, 11307000);
//   WriteFile("run.pftrace", packets.Take());
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

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
};

class TracePackets {
 public:
  struct TrackInfo {
    uint64_t uuid = 0;
    uint64_t parent = 0;  // 0: none
    std::string_view name{};
    int order = 0;  // among the tracks of its parent
    bool counts_bytes = false;
  };

  TracePackets();

  void Process(uint64_t uuid, int pid, std::string_view name, int order);
  void Track(const TrackInfo& track);

  void Begin(uint64_t track, TimeNs time, std::string_view name, const EventExtras& extras = {});
  void End(uint64_t track, TimeNs time, const EventExtras& extras = {});
  void Instant(uint64_t track, TimeNs time, std::string_view name, const EventExtras& extras = {});
  void Counter(const CounterValue& counter, TimeNs time);

  std::string Take() { return std::move(out_); }

 private:
  void AddEvent(uint64_t type, uint64_t track, TimeNs time, std::string_view name,
                const EventExtras& extras);
  void AddPacket();
  void AddDescriptor();
  uint64_t NumberOfName(std::string_view name);

  std::string out_;
  std::string packet_;  // scratch, as are these
  std::string event_;
  std::string interned_;
  std::unordered_map<std::string, uint64_t> names_;
  std::string key_;
};

}  // namespace spiritlevel
