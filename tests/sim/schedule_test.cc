#include "sim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <regex>

#include "sim/schedules/catalog.h"
#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

std::string ErrorOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Schedule, ReadsWhatItWrites) {
  const char* text =
      "0F0 0F1 0BW0 0BW1\n"
      "1F0 1BW0 1F1 1BW1\n";
  const Schedule s = Schedule::Parse(text);
  EXPECT_EQ(s.num_ranks(), 2);
  EXPECT_EQ(s.num_stages(), 2);
  EXPECT_EQ(s.num_micro_batches(), 2);
  EXPECT_EQ(ToString(s.ops(0)[2]), "0BW0");
  EXPECT_EQ(s.rank_of(1, 0), 1);
  EXPECT_EQ(s.ToString(), text);
}

TEST(Schedule, EveryNamedScheduleReadsBackEqual) {
  for (const ScheduleInfo& info : AllSchedules()) {
    for (const Shape& shape :
         {Shape{.ranks = 2, .micro_batches = 4}, Shape{.ranks = 6, .micro_batches = 12}}) {
      const Schedule s = info.Make(shape);
      EXPECT_EQ(Schedule::Parse(s.ToString()), s) << info.name;
    }
  }
}

TEST(Schedule, ReadsPairs) {
  const Schedule s = Schedule::Parse("0F0 (0F1;0BW0) 0BW1");
  EXPECT_TRUE(s.ops(0)[1].overlaps_next);
  EXPECT_FALSE(s.ops(0)[2].overlaps_next);
  EXPECT_EQ(s.ToString(), "0F0 (0F1;0BW0) 0BW1\n");
}

TEST(Schedule, KnowsWhichRankHoldsWhichStage) {
  const Schedule looped = Make("interleaved", 4, 8, 3);
  EXPECT_EQ(looped.num_stages(), 12);
  EXPECT_THAT(looped.stages_of(1), testing::ElementsAre(1, 5, 9));
  EXPECT_EQ(looped.chunk_of(1, 9), 2);
  const Schedule v = Make("zb-v", 4, 8);
  EXPECT_THAT(v.stages_of(1), testing::ElementsAre(1, 6));
  const Schedule both_ways = Make("dualpipe", 4, 8);
  EXPECT_FALSE(both_ways.one_rank_per_stage());
  EXPECT_THAT(both_ways.stages_of(1), testing::ElementsAre(1, 2));
  EXPECT_EQ(both_ways.rank_of(1, 0), 1);
  EXPECT_EQ(both_ways.rank_of(1, 4), 2);
}

TEST(Schedule, RefusesWhatIsNotWellFormed) {
  const auto error = [](const char* text) { return ErrorOf([&] { Schedule::Parse(text); }); };
  EXPECT_THAT(error(""), HasSubstr("no ranks"));
  EXPECT_THAT(error("0F0 0BW0\n\n"), HasSubstr("rank 1 has nothing to do"));
  EXPECT_THAT(error("0F0 0F0 0BW0"), HasSubstr("0F0 stands twice"));
  EXPECT_THAT(error("0F0 0BW0\n1BW0 1BW1"), HasSubstr("missing"));
  EXPECT_THAT(error("0F0 0B0"), HasSubstr("must run BW, or B and W, once"));
  EXPECT_THAT(error("0F0 0B0 0W0 0BW0"), HasSubstr("must run BW, or B and W, once"));
  EXPECT_THAT(error("0F0 0BW0\n0F1 0BW1 1F0 1BW0 1F1"), HasSubstr("must run BW"));
  EXPECT_THAT(error("0F0\n0BW0"), HasSubstr("on rank 0 and on rank 1"));
  EXPECT_THAT(error("(0F0;0F1) 0BW0 0BW1"), HasSubstr("not an F and a BW"));
  EXPECT_THAT(error("0F0 0B0 (0W0;0F1) 0BW1"), HasSubstr("not an F and a BW"));
  EXPECT_THAT(error("0F0 0BW0 0F2147483647"), HasSubstr("cannot be all passes"));
}

TEST(Schedule, ShowsADeadlockWithWhatEachRankWaitsFor) {
  const std::string error = ErrorOf([] {
    Schedule::Parse(
        "0F0 0BW0 0F1 0BW1\n"
        "1F0 1F1 1BW0 1BW1\n");
  });
  EXPECT_THAT(error, HasSubstr("rank 0: 0F0 | 0BW0 0F1 0BW1   <-- 0BW0 waits for 1BW0"));
  EXPECT_THAT(error, HasSubstr("rank 1: 1F0 | 1F1 1BW0 1BW1   <-- 1F1 waits for 0F1"));
}

TEST(Schedule, NamesWhatItCannotRead) {
  const auto error = [](const char* text) { return ErrorOf([&] { Schedule::Parse(text); }); };
  EXPECT_THAT(error("0F0 0X0"), HasSubstr("line 1: expected one of F, B, W, BW at \"X0\""));
  EXPECT_THAT(error("0F0\nF0"), HasSubstr("line 2: expected a stage number"));
  EXPECT_THAT(error("0F"), HasSubstr("expected a micro-batch number"));
  EXPECT_THAT(error("(0F0 0BW1)"), HasSubstr("';'"));
  EXPECT_THAT(error("(0F0;0BW1"), HasSubstr("')'"));
  EXPECT_THAT(error("99999F0"), HasSubstr("a stage number"));
  EXPECT_THAT(error("0F-1"), HasSubstr("a micro-batch number"));
}

TEST(Catalog, HasTheFourteenNames) {
  std::vector<std::string_view> names;
  for (const ScheduleInfo& info : AllSchedules()) names.push_back(info.name);
  EXPECT_THAT(names, testing::ElementsAre("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2",
                                          "zb-1p", "zb-2p", "interleaved-zb", "zb-v", "zb-v-auto",
                                          "v-half", "v-min", "dualpipe", "dualpipe-v"));
}

TEST(Catalog, AMisspeltNameGetsTheNearestFirst) {
  const std::string error = ErrorOf([] { FindSchedule("zbv"); });
  EXPECT_THAT(error, HasSubstr("there is no schedule \"zbv\""));
  EXPECT_THAT(error, HasSubstr("there are zb-v,"));
}

// Every shape that is not refused gives a schedule that exists, and every refusal a way out.
TEST(Catalog, EverySmallShapeRunsOrIsRefusedWithAWayOut) {
  for (const ScheduleInfo& info : AllSchedules()) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 20; ++m) {
        for (int v = 1; v <= 3; ++v) {
          const Shape shape{.ranks = p, .micro_batches = m, .stages_per_rank = v};
          if (const auto refusal = info.Refusal(shape)) {
            EXPECT_FALSE(refusal->way_out().empty()) << info.name;
            continue;
          }
          const Schedule s = info.Make(shape);
          EXPECT_EQ(s.num_ranks(), p);
          EXPECT_EQ(s.num_micro_batches(), m);
          EXPECT_EQ(s.num_stages(), p * info.stages_per_rank(shape));
        }
      }
    }
  }
}

// Every way out that a refusal of DualPipe names is one: "use 20 micro-batches, or dualpipe-v",
// "use 6 or 8 ranks, or ...", "use 4 ranks and 20 micro-batches, or ...".
TEST(Catalog, EveryWayOutOfARefusedDualPipeWorks) {
  const ScheduleInfo& info = FindSchedule("dualpipe");
  const std::regex option("(?:(\\d+) or )?(\\d+) (ranks|micro-batches)(?: and (\\d+) micro)?");
  for (int p = 1; p <= 9; ++p) {
    for (int m = 1; m <= 3 * p; ++m) {
      const Shape shape{.ranks = p, .micro_batches = m};
      const auto refusal = info.Refusal(shape);
      if (!refusal) continue;
      const std::string text = refusal->way_out();
      SCOPED_TRACE(testing::Message() << "p=" << p << " m=" << m << ": " << text);
      int tried = 0;
      for (std::sregex_iterator it(text.begin(), text.end(), option), end; it != end; ++it) {
        for (const int group : {1, 2}) {
          if (!(*it)[static_cast<size_t>(group)].matched) continue;
          const int n = std::stoi((*it)[static_cast<size_t>(group)]);
          Shape other = shape;
          ((*it)[3] == "ranks" ? other.ranks : other.micro_batches) = n;
          if ((*it)[4].matched) other.micro_batches = std::stoi((*it)[4]);
          EXPECT_FALSE(info.Refusal(other));
          EXPECT_NO_THROW(info.Make(other));
          ++tried;
        }
      }
      EXPECT_GE(tried, 1);
      const std::string last = text.substr(text.rfind(' ') + 1);
      EXPECT_FALSE(FindSchedule(last).Refusal(shape)) << last;
    }
  }
}

TEST(Catalog, AGroupThatDeadlocksGetsOneThatRuns) {
  const std::string error = ErrorOf([] { Make("interleaved", 4, 5, 3, 4); });
  EXPECT_THAT(error, testing::StartsWith("schedule deadlocks:\n  rank 0: "));
  EXPECT_THAT(error, HasSubstr("leave --group out, which makes it 5"));
  EXPECT_NO_THROW(Make("interleaved", 4, 5, 3));
}

// Larger than any warm-up: the same as a group of all micro-batches.
TEST(Catalog, AHugeGroupIsOneGroup) {
  for (const char* name : {"interleaved", "interleaved-zb"}) {
    EXPECT_EQ(Make(name, 8, 24, 3, std::numeric_limits<int>::max()), Make(name, 8, 24, 3, 1000));
  }
}

TEST(Catalog, EveryWayOutOfARefusedInterleavingWorks) {
  const std::regex option("use (\\d+) or (\\d+) micro-batches, .* \\(--group (\\d+)\\)");
  for (const char* name : {"interleaved", "interleaved-zb"}) {
    const ScheduleInfo& info = FindSchedule(name);
    for (int p = 1; p <= 9; ++p) {
      for (int m = 1; m <= 5 * p; ++m) {
        const Shape shape{.ranks = p, .micro_batches = m};
        const auto refusal = info.Refusal(shape);
        if (!refusal) continue;
        SCOPED_TRACE(testing::Message() << "p=" << p << " m=" << m << ": " << refusal->way_out());
        std::smatch match;
        const std::string text = refusal->way_out();
        ASSERT_TRUE(std::regex_match(text, match, option));
        for (const int i : {1, 2}) {
          Shape other = shape;
          other.micro_batches = std::stoi(match[static_cast<size_t>(i)]);
          EXPECT_NO_THROW(info.Make(other));
        }
        Shape grouped = shape;
        grouped.group = std::stoi(match[3]);
        EXPECT_NO_THROW(info.Make(grouped));
      }
    }
  }
}

TEST(Catalog, SlotBySlotSchedulesRefuseThousandsOfRanks) {
  for (const char* name : {"v-half", "v-min"}) {
    EXPECT_TRUE(FindSchedule(name).Refusal({.ranks = 513, .micro_batches = 1})) << name;
    EXPECT_FALSE(FindSchedule(name).Refusal({.ranks = 512, .micro_batches = 1})) << name;
  }
}

}  // namespace
}  // namespace spiritlevel
