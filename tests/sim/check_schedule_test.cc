#include "sim/analysis/check_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace spiritlevel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

ScheduleVerdict Check(std::string_view text) { return CheckSchedule(ParseOrders(text)); }

std::vector<std::string> Rules(const ScheduleVerdict& verdict) {
  std::set<std::string> rules;
  for (const Finding& finding : verdict.findings) rules.insert(finding.rule);
  return {rules.begin(), rules.end()};
}

std::string Words(const ScheduleVerdict& verdict) {
  std::string words;
  for (const Finding& f : verdict.findings) words += f.rule + ": " + f.what + "\n";
  return words;
}

Op MakeOp(int stage, Pass pass, int micro_batch) {
  return {.micro_batch = micro_batch, .stage = static_cast<uint16_t>(stage), .pass = pass};
}

// Every micro-batch goes all the way through and back before the next: the slowest schedule there
// is, and legal for any placement. `rank_of(stage, micro_batch)`.
template <class RankOf>
Orders OneAfterTheOther(int ranks, int stages, int micro_batches, bool split, RankOf rank_of) {
  Orders orders(static_cast<size_t>(ranks));
  for (int i = 0; i < micro_batches; ++i) {
    for (int s = 0; s < stages; ++s) orders[rank_of(s, i)].push_back(MakeOp(s, Pass::kF, i));
    for (int s = stages - 1; s >= 0; --s) {
      std::vector<Op>& row = orders[rank_of(s, i)];
      row.push_back(MakeOp(s, split ? Pass::kB : Pass::kBW, i));
      if (split) row.push_back(MakeOp(s, Pass::kW, i));
    }
  }
  return orders;
}

Orders Linear(int ranks, int micro_batches, bool split) {
  return OneAfterTheOther(ranks, ranks, micro_batches, split, [](int s, int) { return s; });
}

// --- legal orders

constexpr std::string_view k1F1B =
    "0F0 0F1 0BW0 0F2 0BW1 0BW2\n"
    "1F0 1BW0 1F1 1BW1 1F2 1BW2\n";

TEST(CheckSchedule, OneFOneBIsLegalAndDescribed) {
  const ScheduleVerdict v = Check(k1F1B);
  EXPECT_TRUE(v.legal()) << Words(v);
  EXPECT_EQ(v.placement, PlacementKind::kLinear);
  EXPECT_EQ(v.ranks, 2);
  EXPECT_EQ(v.stages, 2);
  EXPECT_EQ(v.micro_batches, 3);
  EXPECT_EQ(v.chunks_per_rank, 1);
  EXPECT_EQ(v.description,
            "2 ranks, 2 stages, one chunk per rank, linear; backward fused (BW); 3 micro-batches");
}

TEST(CheckSchedule, SplitFusedAndMixedBackwardsAreToldApart) {
  EXPECT_THAT(Check("0F0 0B0 0W0 0F1 0B1 0W1\n").description, HasSubstr("; F, B, W split;"));
  EXPECT_THAT(Check("0F0 0BW0 0F1 0BW1\n").description, HasSubstr("; backward fused (BW);"));
  const ScheduleVerdict mixed = Check("0F0 0BW0 0F1 0B1 0W1\n");
  EXPECT_TRUE(mixed.legal()) << Words(mixed);
  EXPECT_THAT(mixed.description, HasSubstr("; F, B, W and BW mixed (1 of 2 backwards fused);"));
}

TEST(CheckSchedule, AllForwardsFirstIsSaidToKeepEverythingAlive) {
  constexpr std::string_view kNote = "all forwards first (GPipe-like): every activation is live";
  EXPECT_THAT(Check("0F0 0F1 0BW0 0BW1\n1F0 1F1 1BW0 1BW1\n").description, HasSubstr(kNote));
  EXPECT_THAT(Check(k1F1B).description, Not(HasSubstr(kNote)));
  EXPECT_THAT(Check("0F0 0BW0\n1F0 1BW0\n").description, Not(HasSubstr(kNote)))
      << "one micro-batch leaves no choice";
}

TEST(CheckSchedule, PairsCountAsOneOpAndAreCounted) {
  const ScheduleVerdict v = Check(
      "0F0 0F1 (0F2;0BW0) 0BW1 0BW2\n"
      "1F0 (1BW0;1F1) 1BW1 1F2 1BW2\n");
  EXPECT_TRUE(v.legal()) << Words(v);
  EXPECT_THAT(v.description, HasSubstr("; 2 F&B pairs; 3 micro-batches"));
}

// --- placements

TEST(CheckSchedulePlacement, EveryKindIsFoundForManyShapes) {
  for (int p = 2; p <= 5; ++p) {
    for (int v = 1; v <= 4; ++v) {
      SCOPED_TRACE(testing::Message() << p << " ranks, " << v << " chunks");
      const auto looped =
          CheckSchedule(OneAfterTheOther(p, p * v, 3, true, [p](int s, int) { return s % p; }));
      EXPECT_TRUE(looped.legal()) << Words(looped);
      EXPECT_EQ(looped.placement, v == 1 ? PlacementKind::kLinear : PlacementKind::kLooped);
      EXPECT_EQ(looped.chunks_per_rank, v);
      if (v == 1) continue;
      // Down the ranks and up again: 0 1 2 2 1 0 0 1 2 ...
      const auto zigzag = CheckSchedule(OneAfterTheOther(p, p * v, 3, true, [p](int s, int) {
        const int turn = s % (2 * p);
        return turn < p ? turn : 2 * p - 1 - turn;
      }));
      EXPECT_TRUE(zigzag.legal()) << Words(zigzag);
      EXPECT_EQ(zigzag.placement, PlacementKind::kV);
      EXPECT_EQ(zigzag.chunks_per_rank, v);
    }
  }
}

TEST(CheckSchedulePlacement, VWithThreeChunksHoldsStagesRAndBackAndAgain) {
  // p = 2: rank 0 holds 0, 3, 4 and rank 1 holds 1, 2, 5.
  const ScheduleVerdict v = Check(
      "0F0 3F0 4F0 4BW0 3BW0 0BW0\n"
      "1F0 2F0 5F0 5BW0 2BW0 1BW0\n");
  EXPECT_TRUE(v.legal()) << Words(v);
  EXPECT_EQ(v.placement, PlacementKind::kV);
  EXPECT_THAT(v.description,
              HasSubstr("three chunks per rank, V placement: this is not ZB-V, which has two"));
}

TEST(CheckSchedulePlacement, DualPipeOnTwoRanksIsBidirectional) {
  const ScheduleVerdict v = Check(
      "0F0 1F1 1BW1 0BW0\n"
      "0F1 1F0 1BW0 0BW1\n");
  EXPECT_TRUE(v.legal()) << Words(v);
  EXPECT_EQ(v.placement, PlacementKind::kBidirectional);
  EXPECT_EQ(v.chunks_per_rank, 2);
  EXPECT_THAT(v.description, HasSubstr("bidirectional: each stage on two ranks, so parameters are "
                                       "held twice"));
}

TEST(CheckSchedulePlacement, BidirectionalIsFoundForOddRanksAndAnyMixOfDirections) {
  for (int p = 2; p <= 5; ++p) {
    const auto v = CheckSchedule(
        OneAfterTheOther(p, p, 5, false, [p](int s, int i) { return i % 3 == 0 ? s : p - 1 - s; }));
    EXPECT_TRUE(v.legal()) << Words(v);
    EXPECT_EQ(v.placement, PlacementKind::kBidirectional) << p << " ranks";
  }
}

TEST(CheckSchedulePlacement, ASingleRankIsLinearWithOneStageAndLoopedWithMore) {
  EXPECT_EQ(Check("0F0 0BW0\n").placement, PlacementKind::kLinear);
  const ScheduleVerdict two = Check("0F0 1F0 1BW0 0BW0\n");
  EXPECT_TRUE(two.legal()) << Words(two);
  EXPECT_EQ(two.placement, PlacementKind::kLooped);
  EXPECT_EQ(two.chunks_per_rank, 2);
}

TEST(CheckSchedulePlacement, AReversedPipelineIsOfItsOwnKindAndLegal) {
  const auto v = CheckSchedule(OneAfterTheOther(3, 3, 2, false, [](int s, int) { return 2 - s; }));
  EXPECT_TRUE(v.legal()) << Words(v);
  EXPECT_EQ(v.placement, PlacementKind::kOther);
  EXPECT_THAT(v.description, HasSubstr("not linear, looped, V or bidirectional"));
}

TEST(CheckSchedulePlacement, LoopedSplitBackwardsAreNotZbV) {
  const auto looped = [](int s, int) { return s % 4; };
  EXPECT_THAT(CheckSchedule(OneAfterTheOther(4, 8, 10, true, looped)).description,
              StartsWith("4 ranks, 8 stages, two chunks per rank, looped: this is not ZB-V, which "
                         "needs the V placement; F, B, W split; 10 micro-batches"));
  EXPECT_THAT(CheckSchedule(OneAfterTheOther(4, 8, 10, false, looped)).description,
              Not(HasSubstr("ZB-V")));
}

TEST(CheckSchedulePlacement, VWithSplitBackwardsCarriesNoDisclaimer) {
  const auto v = [](int s, int) { return s < 4 ? s : 7 - s; };
  EXPECT_EQ(CheckSchedule(OneAfterTheOther(4, 8, 10, true, v)).description,
            "4 ranks, 8 stages, two chunks per rank, V placement; F, B, W split; 10 micro-batches");
  EXPECT_THAT(CheckSchedule(OneAfterTheOther(4, 8, 10, false, v)).description,
              HasSubstr("V placement: this is not ZB-V, which splits B and W"));
}

// --- planted faults: exactly the right rule is named

TEST(CheckScheduleFaults, ALostPassIsMissing) {
  for (size_t lost = 0; lost < 6; ++lost) {
    Orders orders = Linear(2, 2, /*split=*/true);
    const Op op = orders[1][lost];
    orders[1].erase(orders[1].begin() + static_cast<int64_t>(lost));
    const ScheduleVerdict v = CheckSchedule(orders);
    EXPECT_THAT(Rules(v), ElementsAre("missing_pass")) << ToString(op) << "\n" << Words(v);
    EXPECT_THAT(Words(v), HasSubstr("stage 1, micro-batch " + std::to_string(op.micro_batch)));
  }
}

TEST(CheckScheduleFaults, AMicroBatchMissingInTheMiddleIsMissing) {
  const ScheduleVerdict v = Check("0F0 0BW0 0F2 0BW2\n");
  EXPECT_THAT(Rules(v), ElementsAre("missing_pass"));
  EXPECT_THAT(Words(v), HasSubstr("stage 0, micro-batch 1 has no ops at all"));
}

TEST(CheckScheduleFaults, ADoubledPassIsDoubled) {
  for (size_t twice = 0; twice < 6; ++twice) {
    Orders orders = Linear(2, 2, /*split=*/true);
    const Op op = orders[0][twice];
    orders[0].push_back(op);
    const ScheduleVerdict v = CheckSchedule(orders);
    EXPECT_THAT(Rules(v), ElementsAre("doubled_pass")) << Words(v);
    EXPECT_THAT(Words(v), HasSubstr(ToString(op) + " stands twice: rank 0, place " +
                                    std::to_string(twice + 1) + " and rank 0, place 7"));
  }
}

TEST(CheckScheduleFaults, AFusedAndASplitBackwardAreDoubled) {
  const ScheduleVerdict v = Check("0F0 0BW0 0B0 0W0\n");
  EXPECT_THAT(Rules(v), ElementsAre("doubled_pass"));
  EXPECT_THAT(Words(v), HasSubstr("stage 0, micro-batch 0 has BW, and B and W as well"));
}

TEST(CheckScheduleFaults, WBeforeBDeadlocksOnItsOwnRank) {
  const ScheduleVerdict v = Check("0F0 0W0 0B0\n");
  EXPECT_THAT(Rules(v), ElementsAre("deadlock"));
  EXPECT_EQ(v.findings[0].what,
            "schedule deadlocks:\n"
            "  rank 0: 0F0 | 0W0 0B0   <-- 0W0 waits for 0B0");
}

TEST(CheckScheduleFaults, AnOpOnTheWrongRankIsSplit) {
  for (size_t moved = 0; moved < 3; ++moved) {
    Orders orders = Linear(2, 2, /*split=*/true);
    orders[1].push_back(orders[0][3 + moved]);  // of micro-batch 1, so that it stands last
    orders[0].erase(orders[0].begin() + static_cast<int64_t>(3 + moved));
    const ScheduleVerdict v = CheckSchedule(orders);
    const std::vector<std::string> rules = Rules(v);
    EXPECT_THAT(rules, testing::Contains("split_over_ranks")) << Words(v);
    // An F that now stands behind its consumer is stuck as well.
    EXPECT_EQ(rules.size(), moved == 0 ? 2u : 1u) << Words(v);
    EXPECT_EQ(v.placement, PlacementKind::kLinear) << "one mistake does not hide the placement";
  }
}

TEST(CheckScheduleFaults, AStageOnTwoRanksIsSplitUnlessBidirectional) {
  // Stage 1 of micro-batch 1 visits rank 0: each (stage, micro-batch) is whole, yet it is wrong.
  const ScheduleVerdict v = Check(
      "0F0 0BW0 0F1 1F1 1BW1 0BW1\n"
      "1F0 1BW0\n");
  EXPECT_THAT(Rules(v), ElementsAre("split_over_ranks"));
  EXPECT_EQ(v.placement, PlacementKind::kOther);
  EXPECT_THAT(Words(v), HasSubstr("stage 1 is on rank 1 for micro-batch 0 and on rank 0 for "
                                  "micro-batch 1"));
}

TEST(CheckScheduleFaults, BrokenPairsAreNamed) {
  const auto pair_at = [](size_t i) {
    Orders orders = ParseOrders("0F0 0F1 0BW0 0BW1\n");
    orders[0][i].overlaps_next = true;
    return CheckSchedule(orders);
  };
  EXPECT_THAT(Words(pair_at(0)), HasSubstr("rank 0, place 1: (0F0;0F1) is not an F and a BW"));
  EXPECT_TRUE(pair_at(1).legal());
  EXPECT_THAT(Words(pair_at(2)), HasSubstr("(0BW0;0BW1) is not an F and a BW"));
  EXPECT_THAT(Words(pair_at(3)), HasSubstr("0BW1 overlaps the next op, but is the last of its"));
  for (const size_t i : {0, 2, 3}) EXPECT_THAT(Rules(pair_at(i)), ElementsAre("bad_pair"));

  EXPECT_THAT(Rules(Check("(0F0;0B0) 0W0\n")), ElementsAre("bad_pair"));
  EXPECT_THAT(Words(Check("(0F0;0BW0)\n")),
              HasSubstr("bad_pair: rank 0, place 1: (0F0;0BW0) overlaps a backward with its own"));
  Orders chain = ParseOrders("0F0 0F1 0BW0 0F2 0BW1 0BW2\n");
  chain[0][1].overlaps_next = chain[0][2].overlaps_next = true;
  EXPECT_THAT(Words(CheckSchedule(chain)), HasSubstr("(0F1;0BW0) goes on with a third op"));
}

// --- deadlock

TEST(CheckScheduleDeadlock, SwappedOpsAreShownAsTheCycleWithABarWhereEachRankStops) {
  const ScheduleVerdict v = Check(
      "0F0 0BW0 0F1 0BW1\n"
      "1F0 1F1 1BW0 1BW1\n");
  EXPECT_THAT(Rules(v), ElementsAre("deadlock"));
  EXPECT_EQ(v.findings[0].what,
            "schedule deadlocks:\n"
            "  rank 0: 0F0 | 0BW0 0F1 0BW1   <-- 0BW0 waits for 1BW0\n"
            "  rank 1: 1F0 | 1F1 1BW0 1BW1   <-- 1F1 waits for 0F1");
}

TEST(CheckScheduleDeadlock, RanksOutsideTheCycleAreNotShownAndArrowsStandInLine) {
  // Rank 0 waits for rank 1 but nobody in the cycle waits for rank 0.
  const ScheduleVerdict v = Check(
      "0F0 0F1 0BW0 0BW1\n"
      "1F0 1F1 1BW0 1BW1\n"
      "2F0 2BW0 2BW1 2F1\n");
  ASSERT_THAT(Rules(v), ElementsAre("deadlock"));
  EXPECT_EQ(v.findings[0].what,
            "schedule deadlocks:\n"
            "  rank 2: 2F0 2BW0 | 2BW1 2F1   <-- 2BW1 waits for 2F1");
}

TEST(CheckScheduleDeadlock, LongRowsAreShortenedAroundTheBar) {
  Orders orders = Linear(1, 12, /*split=*/false);
  std::swap(orders[0][10], orders[0][11]);  // 0BW5 before 0F5
  EXPECT_EQ(CheckSchedule(orders).findings[0].what,
            "schedule deadlocks:\n"
            "  rank 0: ... 0F3 0BW3 0F4 0BW4 | 0BW5 0F5 0F6 0BW6 0F7 0BW7 ...   "
            "<-- 0BW5 waits for 0F5");
}

TEST(CheckScheduleDeadlock, APairWaitsForTheInputsOfBothItsOps) {
  // 1F1 needs 0F1, whose pair needs 1BW0, which stands behind 1F1.
  const ScheduleVerdict v = Check(
      "0F0 (0F1;0BW0) 0BW1\n"
      "1F0 1F1 1BW0 1BW1\n");
  ASSERT_THAT(Rules(v), ElementsAre("deadlock"));
  EXPECT_EQ(v.findings[0].what,
            "schedule deadlocks:\n"
            "  rank 0: 0F0 | (0F1;0BW0) 0BW1   <-- 0BW0 waits for 1BW0\n"
            "  rank 1: 1F0 | 1F1 1BW0 1BW1     <-- 1F1 waits for 0F1");
}

TEST(CheckScheduleDeadlock, APairMayNotContainAnOpAndWhatItLeadsTo) {
  EXPECT_THAT(Rules(Check("(0F0;1BW0) 1F0 0BW0\n")), ElementsAre("deadlock"));
}

// The dumbest possible program: run whatever can run until nothing can.
bool GetsStuck(const Orders& orders) {
  std::set<std::tuple<int, Pass, int>> done;
  int stages = 0;
  for (const auto& row : orders) {
    for (const Op& op : row) stages = std::max(stages, op.stage + 1);
  }
  const auto has = [&](int stage, Pass pass, int i) { return done.count({stage, pass, i}) > 0; };
  const auto has_backward = [&](int stage, int i) {
    return has(stage, Pass::kB, i) || has(stage, Pass::kBW, i);
  };
  const auto can_run = [&](const Op& op) {
    const int i = op.micro_batch;
    if (op.pass == Pass::kF) return op.stage == 0 || has(op.stage - 1, Pass::kF, i);
    if (op.pass == Pass::kW) return has(op.stage, Pass::kB, i);
    return has(op.stage, Pass::kF, i) && (op.stage + 1 == stages || has_backward(op.stage + 1, i));
  };
  std::vector<size_t> at(orders.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < orders.size(); ++rank) {
      const std::vector<Op>& row = orders[rank];
      if (at[rank] == row.size()) continue;
      const size_t count = row[at[rank]].overlaps_next ? 2 : 1;
      bool ready = true;
      for (size_t i = 0; i < count; ++i) ready = ready && can_run(row[at[rank] + i]);
      if (!ready) continue;
      for (size_t i = 0; i < count; ++i) {
        const Op& op = row[at[rank]++];
        done.insert({op.stage, op.pass, op.micro_batch});
      }
      moved = true;
    }
  }
  for (size_t rank = 0; rank < orders.size(); ++rank) {
    if (at[rank] != orders[rank].size()) return true;
  }
  return false;
}

// Joins a random F with a BW that stands next to it.
void JoinSome(std::vector<Op>& row, std::mt19937& random) {
  for (size_t i = 0; i + 1 < row.size(); ++i) {
    const bool fits = (row[i].pass == Pass::kF && row[i + 1].pass == Pass::kBW) ||
                      (row[i].pass == Pass::kBW && row[i + 1].pass == Pass::kF);
    const bool same_cell =
        row[i].stage == row[i + 1].stage && row[i].micro_batch == row[i + 1].micro_batch;
    if (fits && !same_cell && random() % 2 == 0) row[i++].overlaps_next = true;
  }
}

TEST(CheckScheduleFuzz, AShuffledOrderDeadlocksExactlyWhenRunningItGetsStuck) {
  constexpr unsigned kSeed = 20240601;
  std::mt19937 random(kSeed);
  int stuck = 0;
  int runs = 0;
  for (int round = 0; round < 3000; ++round) {
    const int p = 1 + static_cast<int>(random() % 4);
    const int v = 1 + static_cast<int>(random() % 2);
    const int m = 1 + static_cast<int>(random() % 4);
    Orders orders =
        OneAfterTheOther(p, p * v, m, random() % 2 == 0, [p](int s, int) { return s % p; });
    for (auto swaps = random() % 5; swaps > 0; --swaps) {
      std::vector<Op>& row = orders[random() % orders.size()];
      const size_t i = random() % row.size();
      std::swap(row[i], row[std::min(i + 1 + random() % 3, row.size() - 1)]);
    }
    if (random() % 8 == 0) {
      std::vector<Op>& row = orders[random() % orders.size()];
      std::shuffle(row.begin(), row.end(), random);
    }
    for (std::vector<Op>& row : orders) JoinSome(row, random);
    const bool expected = GetsStuck(orders);
    const ScheduleVerdict verdict = CheckSchedule(orders);
    const std::vector<std::string> rules = Rules(verdict);
    ASSERT_EQ(rules, expected ? std::vector<std::string>{"deadlock"} : std::vector<std::string>{})
        << "seed " << kSeed << ", round " << round << "\n"
        << ToString(orders) << Words(verdict);
    (expected ? stuck : runs)++;
  }
  EXPECT_GT(stuck, 500) << "seed " << kSeed;
  EXPECT_GT(runs, 500) << "seed " << kSeed;
}

// Every line of a deadlock is true: the op it names is the rank's own first behind the bar, and the
// op it waits for stands behind a bar too, on a rank that is shown.
TEST(CheckScheduleFuzz, EveryWaitInADeadlockEndsAtAnotherLineOfIt) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  int seen = 0;
  for (int round = 0; round < 400; ++round) {
    Orders orders = Linear(4, 3, random() % 2 == 0);
    for (std::vector<Op>& row : orders) {
      const size_t i = random() % (row.size() - 1);
      std::swap(row[i], row[i + 1]);
    }
    const ScheduleVerdict v = CheckSchedule(orders);
    if (v.legal()) continue;
    ++seen;
    const std::string& words = v.findings[0].what;
    for (size_t at = words.find("waits for "); at != std::string::npos;
         at = words.find("waits for ", at + 1)) {
      const size_t begin = at + 10;
      const std::string input = words.substr(begin, words.find('\n', begin) - begin);
      const char rank = input[0];  // linear: the stage is the rank
      EXPECT_THAT(words, HasSubstr(std::string("rank ") + rank + ":"))
          << "seed " << kSeed << ", round " << round << "\n"
          << words;
    }
  }
  EXPECT_GT(seen, 100) << "seed " << kSeed;
}

// --- hostile input

TEST(CheckScheduleHostile, NoRanksNoOpsAndEmptyRowsAreNamed) {
  EXPECT_THAT(Rules(CheckSchedule({})), ElementsAre("empty"));
  EXPECT_THAT(Rules(CheckSchedule(Orders(3))), ElementsAre("empty"));
  const ScheduleVerdict v = Check("0F0 0BW0\n\n");
  EXPECT_THAT(Rules(v), ElementsAre("empty"));
  EXPECT_THAT(Words(v), HasSubstr("rank 1 has no ops"));
}

TEST(CheckScheduleHostile, AbsurdNumbersCostNoMemory) {
  const ScheduleVerdict v = Check("0F0 0BW0\n65535F2147483647\n");
  EXPECT_THAT(Rules(v), ElementsAre("missing_pass"));
  EXPECT_THAT(Words(v), HasSubstr("65535F2147483647 (rank 1, place 1)"));
  EXPECT_THAT(Words(v), HasSubstr("65536 stages and 2147483648 micro-batches, but there are only "
                                  "3 ops"));
  EXPECT_EQ(v.stages, 0);
  EXPECT_THAT(Rules(Check("0F2147483646 0BW0\n")), ElementsAre("missing_pass"));
  EXPECT_THAT(Rules(Check("65535F7 65535BW7\n")), ElementsAre("missing_pass"));
}

TEST(CheckScheduleHostile, NegativeMicroBatchesAndUnknownPassesAreNamed) {
  const Orders negative = {{MakeOp(0, Pass::kF, -1), MakeOp(0, Pass::kBW, 0)}};
  EXPECT_THAT(Rules(CheckSchedule(negative)), ElementsAre("bad_op"));
  const Orders unknown = {{MakeOp(0, static_cast<Pass>(9), 0)}};
  EXPECT_THAT(Rules(CheckSchedule(unknown)), ElementsAre("bad_op"));
}

TEST(CheckScheduleHostile, ManyFaultsOfOneKindAreCountedNotListed) {
  Orders orders = Linear(1, 42, /*split=*/false);
  std::erase_if(orders[0], [](const Op& op) { return op.pass == Pass::kBW; });
  const ScheduleVerdict v = CheckSchedule(orders);
  ASSERT_EQ(v.findings.size(), 6u);
  EXPECT_EQ(v.findings[5].rule, "missing_pass");
  EXPECT_EQ(v.findings[5].what, "and 37 more");
}

TEST(CheckScheduleHostile, RandomBytesNeverCrash) {
  constexpr unsigned kSeed = 99;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 2000; ++round) {
    Orders orders(random() % 4);
    for (std::vector<Op>& row : orders) {
      row.resize(random() % 6);
      for (Op& op : row) {
        op = MakeOp(static_cast<int>(random() % 3), static_cast<Pass>(random() % 4),
                    static_cast<int>(random() % 3));
        if (random() % 64 == 0) op.micro_batch = static_cast<int32_t>(random());
        op.overlaps_next = random() % 4 == 0;
      }
    }
    const ScheduleVerdict v = CheckSchedule(orders);
    if (v.legal()) {
      EXPECT_FALSE(GetsStuck(orders)) << "seed " << kSeed << "\n" << ToString(orders);
    }
  }
}

}  // namespace
}  // namespace spiritlevel
