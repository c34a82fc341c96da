#include "sim/analysis/check_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/sim/played_events.h"

namespace spiritlevel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// --- shapes

TEST(CheckTimeline, AnEmptyTimelineIsAFinding) {
  EXPECT_THAT(Rules(Judge({})), ElementsAre("pass_count"));
  EXPECT_THAT(Words(Judge({})), HasSubstr("the timeline has no ops"));
}

TEST(CheckTimeline, AMicroBatchMissingInTheMiddleOrInOneIterationIsNamed) {
  for (const int iteration : {0, 1}) {
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      std::vector<Event> events = Play(k1F1B, 2);
      ForgetMemory(events);
      std::erase_if(events, [&](const Event& e) {
        return e.kind != NodeKind::kOptimizer && e.kind != NodeKind::kCollective &&
               e.iteration == iteration && e.op.micro_batch == micro_batch;
      });
      const std::vector<Finding> findings = Judge(events);
      EXPECT_THAT(Rules(findings), ElementsAre("pass_count")) << Words(findings);
      EXPECT_THAT(Words(findings),
                  HasSubstr("stage 1, micro-batch " + std::to_string(micro_batch) +
                            " of iteration " + std::to_string(iteration) + ": no ops at all"));
    }
  }
}

TEST(CheckTimeline, AbsurdNumbersCostNoMemory) {
  for (const auto& [iteration, stage, micro_batch] :
       {std::tuple{0, 65535, 2147483647}, std::tuple{2147483647, 0, 0},
        std::tuple{2147483647, 65535, 2147483647}}) {
    std::vector<Event> events = Play(k1F1B);
    events.push_back(events.front());
    events.back().iteration = iteration;
    events.back().op.stage = static_cast<uint16_t>(stage);
    events.back().op.micro_batch = micro_batch;
    EXPECT_THAT(Words(Judge(events)), HasSubstr("are named, but there are only 13 ops"));
  }
}

TEST(CheckTimeline, MessagesOfOpsOutsideTheTimelineDoNotCrash) {
  std::vector<Event> events = Play(k1F1B);
  for (const NodeKind kind : {NodeKind::kSend, NodeKind::kReceive}) {
    Event& end = FindEnd(events, kind, "0F1");
    end.op = {.micro_batch = 2147483647, .stage = 65535, .pass = Pass::kF};
    end.iteration = 2147483647;
  }
  EXPECT_THAT(Words(Judge(events)), HasSubstr("that op never ran"));
}

// --- memory limit

Bytes Peak(const std::vector<Event>& events, int rank) {
  Bytes peak = 0;
  for (const Event& e : events) {
    if (e.rank == rank) peak = std::max(peak, e.live);
  }
  return peak;
}

TEST(CheckTimelineMemory, ALimitOfExactlyThePeakPassesAndOneByteLessFails) {
  const std::vector<Event> events = Play(kZb);
  // Rank 0 holds two micro-batches at its third F at most: 100 static + 2 x 10 waiting for B, and
  // nothing waiting for W by then.
  const Bytes peak = std::max(Peak(events, 0), Peak(events, 1));
  EXPECT_EQ(Peak(events, 0), 120);
  EXPECT_THAT(CheckTimeline(events, peak), IsEmpty());
  const std::vector<Finding> findings = CheckTimeline(events, peak - 1);
  EXPECT_THAT(Rules(findings), ElementsAre("memory_limit"));
}

TEST(CheckTimelineMemory, TheFirstOffenceOfEachRankIsNamedWithOpBytesAndCategory) {
  const std::vector<Event> events = Play(k1F1B, 3);
  const std::vector<Finding> findings = CheckTimeline(events, 109);
  ASSERT_EQ(findings.size(), 2u) << Words(findings);
  EXPECT_EQ(findings[0].what,
            "rank 0: 0F0 of iteration 0 brings live memory to 110 B (110 bytes), over the limit of "
            "109 B; the largest part is parameters, 100 B");
  EXPECT_THAT(findings[1].what, HasSubstr("rank 1: 1F0 of iteration 0 brings live memory to 110"));
}

TEST(CheckTimelineMemory, EachRankHasItsOwnLimit) {
  const std::vector<Event> events = Play(k1F1B, 3);
  const auto findings = [&](std::vector<Bytes> limits) {
    TimelineChecker checker(std::move(limits));
    for (const Event& event : events) checker.Add(event);
    return checker.Finish();
  };
  const std::vector<Bytes> peaks = {Peak(events, 0), Peak(events, 1)};
  EXPECT_THAT(findings(peaks), IsEmpty());
  const std::vector<Finding> found = findings({peaks[0] + 1000, peaks[1] - 1});
  ASSERT_EQ(found.size(), 1u) << Words(found);
  EXPECT_THAT(found[0].what, HasSubstr("rank 1: "));
}

TEST(CheckTimelineMemory, StaticMemoryAloneOverTheLimitIsNamedAtTheFirstOp) {
  const std::vector<Finding> findings = CheckTimeline(Play(k1F1B), 50);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_THAT(findings[0].what, HasSubstr("0F0 of iteration 0"));
}

// --- accounts

StallReport HonestReport(const std::vector<Event>& events, int ranks) {
  StallReport report;
  report.busy.resize(static_cast<size_t>(ranks));
  report.stalls.resize(static_cast<size_t>(ranks));
  for (const Event& e : events) {
    if (e.iteration > 0) continue;
    report.makespan = std::max(report.makespan, e.end);
    if (e.kind == NodeKind::kOp || e.kind == NodeKind::kPair) {
      report.busy[e.rank] += e.end - e.start;
    }
  }
  for (size_t r = 0; r < report.busy.size(); ++r) {
    report.stalls[r][static_cast<size_t>(StallCategory::kTransfer)] = 1;
    report.stalls[r][static_cast<size_t>(StallCategory::kDependency)] =
        report.makespan - report.busy[r] - 1;
  }
  return report;
}

TEST(CheckAccounts, BusyAndStallsThatSumToTheMakespanPass) {
  for (const std::string_view orders : {k1F1B, kZb, kV, kPairs, kBidirectional}) {
    const std::vector<Event> events = Play(orders, 2);
    const auto findings = CheckAccounts(events, HonestReport(events, 2));
    EXPECT_THAT(findings, IsEmpty()) << Words(findings);
  }
}

TEST(CheckAccounts, ANanosecondOffAnywhereIsNamed) {
  const std::vector<Event> events = Play(kZb, 2);
  const StallReport honest = HonestReport(events, 2);
  const auto check = [&](const std::function<void(StallReport&)>& plant) {
    StallReport report = honest;
    plant(report);
    const std::vector<Finding> findings = CheckAccounts(events, report);
    EXPECT_THAT(Rules(findings), ElementsAre("accounts"));
    return Words(findings);
  };
  EXPECT_THAT(check([](StallReport& r) { ++r.stalls[1][0]; }), HasSubstr("rank 1: busy 33 ns + "));
  EXPECT_THAT(check([](StallReport& r) { ++r.busy[0], --r.stalls[0][0]; }),
              HasSubstr("rank 0: busy time is 34 ns by the accounts and 33 ns by the events"));
  EXPECT_THAT(check([](StallReport& r) {
                ++r.makespan;
                for (StallsByCategory& stalls : r.stalls) ++stalls[0];
              }),
              HasSubstr("the makespan is"));
  EXPECT_THAT(check([](StallReport& r) { r.stalls[0][2] -= 5, r.stalls[0][0] += 5; }),
              HasSubstr("rank 0: -4 ns of "));
}

TEST(CheckAccounts, TheWrongNumberOfRanksIsNamed) {
  const std::vector<Event> events = Play(kZb);
  StallReport one = HonestReport(events, 2);
  one.busy.pop_back();
  one.stalls.pop_back();
  EXPECT_THAT(Words(CheckAccounts(events, one)), HasSubstr("accounts are of 1 ranks"));
  EXPECT_THAT(Rules(CheckAccounts(events, StallReport{})), ElementsAre("accounts"));
}

TEST(CheckAccounts, TimeZeroMayLieAnywhere) {
  std::vector<Event> events = Play(kZb);
  const StallReport honest = HonestReport(events, 2);
  for (Event& e : events) {
    for (TimeNs* t : {&e.ready, &e.issue, &e.start, &e.end}) *t += 123'456'789;
  }
  EXPECT_THAT(CheckAccounts(events, honest), IsEmpty());
}

}  // namespace
}  // namespace spiritlevel
