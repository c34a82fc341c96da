#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "report/html.h"
#include "sim/event.h"
#include "tests/report/page_for_test.h"
#include "tests/report/sums_for_test.h"

namespace spiritlevel {
namespace {

// Reads a packed run as the list at the head of html_pack.cc says; written from that list alone.
class Unpacker {
 public:
  struct NodeRead {
    uint64_t kind = 0;
    std::vector<Op> ops{};
    TimeNs start = 0;
    TimeNs end = 0;
    MemoryByCategory during{};
    MemoryByCategory after{};
    TimeNs launch = 0;
    TimeNs transfer = 0;
    int64_t cause_rank = -1;
    int64_t cause_node = 0;
    Part part{};
  };

  struct SumRead {
    uint64_t kind = 0;
    uint64_t iteration = 0;
    int64_t stage = 0;
    int64_t bucket = 0;
    Bytes bytes = 0;
    int64_t collective = 0;
    TimeNs start = 0;
    TimeNs end = 0;
    TimeNs waited = 0;
  };

  explicit Unpacker(std::string bytes) : bytes_(std::move(bytes)) {
    const uint64_t ranks = Number();
    EXPECT_EQ(Number(), static_cast<uint64_t>(kNumMemoryCategories));
    const uint64_t iterations = Number();
    shapes_.resize(Number());
    for (auto& shape : shapes_) {
      for (int i = 0; i < 7; ++i) shape.push_back(Number());
      for (int i = 0; i < 2; ++i) shape.push_back(shape[0] == 2 ? Number() : 0);
    }
    changes_.resize(Number());
    for (auto& change : changes_) {
      for (MemoryByCategory& part : change) part = Memory();
    }
    for (uint64_t r = 0; r < ranks; ++r) ReadRank(ranks, iterations);
    for (uint64_t r = 0; r < ranks; ++r) ReadSums();
  }

  bool at_end() const { return at_ == bytes_.size(); }
  const std::vector<std::vector<NodeRead>>& ranks() const { return ranks_; }
  // By rank and iteration.
  const std::vector<std::vector<uint64_t>>& nodes_of() const { return nodes_of_; }
  const std::vector<std::vector<SumRead>>& sums() const { return sums_; }

 private:
  uint64_t Number() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.at(at_++));
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }
  int64_t Signed() {
    const uint64_t value = Number();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
  MemoryByCategory Memory() {
    MemoryByCategory memory{};
    for (Bytes& bytes : memory) bytes = Signed();
    return memory;
  }

  Op MakeOp(uint64_t pass, uint64_t stage, int64_t micro_batch) const {
    return {.micro_batch = static_cast<int32_t>(micro_batch),
            .stage = static_cast<uint16_t>(stage),
            .pass = static_cast<Pass>(pass - 1)};
  }

  void ReadRank(uint64_t ranks, uint64_t iterations) {
    struct Last {
      int64_t first = 0;
      int64_t second = 0;
      TimeNs duration = 0;
    };
    std::vector<Last> last(shapes_.size());
    std::vector<int64_t> last_cause(ranks, 0);
    std::vector<NodeRead>& nodes = ranks_.emplace_back();
    MemoryByCategory live = Memory();
    std::vector<uint64_t>& nodes_of = nodes_of_.emplace_back();
    for (uint64_t i = 0; i < iterations; ++i) nodes_of.push_back(Number());
    TimeNs free = 0;
    for (uint64_t left = std::accumulate(nodes_of.begin(), nodes_of.end(), uint64_t{0}); left > 0;
         --left) {
      NodeRead& node = nodes.emplace_back();
      const uint64_t shape_number = Number();
      const std::vector<uint64_t>& shape = shapes_.at(shape_number);
      Last& of = last[shape_number];
      node.kind = shape[0];
      node.part = {.index = static_cast<int32_t>(shape[7]),
                   .count = static_cast<int32_t>(shape[8])};
      if (node.kind <= 3) node.ops.push_back(MakeOp(shape[1], shape[3], of.first += Signed()));
      if (node.kind == 1) node.ops.push_back(MakeOp(shape[2], shape[5], of.second += Signed()));
      const TimeNs gap = Signed();
      of.duration += Signed();
      node.start = free + gap;
      node.end = free = node.start + of.duration;
      const auto& change = changes_.at(Number());
      for (size_t i = 0; i < live.size(); ++i) {
        node.during[i] = live[i] + change[0][i];
        node.after[i] = live[i] = node.during[i] + change[1][i];
      }
      if (gap == 0) continue;
      node.launch = static_cast<TimeNs>(Number());
      node.transfer = static_cast<TimeNs>(Number());
      node.cause_rank = static_cast<int64_t>(Number()) - 1;
      if (node.cause_rank < 0) continue;
      node.cause_node = last_cause[static_cast<size_t>(node.cause_rank)] += Signed();
    }
  }

  void ReadSums() {
    std::vector<SumRead>& sums = sums_.emplace_back();
    std::array<TimeNs, 4> last_end{};
    int64_t collective = 0;
    for (uint64_t left = Number(); left > 0; --left) {
      SumRead& sum = sums.emplace_back();
      sum.kind = Number();
      sum.iteration = Number();
      sum.stage = static_cast<int64_t>(Number()) - 1;
      sum.bucket = static_cast<int64_t>(Number()) - 1;
      sum.bytes = static_cast<Bytes>(Number());
      sum.collective = collective += Signed();
      sum.start = last_end.at(sum.kind) + Signed();
      sum.waited = static_cast<TimeNs>(Number());
      sum.end = last_end.at(sum.kind) = sum.start + static_cast<TimeNs>(Number());
    }
  }

  std::string bytes_;
  size_t at_ = 0;
  std::vector<std::vector<uint64_t>> shapes_;
  std::vector<std::array<MemoryByCategory, 2>> changes_;
  std::vector<std::vector<NodeRead>> ranks_;
  std::vector<std::vector<uint64_t>> nodes_of_;
  std::vector<std::vector<SumRead>> sums_;
};

bool IsComputeNode(const Event& event) {
  return event.kind != NodeKind::kSend && event.kind != NodeKind::kReceive;
}

// Every schedule, two iterations, against the events, which are read by other code.
TEST(PackRun, KeepsEveryTimeOpAndByteOfTheRun) {
  const ScenarioForTest scenario = UnevenScenario();
  for (const ScheduleInfo& info : AllSchedules()) {
    SCOPED_TRACE(info.name);
    if (!ResultOf(scenario, info.name).summary) continue;
    const PlayedForTest played = Play(scenario, info.name);
    const Unpacker unpacked(PackRun(played.program, played.timeline, 2).packed);
    EXPECT_TRUE(unpacked.at_end());
    std::vector<size_t> next(unpacked.ranks().size(), 0);
    for (const Event& event : CollectEvents(played.program, played.timeline, 2)) {
      if (!IsComputeNode(event)) continue;
      const auto rank = static_cast<size_t>(event.rank);
      const Unpacker::NodeRead& node = unpacked.ranks()[rank].at(next[rank]++);
      ASSERT_EQ(node.start, event.start);
      ASSERT_EQ(node.end, event.end);
      ASSERT_EQ(node.during, event.during);
      ASSERT_EQ(node.after, event.after);
      ASSERT_EQ(node.launch, event.start - event.issue);
      ASSERT_EQ(node.ops.size(), event.kind == NodeKind::kPair ? 2u
                                 : event.kind == NodeKind::kOp ? 1u
                                                               : 0u);
      const std::vector<Op> ops = {event.op, event.second};
      for (size_t i = 0; i < node.ops.size(); ++i) {
        ASSERT_EQ(ToString(node.ops[i]), ToString(ops[i]));
      }
    }
    for (size_t rank = 0; rank < next.size(); ++rank) {
      EXPECT_EQ(next[rank], unpacked.ranks()[rank].size());
      EXPECT_EQ(next[rank], 2 * unpacked.nodes_of()[rank][0]);
    }
  }
}

// By category the waits of the first iteration's ops are the stalls of the report: what the page
// shows for an op is a piece of what its bars show for a rank.
TEST(PackRun, WaitsOfOpsSumToTheStallsOfTheirRank) {
  const ScenarioForTest scenario = UnevenScenario();
  for (const std::string name : {"1f1b", "zb-h1", "zb-v"}) {
    const PlayedForTest played = Play(scenario, name);
    const StallReport stalls = ResultOf(scenario, name).summary->stalls;
    const Unpacker unpacked(PackRun(played.program, played.timeline, 1).packed);
    for (size_t rank = 0; rank < unpacked.ranks().size(); ++rank) {
      TimeNs launch = 0, transfer = 0;
      for (const Unpacker::NodeRead& node : unpacked.ranks()[rank]) {
        launch += node.launch;
        transfer += node.transfer;
      }
      EXPECT_EQ(launch, stalls.stalls[rank][static_cast<size_t>(StallCategory::kLaunch)]) << name;
      EXPECT_EQ(transfer, stalls.stalls[rank][static_cast<size_t>(StallCategory::kTransfer)])
          << name;
    }
  }
}

// The op that a wait is put down to makes what the waiting op reads, and ends before it begins.
TEST(PackRun, TheCauseOfAWaitIsTheProducerOfTheInput) {
  const PlayedForTest played = Play(UnevenScenario(), "zb-v");
  const Unpacker unpacked(PackRun(played.program, played.timeline, 1).packed);
  int causes = 0;
  for (const auto& rank : unpacked.ranks()) {
    for (const Unpacker::NodeRead& node : rank) {
      if (node.cause_rank < 0) continue;
      ++causes;
      const Unpacker::NodeRead& cause = unpacked.ranks()
                                            .at(static_cast<size_t>(node.cause_rank))
                                            .at(static_cast<size_t>(node.cause_node));
      const bool forward = node.ops[0].pass == Pass::kF;
      EXPECT_EQ(cause.ops[0].stage, node.ops[0].stage + (forward ? -1 : 1));
      EXPECT_EQ(cause.ops[0].micro_batch, node.ops[0].micro_batch);
      EXPECT_LE(cause.end, node.start);
    }
  }
  EXPECT_GT(causes, 10);
}

// As the list at the head of html_pack.cc numbers them; -1 is not packed.
int NumberOf(NodeKind kind) {
  switch (kind) {
    case NodeKind::kOp:
    case NodeKind::kBucketSum:
      return 0;
    case NodeKind::kPair:
    case NodeKind::kTwinSum:
      return 1;
    case NodeKind::kPart:
    case NodeKind::kTiedSum:
      return 2;
    case NodeKind::kDroppedOp:
    case NodeKind::kReduction:
      return 3;
    case NodeKind::kCollective:
      return 4;
    case NodeKind::kOptimizer:
      return 5;
    case NodeKind::kValidation:
      return 6;
    case NodeKind::kRollback:
      return 7;
    default:
      return -1;
  }
}

// Parts with their places, dropped ops, rollbacks, and every sum, against the events, which are
// read by other code. Of the rejected run the second iteration is longer than the first.
TEST(PackRun, KeepsEverythingThatAProgramHolds) {
  std::map<NodeKind, int> seen;
  for (const SumsForTest& scenario : EverythingOnAPage()) {
    SCOPED_TRACE(std::string(scenario.schedule) + ", " + std::string(Name(scenario.options.tail)));
    const PlayedWithSums played = Play(scenario);
    const Unpacker unpacked(PackRun(played.program, played.timeline, 2).packed);
    EXPECT_TRUE(unpacked.at_end());
    std::vector<size_t> next_node(unpacked.ranks().size(), 0), next_sum = next_node;
    std::vector<std::vector<uint64_t>> nodes_of(next_node.size(), {0, 0});
    std::map<std::pair<int32_t, int64_t>, int32_t> collectives;
    for (const Event& event : CollectEvents(played.program, played.timeline, 2)) {
      const auto rank = static_cast<size_t>(event.rank);
      const auto kind = static_cast<uint64_t>(NumberOf(event.kind));
      if (!IsComputeNode(event)) continue;
      ++seen[event.kind];
      if (event.kind == NodeKind::kReduction || SumsGradients(event.kind)) {
        const Unpacker::SumRead& sum = unpacked.sums()[rank].at(next_sum[rank]++);
        ASSERT_EQ(sum.kind, kind);
        ASSERT_EQ(sum.iteration, static_cast<uint64_t>(event.iteration));
        ASSERT_EQ(sum.start, event.start);
        ASSERT_EQ(sum.end, event.end);
        ASSERT_EQ(sum.bytes, event.bytes);
        ASSERT_EQ(sum.bucket, event.gradient_bucket);
        ASSERT_LE(sum.waited, event.start - event.ready);
        if (event.kind != NodeKind::kReduction) {
          ASSERT_EQ(sum.stage, event.op.stage);
        }
        // Ranks share a number exactly where they share a collective.
        const auto key = std::pair(event.iteration, sum.collective);
        ASSERT_EQ(collectives.try_emplace(key, event.collective).first->second, event.collective);
        continue;
      }
      ++nodes_of[rank][static_cast<size_t>(event.iteration)];
      const Unpacker::NodeRead& node = unpacked.ranks()[rank].at(next_node[rank]++);
      ASSERT_EQ(node.kind, kind);
      ASSERT_EQ(node.start, event.start);
      ASSERT_EQ(node.end, event.end);
      ASSERT_EQ(node.during, event.during);
      ASSERT_EQ(node.after, event.after);
      if (!node.ops.empty()) {
        ASSERT_EQ(ToString(node.ops[0]), ToString(event.op));
      }
      if (event.kind != NodeKind::kPart) continue;
      ASSERT_EQ(node.part.index, event.part.index);
      ASSERT_EQ(node.part.count, event.part.count);
    }
    EXPECT_EQ(unpacked.nodes_of(), nodes_of);
    for (size_t rank = 0; rank < next_sum.size(); ++rank) {
      EXPECT_EQ(next_sum[rank], unpacked.sums()[rank].size());
    }
  }
  for (const NodeKind kind : {NodeKind::kPair, NodeKind::kPart, NodeKind::kDroppedOp,
                              NodeKind::kValidation, NodeKind::kRollback, NodeKind::kBucketSum,
                              NodeKind::kTwinSum, NodeKind::kTiedSum, NodeKind::kReduction}) {
    EXPECT_GT(seen[kind], 3) << "kind " << static_cast<int>(kind);
  }
}

// 1F1B: of the two ends of the pipeline, whose embedding is one, the last has its gradients long
// before the first, and waits for it; bucket sums have no other member to wait for.
TEST(PackRun, ASumWaitsForItsOtherMembersOnly) {
  const PlayedWithSums played = Play(SumsForTest{.schedule = "1f1b"});
  const Unpacker unpacked(PackRun(played.program, played.timeline, 1).packed);
  std::map<size_t, TimeNs> waited;
  for (size_t rank = 0; rank < 4; ++rank) {
    for (const Unpacker::SumRead& sum : unpacked.sums()[rank]) {
      if (sum.kind == 2) {
        waited[rank] = sum.waited;
      } else {
        EXPECT_EQ(sum.waited, 0);
      }
    }
  }
  ASSERT_EQ(waited.size(), 2u);
  EXPECT_EQ(waited.at(0), 0);
  const auto last_bucket_end = [&](size_t rank) { return unpacked.sums()[rank].at(2).end; };
  EXPECT_EQ(waited.at(3), last_bucket_end(0) - last_bucket_end(3));
  EXPECT_GT(waited.at(3), 0);
}

// An op that is cut into parts is still one.
TEST(PackRun, CountsAnOpOnceHoweverManyPartsItHas) {
  for (const bool buckets : {false, true}) {
    const PlayedWithSums played = Play(SumsForTest{.schedule = "zb-h1", .buckets = buckets});
    EXPECT_EQ(PackRun(played.program, played.timeline, 1).ops, 4 * 8 * 3);
  }
}

}  // namespace
}  // namespace spiritlevel
