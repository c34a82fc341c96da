// Equal times: F = B = W = 1 of a rank's share, free transfers, an activation held from F to W.
// The table is from an independent evaluator. A shorter span at an equal peak is as good.
#include <gtest/gtest.h>

#include <array>

#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

struct Expected {
  double span, makespan, peak;
};

struct Row {
  int ranks, micro_batches;
  std::array<Expected, 8> of;
};

struct Column {
  const char* schedule;
  int stages_per_rank;
};

constexpr std::array<Column, 8> kColumns = {{{"1f1b", 1},
                                             {"interleaved", 2},
                                             {"interleaved", 4},
                                             {"zb-h1", 1},
                                             {"zb-h2", 1},
                                             {"zb-v", 2},
                                             {"v-half", 2},
                                             {"v-min", 2}}};

// clang-format off
constexpr std::array<Row, 12> kTable = {{
    {2, 2, {{{9, 9, 2}, {7.5, 7.5, 2}, {6.75, 6.75, 2}, {7, 7, 2}, {7, 7, 2}, {7, 7, 2}, {7.5, 7.5, 2}, {7.5, 7.5, 2}}}},
    {2, 4, {{{15, 15, 2}, {13.5, 13.5, 2.5}, {12.75, 12.75, 2.25}, {13, 13, 2}, {12, 13, 3}, {12, 12.5, 2}, {12.5, 12.5, 2}, {13.5, 13.5, 2}}}},
    {2, 8, {{{27, 27, 2}, {25.5, 25.5, 2.5}, {24.75, 24.75, 2.25}, {25, 25, 2}, {24, 25, 3}, {24, 24.5, 2}, {24.5, 24.5, 2}, {25.5, 25.5, 2}}}},
    {4, 4, {{{21, 21, 4}, {16.5, 16.5, 4}, {14.25, 14.25, 4}, {15, 15, 4}, {15, 16, 4}, {15, 15, 4}, {17, 17, 3}, {17.5, 17.5, 2}}}},
    {4, 8, {{{33, 33, 4}, {28.5, 28.5, 5.5}, {26.25, 26.25, 4.75}, {27, 27, 4}, {24, 27, 7}, {24, 25.5, 4}, {26.5, 26.5, 3}, {29.5, 29.5, 2}}}},
    {4, 16, {{{57, 57, 4}, {52.5, 52.5, 5.5}, {50.25, 50.25, 4.75}, {51, 51, 4}, {48, 51, 7}, {48, 49.5, 4}, {50.5, 50.5, 3}, {53.5, 53.5, 2}}}},
    {8, 8, {{{45, 45, 8}, {34.5, 34.5, 8}, {29.25, 29.25, 8}, {31, 31, 8}, {31, 34, 8}, {31, 31, 8}, {32.5, 32.5, 5}, {37.5, 37.5, 4}}}},
    {8, 16, {{{69, 69, 8}, {58.5, 58.5, 11.5}, {53.25, 53.25, 9.75}, {55, 55, 8}, {48, 55, 15}, {48, 51.5, 8}, {56.5, 56.5, 5}, {61.5, 61.5, 4}}}},
    {8, 32, {{{117, 117, 8}, {106.5, 106.5, 11.5}, {101.25, 101.25, 9.75}, {103, 103, 8}, {96, 103, 15}, {96, 99.5, 8}, {104.5, 104.5, 5}, {109.5, 109.5, 4}}}},
    {16, 16, {{{93, 93, 16}, {70.5, 70.5, 16}, {59.25, 59.25, 16}, {63, 63, 16}, {63, 70, 16}, {63, 63, 16}, {68.5, 68.5, 9}, {77.5, 77.5, 6}}}},
    {16, 32, {{{141, 141, 16}, {118.5, 118.5, 23.5}, {107.25, 107.25, 19.75}, {111, 111, 16}, {96, 111, 31}, {96, 103.5, 16}, {116.5, 116.5, 9}, {125.5, 125.5, 6}}}},
    {16, 64, {{{237, 237, 16}, {214.5, 214.5, 23.5}, {203.25, 203.25, 19.75}, {207, 207, 16}, {192, 207, 31}, {192, 199.5, 16}, {212.5, 212.5, 9}, {221.5, 221.5, 6}}}},
}};
// clang-format on

// Whole for v up to 4: a pass of a rank's share takes 4 units.
constexpr TimeNs kShare = 4;

TEST(EqualTimes, LongestSpanMakespanAndPeakAreThoseOfTheTable) {
  for (const Row& row : kTable) {
    for (size_t i = 0; i < kColumns.size(); ++i) {
      const auto [name, v] = kColumns[i];
      const Schedule schedule = Make(name, row.ranks, row.micro_batches, v);
      const TimeNs pass = kShare / v;
      const Summary summary = SumUp(schedule, SumOfParts(pass, pass, pass, pass, pass));
      const auto in_shares = [](int64_t x) { return static_cast<double>(x) / kShare; };
      const Bytes peak = summary.peak_bytes[static_cast<size_t>(summary.fullest_rank())];
      SCOPED_TRACE(testing::Message()
                   << name << " v=" << v << " p=" << row.ranks << " m=" << row.micro_batches);
      EXPECT_EQ(in_shares(peak), row.of[i].peak);
      const bool may_be_shorter = std::string_view(name).starts_with("v-") && row.ranks <= 4;
      if (may_be_shorter) {
        EXPECT_LE(in_shares(summary.max_rank_span), row.of[i].span);
        EXPECT_LE(in_shares(summary.makespan), row.of[i].makespan);
      } else {
        EXPECT_EQ(in_shares(summary.max_rank_span), row.of[i].span);
        EXPECT_EQ(in_shares(summary.makespan), row.of[i].makespan);
      }
    }
  }
}

// The forms hold wherever they say anything, for every small shape and several times.
TEST(ClosedForms, AgreeWithTheEngineOnEverySmallShape) {
  const std::array<StageCost, 5> costs = {SumOfParts(6, 6, 6, 1, 1), SumOfParts(6, 8, 4, 1, 1),
                                          SumOfParts(8, 6, 6, 1, 1), SumOfParts(5, 9, 3, 1, 1),
                                          SumOfParts(7, 7, 7, 1, 1)};
  int compared = 0;
  for (const ScheduleInfo& info : AllSchedules()) {
    for (int p = 1; p <= 9; ++p) {
      for (int m = 1; m <= 3 * p + 3; ++m) {
        for (const int v : {2, 3}) {
          const Shape shape{.ranks = p, .micro_batches = m, .stages_per_rank = v};
          if (info.Refusal(shape) || (v > 2 && info.stages_per_rank(shape) != v)) continue;
          const Schedule schedule = info.Make(shape);
          for (const StageCost& cost : costs) {
            for (const TimeNs transfer : {0, 1, 2, 5}) {
              const ClosedForm form = info.Formula(shape, cost, transfer);
              if (!form.makespan && !form.max_rank_span && transfer > 0) continue;
              const Summary summary = SumUp(schedule, cost, {.hop = {.latency = transfer}});
              SCOPED_TRACE(testing::Message() << info.name << " p=" << p << " m=" << m << " v=" << v
                                              << " F=" << cost.forward << " B=" << cost.input_grad
                                              << " W=" << cost.weight_grad << " c=" << transfer);
              compared += form.makespan || form.max_rank_span ? 1 : 0;
              if (form.makespan) {
                ASSERT_EQ(summary.makespan, *form.makespan);
              }
              if (form.max_rank_span) {
                ASSERT_EQ(summary.max_rank_span, *form.max_rank_span);
              }
              if (form.peak_stage_activations) {
                const Bytes peak = summary.peak_bytes[static_cast<size_t>(summary.fullest_rank())];
                ASSERT_EQ(peak, *form.peak_stage_activations);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 2000);
}

}  // namespace
}  // namespace spiritlevel
