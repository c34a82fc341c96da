#include "report/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/event.h"
#include "tests/report/comparison_for_test.h"
#include "tests/report/sums_for_test.h"
#include "tests/report/trace_reader_for_test.h"

namespace spiritlevel {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;

TraceRead ReadTrace(const PlayedForTest& played, const TraceOptions& options) {
  return spiritlevel::ReadTrace(PerfettoTrace(played.program, played.timeline, options));
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
  PlayedForTest played_ = Play(ScenarioWithEverything(), GetParam());
};

TEST_P(EverySchedule, HasASliceForEachNodeAtItsTime) {
  const TraceRead trace = ReadTrace(played_, {.iterations = 2});
  EXPECT_THAT(trace.wrong, IsEmpty());
  std::map<int, std::vector<std::pair<TimeNs, TimeNs>>> expected;
  for (const Event& event : CollectEvents(played_.program, played_.timeline, 2)) {
    if (IsComputeNode(event)) expected[event.rank].emplace_back(event.start, event.end);
  }
  for (const auto& [rank, times] : expected) {
    const std::vector<SliceRead>& slices = trace.slices.at(trace.Find(RankName(rank), "compute"));
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
  const PlayedForTest played = Play(ScenarioWithEverything(), "1f1b");
  const TraceRead trace = ReadTrace(played, {});
  const SliceRead sent = trace.slices.at(trace.Find("rank 0", "send to rank 1")).at(0);
  const SliceRead received = trace.slices.at(trace.Find("rank 1", "receive from rank 0")).at(0);
  EXPECT_EQ(sent, (SliceRead{"F0", 9011, 9311}));
  EXPECT_EQ(received, (SliceRead{"F0", 9711, 10011}));
}

TEST(Trace, NamesStandForTheirOps) {
  const PlayedForTest played = Play(ScenarioWithEverything(), "zb-v");
  const TraceRead trace = ReadTrace(played, {.title = "a title", .iterations = 2});
  const std::vector<SliceRead>& slices = trace.slices.at(trace.Find("rank 0", "compute"));
  EXPECT_EQ(slices[0].name, "0F0");
  EXPECT_EQ(slices.back().name, "optimizer");
  EXPECT_EQ(slices[slices.size() - 2].name, "barrier");
}

// A sequence, which is a track, writes each name once: on rank 0's compute lane those of 2 stages x
// 8 micro-batches x 3 passes and of the tail. Over fewer iterations that would take more room.
TEST(Trace, NamesOfFourIterationsAreWrittenOnceATrack) {
  const PlayedForTest played = Play(ScenarioWithEverything(), "zb-v");
  const TraceOptions without_lanes{.iterations = 4, .communication_lanes = false};
  const TraceRead trace = ReadTrace(played, without_lanes);
  EXPECT_THAT(trace.wrong, IsEmpty());
  EXPECT_EQ(trace.interned_names, 4u * (2 * 8 * 3 + 2) + 1);
  EXPECT_EQ(ReadTrace(played, {.iterations = 3}).interned_names, 0u);
  EXPECT_EQ(trace.SlicesOf("rank 2", "compute").size(), 4u * (2 * 8 * 3 + 2));
  EXPECT_EQ(trace.SlicesOf("rank 0", "compute")[50].name, "0F0");
}

// Whatever overlaps the window is whole, and nothing else is there.
TEST(Trace, AWindowKeepsWhatOverlapsIt) {
  const PlayedForTest played = Play(ScenarioWithEverything(), "1f1b");
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
    for (const SliceRead& slice : slices) EXPECT_TRUE(slice.end >= from && slice.start <= to);
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
  const PlayedForTest played = Play(ScenarioWithEverything(), "1f1b");
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

// What the format costs: ZB-H1, counters and arrows included.
TEST(Trace, TakesAtMost52BytesAnOpWithoutLanesAnd95With) {
  ScenarioForTest scenario = ScenarioWithEverything();
  scenario.ranks = 16;
  scenario.micro_batches = 128;
  scenario.cost = {.forward = 11'307'000,
                   .input_grad = 11'254'000,
                   .weight_grad = 8'101'000,
                   .activation = 1'163'919'360,
                   .weight_state = 503'316'480};
  const PlayedForTest played = Play(scenario, "zb-h1");
  const auto bytes_an_op = [&](bool lanes) {
    const TraceOptions options{.communication_lanes = lanes};
    const std::string file = PerfettoTrace(played.program, played.timeline, options);
    return static_cast<double>(file.size()) / (3 * 16 * 128);
  };
  EXPECT_LT(bytes_an_op(false), 52);
  EXPECT_LT(bytes_an_op(true), 95);
}

// The same in whole microseconds: the file counts in them.
TEST(Trace, TimesInACoarserUnitTakeFewerBytesAndStayExact) {
  ScenarioForTest scenario = ScenarioWithEverything();
  const PlayedForTest fine = Play(scenario, "zb-v");
  scenario.cost.forward *= 1000;
  scenario.cost.input_grad *= 1000;
  scenario.cost.weight_grad *= 1000;
  scenario.common.hop.latency *= 1000;
  scenario.common.hop.busy *= 1000;
  scenario.common.launch *= 1000;
  scenario.common.optimizer *= 1000;
  scenario.common.barrier *= 1000;
  const PlayedForTest coarse = Play(scenario, "zb-v");
  const TraceRead trace = ReadTrace(coarse, {}), expected = ReadTrace(fine, {});
  EXPECT_THAT(trace.wrong, IsEmpty());
  for (const auto& [track, slices] : expected.slices) {
    if (trace.tracks.at(track).name == "Spiritlevel") continue;
    ASSERT_EQ(trace.slices.at(track).size(), slices.size());
    for (size_t i = 0; i < slices.size(); ++i) {
      ASSERT_EQ(trace.slices.at(track)[i].start, 1000 * slices[i].start);
      ASSERT_EQ(trace.slices.at(track)[i].end, 1000 * slices[i].end);
    }
  }
  // But for what the file says about itself, and the unit of each of its 4 + 14 sequences.
  const size_t more = PerfettoTrace(coarse.program, coarse.timeline, {}).size() -
                      PerfettoTrace(fine.program, fine.timeline, {}).size();
  EXPECT_LT(more, 100u);
}

// However messages are posted, lanes are in the order of time and their slices do not overlap.
TEST(Trace, IsWellFormedUnderEveryPosting) {
  for (const std::string_view schedule : {"1f1b", "zb-h1", "interleaved"}) {
    for (const Posting posting : {Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched}) {
      if (posting == Posting::kBatched && schedule == "interleaved") continue;  // it deadlocks
      SCOPED_TRACE(std::string(schedule) + ", " + std::string(Name(posting)));
      const PlayedWithSums played = Play(SumsForTest{
          .schedule = schedule, .options = {.posting = posting, .receives = Receives::kDeferred}});
      const TraceRead trace =
          spiritlevel::ReadTrace(PerfettoTrace(played.program, played.timeline, {.iterations = 2}));
      EXPECT_THAT(trace.wrong, IsEmpty());
      EXPECT_GE(trace.flow_starts.size(), 2u * 8 * 2 * 3);  // both ways over three hops
      EXPECT_EQ(trace.flow_starts.size(), trace.flow_ends.size());
    }
  }
}

TraceRead ReadTrace(const PlayedWithSums& played, const TraceOptions& options) {
  return spiritlevel::ReadTrace(PerfettoTrace(played.program, played.timeline, options));
}

// Each event of a compute lane and each sum under the name that the page has for it, too, at its
// time, sums with their bytes.
TEST(TraceOfSums, EverythingThatAProgramHoldsIsThereByName) {
  std::map<NodeKind, int> compared;
  for (const SumsForTest& scenario : EverythingOnAPage()) {
    SCOPED_TRACE(scenario.schedule);
    const PlayedWithSums played = Play(scenario);
    const TraceRead trace = ReadTrace(played, {.iterations = 2});
    EXPECT_THAT(trace.wrong, IsEmpty());
    const auto op = [&](const Op& o) {
      const bool one_stage = scenario.schedule == "1f1b" || scenario.schedule.starts_with("zb");
      return (one_stage ? "" : std::to_string(o.stage)) + std::string(Name(o.pass)) +
             std::to_string(o.micro_batch);
    };
    std::map<std::pair<int, std::string>, size_t> next;
    for (const Event& event : CollectEvents(played.program, played.timeline, 2)) {
      std::string track = "compute", name;
      switch (event.kind) {
        case NodeKind::kPart:
          name = op(event.op) + " part " + std::to_string(event.part.index + 1) + " of 3";
          break;
        case NodeKind::kDroppedOp:
          name = "dropped " + op(event.op);
          break;
        case NodeKind::kValidation:
          name = "validation";
          break;
        case NodeKind::kRollback:
          name = "rollback";
          break;
        case NodeKind::kBucketSum:
          track = "gradient sums";
          name = "sum of bucket " + std::to_string(event.gradient_bucket) + " of stage " +
                 std::to_string(event.op.stage);
          break;
        case NodeKind::kTwinSum:
          track = "between ranks";
          name = "sum of stage " + std::to_string(event.op.stage);
          break;
        case NodeKind::kTiedSum:
          track = "between ranks";
          name = "sum of the tied embedding, stage " + std::to_string(event.op.stage);
          break;
        case NodeKind::kReduction:
          track = "validated reduction";
          name = "reduction of iteration " + std::to_string(event.iteration);
          break;
        case NodeKind::kSend:
        case NodeKind::kReceive:
          continue;
        default:
          break;
      }
      const std::vector<SliceRead> slices = trace.SlicesOf(RankName(event.rank), track);
      const size_t i = next[{event.rank, track}]++;
      ASSERT_LT(i, slices.size()) << track;
      if (!name.empty()) {
        ASSERT_EQ(slices[i].name, name);
        ++compared[event.kind];
      }
      ASSERT_EQ(slices[i].start, event.start);
      ASSERT_EQ(slices[i].end, event.end);
      if (track != "compute") {
        ASSERT_EQ(slices[i].bytes, event.bytes) << name;
      }
    }
    for (const auto& [track, count] : next) {
      EXPECT_EQ(trace.SlicesOf(RankName(track.first), track.second).size(), count) << track.second;
    }
  }
  for (const NodeKind kind :
       {NodeKind::kPart, NodeKind::kDroppedOp, NodeKind::kValidation, NodeKind::kRollback,
        NodeKind::kBucketSum, NodeKind::kTwinSum, NodeKind::kTiedSum, NodeKind::kReduction}) {
    EXPECT_GT(compared[kind], 3) << "kind " << static_cast<int>(kind);
  }
}

// Each counter stands at what the ledger says after every node, static and transient memory of
// several categories included: values that ride along with an event go to the right counters.
TEST(TraceOfSums, CountersOfAllCategoriesAreTheLedger) {
  for (const SumsForTest& scenario : EverythingOnAPage()) {
    SCOPED_TRACE(scenario.schedule);
    const PlayedWithSums played = Play(scenario);
    const TraceRead trace = ReadTrace(played, {.iterations = 2});
    int compared = 0;
    for (const Event& event : CollectEvents(played.program, played.timeline, 2)) {
      if (!RunsOps(event.kind) && event.kind != NodeKind::kDroppedOp) continue;
      for (size_t i = 0; i < kNumMemoryCategories; ++i) {
        const auto track = trace.counters.find(trace.Find(RankName(event.rank), kCounters[i]));
        if (track == trace.counters.end()) {
          ASSERT_EQ(event.during[i], 0);
          continue;
        }
        Bytes value = -1;
        for (const auto& [at, bytes] : track->second) {
          if (at < event.end) value = bytes;
        }
        ASSERT_EQ(value, event.during[i]) << kCounters[i];
        ++compared;
      }
    }
    EXPECT_GT(compared, 500);
  }
}

TEST(TraceOfSums, WithoutAnyThereAreNoTracksForThem) {
  const TraceRead trace = ReadTrace(Play(ScenarioWithEverything(), "1f1b"), {});
  for (const char* track : {"gradient sums", "between ranks", "validated reduction"}) {
    EXPECT_EQ(trace.Find("rank 0", track), 0u) << track;
  }
}

// The reader takes no file in which a packet is missing that others need: of the first 60, which
// describe tracks and begin sequences, any but the instant that says what the file shows.
TEST(TraceOfSums, TheReaderMissesStateThatIsNotThere) {
  const PlayedForTest played = Play(ScenarioWithEverything(), "1f1b");
  const std::string file = PerfettoTrace(played.program, played.timeline,
                                         {.iterations = 4, .communication_lanes = true});
  ASSERT_THAT(spiritlevel::ReadTrace(file).wrong, IsEmpty());
  int noticed = 0, packets = 0;
  for (size_t at = 0; at < file.size() && packets < 60; ++packets) {
    size_t length = static_cast<unsigned char>(file[at + 1]), head = 2;
    if (length >= 128) {
      length = (length & 127) | static_cast<size_t>(static_cast<unsigned char>(file[at + 2])) << 7;
      head = 3;
    }
    std::string cut = file;
    cut.erase(at, head + length);
    noticed += spiritlevel::ReadTrace(cut).wrong.empty() ? 0 : 1;
    at += head + length;
  }
  EXPECT_EQ(noticed, packets - 1);
}

}  // namespace
}  // namespace spiritlevel
