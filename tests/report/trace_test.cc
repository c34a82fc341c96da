#include "report/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/event.h"
#include "tests/report/comparison_for_test.h"

namespace spiritlevel {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;

// Protobuf read without a schema: the fields of a message in their order.
struct Field {
  int number = 0;
  uint64_t value = 0;        // of a varint or a fixed64
  std::string_view bytes{};  // of a length-delimited one
};

uint64_t ReadVarint(std::string_view* data) {
  uint64_t value = 0;
  for (int shift = 0; !data->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(data->front());
    data->remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
  ADD_FAILURE() << "a number is cut off";
  return 0;
}

std::vector<Field> FieldsOf(std::string_view data) {
  std::vector<Field> fields;
  while (!data.empty()) {
    const uint64_t tag = ReadVarint(&data);
    Field& field = fields.emplace_back();
    field.number = static_cast<int>(tag >> 3);
    const uint64_t wire = tag & 7;
    if (wire == 0) {
      field.value = ReadVarint(&data);
    } else if (wire == 1) {
      for (size_t i = 0; i < 8; ++i) {
        field.value |= static_cast<uint64_t>(static_cast<unsigned char>(data.at(i))) << (8 * i);
      }
      data.remove_prefix(8);
    } else if (wire == 2) {
      const uint64_t length = ReadVarint(&data);
      EXPECT_LE(length, data.size());
      field.bytes = data.substr(0, length);
      data.remove_prefix(std::min<size_t>(length, data.size()));
    } else {
      ADD_FAILURE() << "wire type " << wire;
      return fields;
    }
  }
  return fields;
}

uint64_t ValueOf(const std::vector<Field>& fields, int number, uint64_t otherwise = 0) {
  for (const Field& field : fields) {
    if (field.number == number) return field.value;
  }
  return otherwise;
}
std::string_view BytesOf(const std::vector<Field>& fields, int number) {
  for (const Field& field : fields) {
    if (field.number == number) return field.bytes;
  }
  return {};
}

struct TrackRead {
  std::string name;
  uint64_t parent = 0;
  uint64_t process = 0;  // pid + 1 of a process' own track
  bool counts_bytes = false;
  std::string share_key;
};

struct Slice {
  std::string name;
  TimeNs start = 0;
  TimeNs end = 0;

  friend bool operator==(const Slice&, const Slice&) = default;
  friend void PrintTo(const Slice& slice, std::ostream* out) {
    *out << slice.name << " [" << slice.start << ", " << slice.end << ")";
  }
};

// What a viewer makes of the file.
struct TraceRead {
  std::map<uint64_t, TrackRead> tracks;
  std::map<uint64_t, std::vector<Slice>> slices;  // by track; an instant has no length
  std::map<uint64_t, std::vector<std::pair<TimeNs, int64_t>>> counters;  // by track
  std::map<uint64_t, std::vector<TimeNs>> flow_starts;
  std::map<uint64_t, std::vector<TimeNs>> flow_ends;
  std::vector<std::string> wrong;
  size_t interned_names = 0;

  uint64_t Find(std::string_view process, std::string_view track) const {
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
};

class TraceReader {
 public:
  TraceRead Read(const std::string& file) {
    for (const Field& packet : FieldsOf(file)) {
      EXPECT_EQ(packet.number, 1);
      ReadPacket(FieldsOf(packet.bytes));
    }
    for (const auto& [track, open] : open_) {
      if (open) Complain("a slice never ends", track);
    }
    return std::move(trace_);
  }

 private:
  void Complain(std::string_view what, uint64_t track) {
    trace_.wrong.push_back(std::string(what) + ", track " + std::to_string(track) + " " +
                           trace_.tracks[track].name);
  }

  void ReadPacket(const std::vector<Field>& packet) {
    if (ValueOf(packet, 10) != 1) trace_.wrong.emplace_back("a packet of another sequence");
    if (first_ && (ValueOf(packet, 13) & 1) == 0) trace_.wrong.emplace_back("state not cleared");
    first_ = false;
    for (const Field& entry : FieldsOf(BytesOf(packet, 12))) {
      const std::vector<Field> name = FieldsOf(entry.bytes);
      if (!names_.emplace(ValueOf(name, 1), BytesOf(name, 2)).second) {
        trace_.wrong.emplace_back("a name is interned twice");
      }
      ++trace_.interned_names;
    }
    if (!BytesOf(packet, 60).empty()) ReadDescriptor(FieldsOf(BytesOf(packet, 60)));
    if (!BytesOf(packet, 11).empty()) {
      const bool has_name = ValueOf(FieldsOf(BytesOf(packet, 11)), 10) != 0;
      if (has_name && (ValueOf(packet, 13) & 2) == 0) {
        trace_.wrong.emplace_back("uses a name without saying so");
      }
      ReadEvent(FieldsOf(BytesOf(packet, 11)), static_cast<TimeNs>(ValueOf(packet, 8)));
    }
  }

  void ReadDescriptor(const std::vector<Field>& descriptor) {
    TrackRead& track = trace_.tracks[ValueOf(descriptor, 1)];
    if (!track.name.empty()) trace_.wrong.push_back("a track is described twice: " + track.name);
    track.name = BytesOf(descriptor, 2);
    track.parent = ValueOf(descriptor, 5);
    const std::vector<Field> process = FieldsOf(BytesOf(descriptor, 3));
    if (!process.empty()) {
      track.name = BytesOf(process, 6);
      track.process = ValueOf(process, 1) + 1;
    }
    const std::vector<Field> counter = FieldsOf(BytesOf(descriptor, 8));
    track.counts_bytes = ValueOf(counter, 3) == 3;
    track.share_key = BytesOf(counter, 7);
  }

  void ReadEvent(const std::vector<Field>& event, TimeNs time) {
    const uint64_t track = ValueOf(event, 11);
    if (!trace_.tracks.contains(track)) Complain("an event of no track", track);
    TimeNs& last = last_time_[track];
    if (time < last) Complain("goes back in time", track);
    last = time;
    std::optional<Slice>& open = open_[track];
    switch (ValueOf(event, 9)) {
      case 1:
        if (open) Complain("slices overlap", track);
        open = Slice{.name = names_[ValueOf(event, 10)], .start = time};
        break;
      case 2:
        if (!open) return Complain("an end without a begin", track);
        open->end = time;
        trace_.slices[track].push_back(*open);
        open.reset();
        break;
      case 3:
        trace_.slices[track].push_back({names_[ValueOf(event, 10)], time, time});
        break;
      case 4:
        trace_.counters[track].emplace_back(time, static_cast<int64_t>(ValueOf(event, 30)));
        break;
      default:
        Complain("an event of no type", track);
    }
    ReadExtras(event, time);
  }

  void ReadExtras(const std::vector<Field>& event, TimeNs time) {
    std::vector<int64_t> values;
    size_t next = 0;
    for (const Field& field : event) {
      if (field.number == 12) values.push_back(static_cast<int64_t>(field.value));
      if (field.number == 47) trace_.flow_starts[field.value].push_back(time);
      if (field.number == 48) trace_.flow_ends[field.value].push_back(time);
    }
    for (const Field& field : event) {
      if (field.number != 31) continue;
      if (next >= values.size()) return Complain("a counter without a value", field.value);
      trace_.counters[field.value].emplace_back(time, values[next++]);
    }
  }

  TraceRead trace_;
  bool first_ = true;
  std::map<uint64_t, std::string> names_;
  std::map<uint64_t, std::optional<Slice>> open_;
  std::map<uint64_t, TimeNs> last_time_;
};

TraceRead ReadTrace(const Played& played, const TraceOptions& options) {
  return TraceReader().Read(PerfettoTrace(played.program, played.timeline, options));
}

ScenarioForTest ScenarioWithEverything() {
  return {.ranks = 4,
          .micro_batches = 8,
          .cost = {.forward = 9000,
                   .input_grad = 8000,
                   .weight_grad = 7000,
                   .activation = 1 << 20,
                   .weight_state = 600 << 10},
          .common = {.hop = {.latency = 700, .busy = 300, .bytes = 1 << 20},
                     .launch = 11,
                     .optimizer = 5000,
                     .barrier = 900,
                     .static_bytes = 3 << 20}};
}

std::string RankName(int rank) { return "rank " + std::to_string(rank); }

// By category.
constexpr const char* kCounters[kNumMemoryCategories] = {
    "parameters",    "gradients",     "optimizer", "waiting for B",
    "waiting for W", "communication", "workspace", "framework"};

bool IsComputeNode(const Event& event) {
  return event.kind != NodeKind::kSend && event.kind != NodeKind::kReceive;
}

class EverySchedule : public testing::TestWithParam<std::string> {
 protected:
  Played played_ = Play(ScenarioWithEverything(), GetParam());
};

TEST_P(EverySchedule, HasASliceForEachNodeAtItsTime) {
  const TraceRead trace = ReadTrace(played_, {.iterations = 2});
  EXPECT_THAT(trace.wrong, IsEmpty());
  std::map<int, std::vector<std::pair<TimeNs, TimeNs>>> expected;
  for (const Event& event : CollectEvents(played_.program, played_.timeline, 2)) {
    if (IsComputeNode(event)) expected[event.rank].emplace_back(event.start, event.end);
  }
  for (const auto& [rank, times] : expected) {
    const std::vector<Slice>& slices = trace.slices.at(trace.Find(RankName(rank), "compute"));
    ASSERT_EQ(slices.size(), times.size());
    for (size_t i = 0; i < times.size(); ++i) {
      EXPECT_EQ(slices[i].start, times[i].first);
      EXPECT_EQ(slices[i].end, times[i].second);
    }
  }
}

// After every node each counter stands at what the ledger says, to the byte.
TEST_P(EverySchedule, CountersAreTheLedger) {
  const TraceRead trace = ReadTrace(played_, {});
  int compared = 0;
  for (const Event& event : CollectEvents(played_.program, played_.timeline, 1)) {
    if (!IsComputeNode(event)) continue;
    for (int i = 0; i < kNumMemoryCategories; ++i) {
      const std::string name = kCounters[i];
      const uint64_t track = trace.Find(RankName(event.rank), name);
      const auto category = static_cast<size_t>(i);
      if (track == 0) {
        EXPECT_EQ(event.during[category], 0);
        continue;
      }
      EXPECT_TRUE(trace.tracks.at(track).counts_bytes);
      EXPECT_EQ(trace.tracks.at(track).share_key, "live memory");
      // The last value written up to a time, in the order of the file.
      const auto value_at = [&](TimeNs time, bool before_next) {
        Bytes value = -1;
        for (const auto& [at, bytes] : trace.counters.at(track)) {
          if (at < time || (at == time && !before_next)) value = bytes;
        }
        return value;
      };
      if (event.end > event.start) {
        EXPECT_EQ(value_at(event.end, true), event.during[category]) << name;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 100);
}

// One flow for each message, from its send to its receive, never backwards.
TEST_P(EverySchedule, FlowsPairUp) {
  for (const bool lanes : {true, false}) {
    const TraceRead trace = ReadTrace(played_, {.communication_lanes = lanes});
    EXPECT_THAT(trace.wrong, IsEmpty());
    size_t messages = 0;
    for (const Event& event : CollectEvents(played_.program, played_.timeline, 1)) {
      messages += event.kind == NodeKind::kSend ? 1 : 0;
    }
    EXPECT_EQ(trace.flow_starts.size(), messages);
    EXPECT_EQ(trace.flow_ends.size(), messages);
    for (const auto& [id, starts] : trace.flow_starts) {
      ASSERT_EQ(starts.size(), 1u);
      ASSERT_THAT(trace.flow_ends, Contains(Key(id)));
      ASSERT_EQ(trace.flow_ends.at(id).size(), 1u);
      EXPECT_LE(starts[0], trace.flow_ends.at(id)[0]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Trace, EverySchedule,
                         testing::Values("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v",
                                         "dualpipe", "dualpipe-v"),
                         [](const auto& schedule) {
                           std::string name = schedule.param;
                           std::erase(name, '-');
                           return name;
                         });

// On the link for 300 ns, under way for 700 more: the send takes the first 300, the receive the
// last.
TEST(Trace, AMessageStandsOnBothLanesForItsTimeOnTheLink) {
  const Played played = Play(ScenarioWithEverything(), "1f1b");
  const TraceRead trace = ReadTrace(played, {});
  const Slice sent = trace.slices.at(trace.Find("rank 0", "send to rank 1")).at(0);
  const Slice received = trace.slices.at(trace.Find("rank 1", "receive from rank 0")).at(0);
  EXPECT_EQ(sent, (Slice{"F0", 9011, 9311}));
  EXPECT_EQ(received, (Slice{"F0", 9711, 10011}));
}

TEST(Trace, NamesStandForTheirOpsAndAreWrittenOnce) {
  const Played played = Play(ScenarioWithEverything(), "zb-v");
  const TraceRead trace = ReadTrace(played, {.title = "a title", .iterations = 2});
  const std::vector<Slice>& slices = trace.slices.at(trace.Find("rank 0", "compute"));
  EXPECT_EQ(slices[0].name, "0F0");
  EXPECT_EQ(slices.back().name, "optimizer");
  // 8 stages x 8 micro-batches x 3 passes, the tail, the title; a second iteration adds none.
  EXPECT_EQ(trace.interned_names, 8u * 8 * 3 + 2 + 1);
}

// Whatever overlaps the window is whole, and nothing else is there.
TEST(Trace, AWindowKeepsWhatOverlapsIt) {
  const Played played = Play(ScenarioWithEverything(), "1f1b");
  const TimeNs from = 60'000, to = 120'000;
  const TraceRead trace = ReadTrace(played, {.from = from, .to = to});
  EXPECT_THAT(trace.wrong, IsEmpty());
  size_t expected = 0, found = 0;
  for (const Event& event : CollectEvents(played.program, played.timeline, 1)) {
    expected += IsComputeNode(event) && event.end >= from && event.start <= to ? 1 : 0;
  }
  for (int rank = 0; rank < 4; ++rank) {
    const auto& slices = trace.slices.at(trace.Find(RankName(rank), "compute"));
    found += slices.size();
    for (const Slice& slice : slices) EXPECT_TRUE(slice.end >= from && slice.start <= to);
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(trace.flow_starts.size(), trace.flow_ends.size());
  // Memory does not begin at nothing: rank 0 holds activations of earlier micro-batches.
  const auto& waiting = trace.counters.at(trace.Find("rank 0", "waiting for B"));
  EXPECT_GT(waiting.front().second, 0);
  EXPECT_THAT(trace.slices.at(trace.Find("", "Spiritlevel")).at(0).name,
              HasSubstr("only 60000 to 120000 ns of"));
}

TEST(Trace, TooManyNodesAreCutToAWindowThatTheFileNames) {
  const Played played = Play(ScenarioWithEverything(), "1f1b");
  const TraceRead all = ReadTrace(played, {});
  const TraceRead cut = ReadTrace(played, {.max_nodes = 20});
  const auto count = [](const TraceRead& trace) {
    size_t slices = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const auto at = trace.slices.find(trace.Find(RankName(rank), "compute"));
      if (at != trace.slices.end()) slices += at->second.size();
    }
    return slices;
  };
  EXPECT_LE(count(cut), 20u);
  EXPECT_GE(count(cut), 16u);
  EXPECT_THAT(all.slices.at(all.Find("", "Spiritlevel")).at(0).name, HasSubstr("all of it"));
  EXPECT_THAT(cut.slices.at(cut.Find("", "Spiritlevel")).at(0).name,
              HasSubstr("since there are " + std::to_string(count(all)) + " nodes"));
}

// What the format costs: ZB-H1, a counter and arrows included, without communication lanes.
TEST(Trace, TakesAtMost70BytesAnOpWithoutLanes) {
  ScenarioForTest scenario = ScenarioWithEverything();
  scenario.ranks = 16;
  scenario.micro_batches = 128;
  scenario.cost = {.forward = 11'307'000,
                   .input_grad = 11'254'000,
                   .weight_grad = 8'101'000,
                   .activation = 1'163'919'360,
                   .weight_state = 503'316'480};
  const Played played = Play(scenario, "zb-h1");
  const std::string file =
      PerfettoTrace(played.program, played.timeline, {.communication_lanes = false});
  EXPECT_LT(file.size(), 70u * 3 * 16 * 128);
}

}  // namespace
}  // namespace spiritlevel
