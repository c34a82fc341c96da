#include "report/chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/report/comparison_for_test.h"
#include "tests/report/sums_for_test.h"

namespace spiritlevel {
namespace {

constexpr TimeNs kMs = 1'000'000;

ScenarioForTest Unit(int ranks, int micro_batches) {
  return {.ranks = ranks,
          .micro_batches = micro_batches,
          .cost = {.forward = 1, .input_grad = 1, .weight_grad = 1}};
}

std::string Text(const ScenarioForTest& scenario, std::string_view schedule, TimeNs unit = 1) {
  const PlayedForTest played = Play(scenario, schedule);
  return TextChart(played.program, played.timeline, unit);
}

std::string Terminal(const ScenarioForTest& scenario, std::string_view schedule, int width,
                     bool colour = false) {
  const PlayedForTest played = Play(scenario, schedule);
  return TerminalChart(played.program, played.timeline, width, colour);
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What stands between the bars of a row.
std::string Body(const std::string& line) {
  const size_t begin = line.find('|') + 1;
  return line.substr(begin, line.rfind('|') - begin);
}

TEST(TextChart, DrawsThePictureOfOneFOneB) {
  EXPECT_EQ(Text(Unit(3, 4), "1f1b"),
            "f0f1f2........B0B0f3B1B1..B2B2..B3B3\n"
            "..f0f1....B0B0f2B1B1f3B2B2..B3B3....\n"
            "....f0B0B0f1B1B1f2B2B2f3B3B3........\n");
}

TEST(TextChart, TellsInputAndWeightGradientsApart) {
  EXPECT_EQ(Text(Unit(2, 2), "zb-h1"),
            "f0f1..b0w0b1w1\n"
            "..f0b0f1b1w0w1\n");
}

TEST(TextChart, NamesTheStageWhereARankHoldsSeveral) {
  ScenarioForTest scenario = Unit(2, 2);
  scenario.cost = {.forward = 2, .input_grad = 2, .weight_grad = 2};  // 1 for each of two stages
  // 2B1 waits for 3B1, which comes after 3B0 and 3f1.
  EXPECT_EQ(Text(scenario, "interleaved"),
            "0f0 0f1 2f0 2f1 ... ... 2B0 2B0 ... 2B1 2B1 0B0 0B0 0B1 0B1\n"
            "... 1f0 1f1 3f0 3B0 3B0 3f1 3B1 3B1 1B0 1B0 1B1 1B1 ... ...\n");
}

TEST(TextChart, ShowsBothOpsOfAPairInTurn) {
  const std::string chart = Text(Unit(4, 8), "dualpipe");
  EXPECT_NE(chart.find("0f3&3B5&0f3 "), std::string::npos) << chart;
}

TEST(TextChart, WidensCellsForMicroBatchesOfTwoDigits) {
  const std::string chart = Text(Unit(2, 11), "gpipe");
  EXPECT_EQ(chart.substr(0, 12), "f00f01f02f03") << chart;
}

TEST(TextChart, DrawsTheTail) {
  ScenarioForTest scenario = Unit(2, 1);
  scenario.common.optimizer = 2;
  scenario.common.barrier = 1;
  EXPECT_EQ(Text(scenario, "1f1b"),
            "f0......B0B0==oooo\n"
            "..f0B0B0....==oooo\n");
}

SumsForTest InParts(WeightGrads order) {
  return {.schedule = "zb-h1",
          .options = {.weight_grads = order},
          .ranks = 1,
          .micro_batches = 2,
          .twins = false,
          .tied = false,
          .unit = 6};
}

// F = 54, B = 48, W = 42 in units of 6; a W's three parts take 21, 14 and 7, and only the last W is
// cut. A part is drawn as its op.
TEST(TextChart, PartsAreDrawnAsTheirOps) {
  SumsForTest scenario = InParts(WeightGrads::kByMicroBatch);
  const PlayedWithSums cut = Play(scenario);
  scenario.buckets = false;
  const PlayedWithSums whole = Play(scenario);
  const std::string chart = TextChart(cut.program, cut.timeline, 6);
  EXPECT_NE(chart.find("w1w1w1w1w1w1w1"), std::string::npos) << chart;
  EXPECT_EQ(chart.substr(0, chart.rfind("w1")),
            TextChart(whole.program, whole.timeline, 6).substr(0, chart.rfind("w1")));
}

TEST(TextChart, ByBucketThePartsOfWsTakeTurns) {
  SumsForTest scenario = InParts(WeightGrads::kByBucket);
  scenario.ranks = 2;  // the last W's of rank 1 follow each other
  scenario.micro_batches = 4;
  const PlayedWithSums played = Play(scenario);
  const std::string chart = TextChart(played.program, played.timeline, 6);
  EXPECT_NE(chart.find("w3w3w3w2w2"), std::string::npos) << chart;
}

TEST(TextChart, ScalesByItsUnit) {
  ScenarioForTest scenario = Unit(3, 4);
  scenario.cost = {.forward = 7 * kMs, .input_grad = 7 * kMs, .weight_grad = 7 * kMs};
  EXPECT_EQ(Text(scenario, "1f1b", 7 * kMs), Text(Unit(3, 4), "1f1b"));
}

TEST(TerminalChart, AtOneColumnAUnitIsTheExactPicture) {
  // 18 units in 18 columns beside "rank 0 |" and "|".
  const std::vector<std::string> lines = Lines(Terminal(Unit(3, 4), "1f1b", 27));
  EXPECT_EQ(lines[0], "rank 0 |FFF....GGFGG.GG.GG|");
  EXPECT_EQ(lines[1], "rank 1 |.FF..GGFGGFGG.GG..|");
  EXPECT_EQ(lines[2], "rank 2 |..FGGFGGFGGFGG....|");
}

TEST(TerminalChart, ACellShowsWhatFillsMostOfIt) {
  // One rank, F 6, B 3, W 3, in 10 columns of 1.2: F ends with the fifth, B in the middle of the
  // eighth, where it stands before W.
  ScenarioForTest scenario = Unit(1, 1);
  scenario.cost = {.forward = 6, .input_grad = 3, .weight_grad = 3};
  EXPECT_EQ(Body(Lines(Terminal(scenario, "zb-h1", 19))[0]), "FFFFFBBBWW");
}

TEST(TerminalChart, EveryRankHasOneRowOfTheWidthAsked) {
  for (const int ranks : {1, 8, 64, 100}) {
    for (const int width : {40, 80, 100, 200}) {
      const std::vector<std::string> lines = Lines(Terminal(Unit(ranks, 128), "zb-h1", width));
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(lines[static_cast<size_t>(rank)].size(), static_cast<size_t>(width))
            << ranks << " ranks, width " << width;
      }
      for (const std::string& line : lines) {
        EXPECT_LE(line.size(), static_cast<size_t>(width)) << line;
      }
    }
  }
}

TEST(TerminalChart, NeverGetsTooNarrowToDraw) {
  EXPECT_EQ(Body(Lines(Terminal(Unit(2, 2), "1f1b", 1))[0]).size(), 10u);
}

TEST(TerminalChart, LaterStagesOfARankAreInLowerCase) {
  const std::string chart = Terminal(Unit(4, 8), "zb-v", 100);
  const std::vector<std::string> lines = Lines(chart);
  // The last rank turns the V: its second stage follows at once on its first.
  EXPECT_EQ(Body(lines[3]).find_first_not_of('.'), Body(lines[3]).find('F'));
  EXPECT_NE(Body(lines[3]).find("Ff"), std::string::npos) << chart;
  EXPECT_NE(chart.find("lower case"), std::string::npos) << chart;
}

TEST(TerminalChart, AxisMarksRoundTimes) {
  ScenarioForTest scenario = Unit(2, 8);
  scenario.cost = {.forward = 10 * kMs, .input_grad = 10 * kMs, .weight_grad = 10 * kMs};
  const std::vector<std::string> lines = Lines(Terminal(scenario, "1f1b", 99));
  // 270 ms in 90 columns: a tick each 50 ms, at columns 0, 16.7, 33.3, 50, 66.7, 83.3.
  EXPECT_EQ(lines[2].substr(8, 18), "+---------------+-");
  EXPECT_EQ(lines[3].substr(8, 22), "0               50 ms ");
  EXPECT_NE(lines[3].find("250 ms"), std::string::npos);
}

TEST(TerminalChart, LegendNamesTheLettersThatOccurAndNoOthers) {
  const std::string plain = Terminal(Unit(3, 4), "1f1b", 80);
  EXPECT_NE(plain.find("F forward"), std::string::npos) << plain;
  EXPECT_NE(plain.find("G both gradients"), std::string::npos) << plain;
  EXPECT_EQ(plain.find("W weight"), std::string::npos) << plain;
  EXPECT_EQ(plain.find("X a forward"), std::string::npos) << plain;
  EXPECT_EQ(plain.find("O optimizer"), std::string::npos) << plain;
  EXPECT_NE(Terminal(Unit(4, 8), "dualpipe", 80).find("X a forward"), std::string::npos);
}

TEST(TerminalChart, ColoursOnlyWhenAskedAndLeavesTheLettersAlone) {
  const std::string plain = Terminal(Unit(4, 8), "zb-v", 80);
  EXPECT_EQ(plain.find('\033'), std::string::npos);
  std::string coloured = Terminal(Unit(4, 8), "zb-v", 80, true);
  EXPECT_NE(coloured.find("\033["), std::string::npos);
  for (size_t at; (at = coloured.find('\033')) != std::string::npos;) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  EXPECT_EQ(coloured, plain);
}

TEST(TerminalChart, ColourEndsBeforeTheRowDoes) {
  for (const std::string& line : Lines(Terminal(Unit(4, 8), "zb-v", 80, true))) {
    if (line.find('\033') == std::string::npos) continue;
    EXPECT_EQ(line.substr(line.rfind('\033'), 4), "\033[0m") << line;
  }
}

TEST(TerminalChart, PartsAreDrawnAsTheirOpsAndNotCountedAsShortOps) {
  SumsForTest scenario{.schedule = "zb-h1", .options = {.tail = Tail::kBarrier}};
  const PlayedWithSums cut = Play(scenario);
  // 2.6 ms a column: parts of 1.2 ms are shorter, ops are not.
  std::string chart = TerminalChart(cut.program, cut.timeline, 110);
  std::replace(chart.begin(), chart.end(), '\n', ' ');  // the legend is wrapped
  EXPECT_NE(chart.find("W weight gradient"), std::string::npos) << chart;
  EXPECT_EQ(chart.find('?'), std::string::npos) << chart;
  EXPECT_EQ(chart.find("may not show"), std::string::npos) << chart;
  EXPECT_NE(chart.find("sums of gradients run beside this, not drawn"), std::string::npos);
  scenario.buckets = scenario.tied = false;
  const PlayedWithSums bare = Play(scenario);
  EXPECT_EQ(TerminalChart(bare.program, bare.timeline, 110).find("sums"), std::string::npos);
}

TEST(TerminalChart, SaysWhenOpsMayBeTooShortToShow) {
  EXPECT_EQ(Terminal(Unit(2, 4), "1f1b", 100).find("may not show"), std::string::npos);
  EXPECT_NE(Terminal(Unit(2, 1000), "1f1b", 100).find("may not show"), std::string::npos);
}

}  // namespace
}  // namespace spiritlevel
