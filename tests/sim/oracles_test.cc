// Makespans, busy times and peaks from independent simulations: PyTorch's schedules, DualPipe's
// drawings, the event-replay cases that SimGrid, ASTRA-sim and SimPy agree on, and the answers to
// questions that practitioners asked (C14 and so on).
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

// As kUnit, with an activation that only lives from F to B.
constexpr StageCost kUntilB{.forward = 1,
                            .input_grad = 1,
                            .weight_grad = 1,
                            .fused_backward = 2,
                            .overlapped = 3,
                            .activation = 1,
                            .weight_state = 0};

struct Oracle {
  const char* schedule;
  int ranks, micro_batches;
  TimeNs makespan, busy;
  std::vector<Bytes> peaks;
};

TEST(PyTorchOracles, MakespanBusyAndPeakLiveForwards) {
  const std::vector<Oracle> oracles = {
      {"gpipe", 4, 8, 33, 24, {8, 8, 8, 8}},
      {"1f1b", 4, 8, 33, 24, {4, 3, 2, 1}},
      {"1f1b", 8, 20, 81, 60, {8, 7, 6, 5, 4, 3, 2, 1}},
      {"interleaved", 4, 8, 57, 48, {11, 9, 7, 5}},
      {"interleaved", 4, 10, 69, 60, {12, 10, 8, 6}},
      {"interleaved", 8, 16, 117, 96, {23, 21, 19, 17, 15, 13, 11, 9}},
      {"interleaved-zb", 4, 8, 51, 48, {8, 7, 6, 5}},
      {"interleaved-zb", 8, 16, 103, 96, {16, 15, 14, 13, 12, 11, 10, 9}},
      {"zb-v", 4, 8, 51, 48, {8, 8, 8, 8}},
      {"zb-v", 4, 4, 30, 24, {5, 6, 7, 8}},
      {"zb-v", 8, 20, 127, 120, {16, 16, 16, 16, 16, 16, 16, 16}},
      {"dualpipe-v", 4, 10, 66, 60, {9, 9, 9, 9}},
      {"dualpipe-v", 8, 20, 134, 120, {17, 17, 17, 17, 17, 17, 17, 17}},
      {"dualpipe", 8, 20, 66, 60, {9, 9, 9, 9, 9, 9, 9, 9}},
  };
  for (const Oracle& o : oracles) {
    const Summary summary = SumUp(Make(o.schedule, o.ranks, o.micro_batches), kUntilB);
    SCOPED_TRACE(testing::Message() << o.schedule << " p=" << o.ranks << " m=" << o.micro_batches);
    EXPECT_EQ(summary.makespan, o.makespan);
    EXPECT_EQ(summary.stalls.busy, std::vector<TimeNs>(static_cast<size_t>(o.ranks), o.busy));
    EXPECT_EQ(summary.peak_bytes, o.peaks);
    EXPECT_EQ(summary.peak_waiting_b, *std::max_element(o.peaks.begin(), o.peaks.end()));
  }
}

TEST(PyTorchOracles, UnequalPasses) {
  const StageCost cost = SumOfParts(2, 3, 1);
  const std::vector<Oracle> oracles = {{"1f1b", 4, 8, 66, 48, {}},
                                       {"interleaved", 4, 8, 114, 96, {}},
                                       {"interleaved-zb", 4, 8, 108, 96, {}},
                                       {"zb-v", 4, 8, 108, 96, {}},
                                       {"dualpipe-v", 4, 10, 139, 120, {}}};
  for (const Oracle& o : oracles) {
    const Summary summary = SumUp(Make(o.schedule, o.ranks, o.micro_batches), cost);
    EXPECT_EQ(summary.makespan, o.makespan) << o.schedule;
    EXPECT_EQ(summary.stalls.busy[0], o.busy) << o.schedule;
  }
}

// "Zero bubble" is a statement about each rank's own span, here [0,48], [1,49], [2,50], [3,51].
TEST(PyTorchOracles, ZbVHasNoBubbleInAnyRankButOneInTheMakespan) {
  const Summary summary = SumUp(Make("zb-v", 4, 8), kUnit);
  EXPECT_EQ(summary.max_rank_span, 48);
  EXPECT_EQ(summary.bubble_rate, 0);
  EXPECT_EQ(summary.makespan, 51);
  EXPECT_DOUBLE_EQ(summary.bubble_fraction, 3.0 / 51);
}

// dualpipe.md, 3.5: near the formula (p/2-1)(F&B + BW - 3W), not equal to it, for unequal passes.
TEST(DualPipe, BubbleForUnequalPasses) {
  struct Case {
    TimeNs f, b, w;
    int ranks;
    TimeNs bubble;
  };
  for (const Case& c : {Case{2, 3, 1, 4, 6}, Case{2, 3, 1, 8, 19}, Case{3, 4, 2, 4, 8},
                        Case{3, 4, 2, 8, 24}, Case{4, 5, 3, 4, 10}, Case{4, 5, 3, 8, 30}}) {
    const int m = 20;
    const Summary summary = SumUp(Make("dualpipe", c.ranks, m), SumOfParts(c.f, c.b, c.w));
    EXPECT_EQ(summary.makespan - m * (c.f + c.b + c.w), c.bubble)
        << c.f << c.b << c.w << " p=" << c.ranks;
  }
}

TEST(DualPipe, HoldsTheParametersTwiceAndSendsBothWays) {
  const Schedule schedule = Make("dualpipe", 8, 20);
  EXPECT_EQ(schedule.parameter_copies(), 2);
  EXPECT_EQ(Make("dualpipe-v", 8, 20).parameter_copies(), 1);
  const Summary summary = SumUp(schedule, kUnit, {.static_bytes = 1000});
  EXPECT_EQ(summary.peak_bytes, std::vector<Bytes>(8, 2000 + 9));
  EXPECT_EQ(summary.messages, 20 * 7 * 2);
}

// C32: the same order, three values of the overlapped time. Doubled, to stay whole.
TEST(DualPipeV, TheOverlappedTimeDecides) {
  struct Case {
    TimeNs overlapped, makespan;
  };
  for (const Case& c : {Case{6, 132}, Case{5, 118}, Case{4, 104}}) {
    StageCost cost = SumOfParts(2, 2, 2, 1, 0);
    cost.overlapped = c.overlapped;
    const Summary summary = SumUp(Make("dualpipe-v", 4, 10), cost);
    EXPECT_EQ(summary.makespan, c.makespan) << c.overlapped;
    EXPECT_EQ(summary.peak_bytes, std::vector<Bytes>(4, 9));
    if (c.overlapped == 4) {
      EXPECT_EQ(summary.stalls.busy, (std::vector<TimeNs>{102, 100, 98, 98}));
      EXPECT_NEAR(summary.bubble_rate, 0.019, 0.0005);
    }
  }
}

// 40 us on a link that is FIFO in each direction, 10 us of latency.
TEST(EventReplay, TheEighteenGoldenMakespans) {
  struct Case {
    int ranks, micro_batches;
    double one_f_one_b_ms, zb_h1_ms;
  };
  constexpr std::array<Case, 9> kCases = {{{8, 64, 219.2, 200.4},
                                           {8, 256, 812.0, 776.4},
                                           {8, 1024, 3183.2, 3080.4},
                                           {16, 64, 244.4, 210.0},
                                           {16, 256, 838.4, 786.0},
                                           {16, 1024, 3214.4, 3090.0},
                                           {64, 64, 393.5, 267.5},
                                           {64, 256, 988.4, 843.6},
                                           {64, 1024, 3368.0, 3147.6}}};
  const StageCost cost = SumOfParts(1'000'000, 1'000'000, 1'000'000);
  const Costs::Common common{.hop = {.latency = 10'000, .busy = 40'000}};
  for (const Case& c : kCases) {
    for (const bool split : {false, true}) {
      const Schedule s = Make(split ? "zb-h1" : "1f1b", c.ranks, c.micro_batches);
      const Costs costs = UniformFor(s, cost, common);
      const auto expected = static_cast<TimeNs>((split ? c.zb_h1_ms : c.one_f_one_b_ms) * 10 + 0.5);
      Evaluator evaluator(costs);
      EXPECT_EQ(evaluator.Evaluate(s, Tail::kBarrier).makespan, expected * 100'000)
          << c.ranks << "x" << c.micro_batches << (split ? " zb-h1" : " 1f1b");
      const Program program = Lower(s, costs, {});
      for (const Timeline& timeline : {SimulateInOrder(program), SimulateByQueue(program)}) {
        const auto last =
            std::max_element(timeline.nodes.begin(), timeline.nodes.end(),
                             [](const NodeTimes& a, const NodeTimes& b) { return a.end < b.end; });
        EXPECT_EQ(last->end, expected * 100'000) << c.ranks << "x" << c.micro_batches;
      }
    }
  }
}

// A link that is busy longer than a forward takes must be queued for; latency alone is not.
TEST(Occupancy, ABusyLinkIsNotALongLatency) {
  const Schedule gpipe = Make("gpipe", 8, 64);
  const StageCost cost = SumOfParts(1'000'000, 1'000'000, 1'000'000);
  const TimeNs busy = SumUp(gpipe, cost, {.hop = {.latency = 10'000, .busy = 1'600'000}}).makespan;
  const TimeNs latency = SumUp(gpipe, cost, {.hop = {.latency = 1'610'000}}).makespan;
  EXPECT_EQ(busy, 273'340'000);
  EXPECT_EQ(latency, 235'540'000);
}

// C14: (m + p - 1)(F + BW), whatever m.
TEST(FewMicroBatches, C14IsLegalAndAnswered) {
  const Summary one = SumUp(Make("1f1b", 8, 1), kUnit);
  EXPECT_EQ(one.makespan, 24);
  EXPECT_DOUBLE_EQ(one.bubble_fraction, 0.875);
  EXPECT_EQ(one.peak_bytes, std::vector<Bytes>(8, 1));

  const Summary four = SumUp(Make("1f1b", 8, 4), kUnit);
  EXPECT_EQ(four.makespan, 33);
  EXPECT_NEAR(four.bubble_fraction, 0.636, 0.0005);
  EXPECT_EQ(four.peak_bytes, (std::vector<Bytes>{4, 4, 4, 4, 4, 3, 2, 1}));
}

TEST(FewMicroBatches, C14EveryScheduleAnswersOrSaysWhy) {
  for (const int m : {1, 4}) {
    for (const ScheduleInfo& info : AllSchedules()) {
      const Shape shape{.ranks = 8, .micro_batches = m};
      if (const auto refusal = info.Refusal(shape)) {
        EXPECT_FALSE(refusal->way_out().empty()) << info.name;
        continue;
      }
      EXPECT_GE(SumUp(info.Make(shape), kUnit).makespan, 3 * m) << info.name;
    }
  }
  EXPECT_NE(FindSchedule("1f1b").Note({.ranks = 8, .micro_batches = 4}).find("PyTorch"),
            std::string::npos);
  EXPECT_EQ(FindSchedule("1f1b").Note({.ranks = 8, .micro_batches = 8}), "");
}

TEST(Interleaving, C15GroupsThatMegatronRefuses) {
  const ScheduleInfo& info = FindSchedule("interleaved");
  // (p, v, m, g) = (6, 2, 3, 6)
  const Shape few{.ranks = 6, .micro_batches = 3, .stages_per_rank = 2};
  EXPECT_EQ(SumUp(info.Make(few), kUnit).makespan, 42);
  EXPECT_EQ(SumUp(Make("1f1b", 6, 3), SumOfParts(2, 2, 2)).makespan, 48);
  EXPECT_EQ(info.Note(few), "Megatron refuses: group 6 > m");
  // (4, 2, 9, 4) and m = 8, 10
  const auto makespan = [&](int v, int m, int g) {
    return SumUp(Make("interleaved", 4, m, v, g), kUnit).makespan;
  };
  EXPECT_EQ(makespan(2, 8, 4), 57);
  EXPECT_EQ(makespan(2, 9, 4), 74);
  EXPECT_EQ(makespan(2, 10, 4), 79);
  EXPECT_NE(info.Note({.ranks = 4, .micro_batches = 9, .stages_per_rank = 2, .group = 4})
                .find("Megatron refuses"),
            std::string::npos);
  EXPECT_EQ(info.Note({.ranks = 4, .micro_batches = 10, .stages_per_rank = 2, .group = 5}), "");
  // (4, 3, 5, 4) deadlocks, (4, 3, 5, 5) does not.
  EXPECT_THROW(Make("interleaved", 4, 5, 3, 4), InputError);
  EXPECT_EQ(makespan(3, 5, 5), 54);
  // PyTorch's own group does not exist for 9 micro-batches on 4 ranks.
  EXPECT_TRUE(info.Refusal({.ranks = 4, .micro_batches = 9}));
}

// C17: 2(p-r-1) + (v-1)p forwards come before the first backward on rank r; the peak is one more.
TEST(Interleaving, C17WarmUpHasFactorTwo) {
  const Schedule schedule = Make("interleaved", 8, 16);
  std::vector<int> before_first_backward;
  for (int rank = 0; rank < 8; ++rank) {
    const auto ops = schedule.ops(rank);
    const auto first =
        std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.pass == Pass::kBW; });
    before_first_backward.push_back(static_cast<int>(first - ops.begin()) - 1);
  }
  EXPECT_EQ(before_first_backward, (std::vector<int>{22, 20, 18, 16, 14, 12, 10, 8}));
  EXPECT_EQ(SumUp(schedule, kUnit).peak_bytes, (std::vector<Bytes>{23, 21, 19, 17, 15, 13, 11, 9}));
}

// C21: who is refused at odd p, and for what.
TEST(Parity, C21TableOfAllowedAndRefused) {
  for (const int p : {3, 5, 13}) {
    for (const ScheduleInfo& info : AllSchedules()) {
      const Shape shape{.ranks = p, .micro_batches = 2 * p};
      const bool refused = info.Refusal(shape).has_value();
      EXPECT_EQ(refused, info.name == "dualpipe") << info.name << " p=" << p;
      if (refused) continue;
      EXPECT_GE(SumUp(info.Make(shape), kUnit).makespan, 6 * p) << info.name;
    }
  }
  const auto refuses = [](const char* name, int p, int m) {
    return FindSchedule(name).Refusal({.ranks = p, .micro_batches = m}).has_value();
  };
  EXPECT_FALSE(refuses("dualpipe", 8, 20));
  EXPECT_TRUE(refuses("dualpipe", 8, 19));
  EXPECT_TRUE(refuses("dualpipe", 8, 14));
  EXPECT_FALSE(refuses("dualpipe-v", 8, 17));
  EXPECT_TRUE(refuses("dualpipe-v", 8, 15));
}

TEST(Parity, DualPipeSaysTheWayOut) {
  const auto refusal = FindSchedule("dualpipe").Refusal({.ranks = 8, .micro_batches = 19});
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->way_out(), "use 20 micro-batches, or dualpipe-v");
  const auto odd = FindSchedule("dualpipe").Refusal({.ranks = 7, .micro_batches = 20});
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->way_out(), "use 6 or 8 ranks, or dualpipe-v");
}

// C28: with W near nothing ZB-H1 gains nothing.
TEST(SplitNotHappening, C28GainsOnePercent) {
  const StageCost cost = SumOfParts(100, 195, 5);
  EXPECT_EQ(SumUp(Make("1f1b", 8, 16), cost).makespan, 6900);
  EXPECT_EQ(SumUp(Make("zb-h1", 8, 16), cost).makespan, 6830);
}

// C29: ZB-H1's bubble is p - 1 units, and its peak does not grow with m.
TEST(ZbH1, C29BubbleAndFlatPeak) {
  EXPECT_EQ(SumUp(Make("1f1b", 8, 16), kUnit).makespan, 69);
  const Summary sixteen = SumUp(Make("zb-h1", 8, 16), kUnit);
  EXPECT_EQ(sixteen.makespan, 55);
  EXPECT_NEAR(sixteen.bubble_rate, 0.127, 0.0005);
  EXPECT_EQ(sixteen.peak_bytes, SumUp(Make("zb-h1", 8, 32), kUnit).peak_bytes);
}

// C31: a single step cannot be without bubble; the period can, if nothing joins the ranks.
TEST(Period, C31ZeroBubbleExistsOnlyAcrossSteps) {
  const Schedule schedule = Make("zb-h2", 8, 16);
  const Summary joined = SumUp(schedule, kUnit, {}, Tail::kBarrier);
  EXPECT_EQ(joined.makespan, 55);
  EXPECT_EQ(joined.period, 55);
  const Summary alone = SumUp(schedule, kUnit, {}, Tail::kNoTail);
  EXPECT_EQ(alone.makespan, 55);
  EXPECT_EQ(alone.period, 48);
  EXPECT_EQ(alone.step, alone.period);
}

// C34: GPipe and 1F1B take the same time; only memory differs.
TEST(GPipe, C34IsAsFastAs1F1B) {
  StageCost cost = SumOfParts(1, 1, 0, 256, 0);
  const Summary gpipe = SumUp(Make("gpipe", 8, 32), cost, {.static_bytes = 768});
  const Summary one = SumUp(Make("1f1b", 8, 32), cost, {.static_bytes = 768});
  EXPECT_EQ(gpipe.makespan, 78);
  EXPECT_EQ(one.makespan, 78);
  EXPECT_NEAR(gpipe.bubble_fraction, 0.1795, 0.00005);
  EXPECT_DOUBLE_EQ(gpipe.bubble_fraction, one.bubble_fraction);
  EXPECT_EQ(gpipe.peak_bytes[0], 768 + 256 * 32);
  EXPECT_EQ(one.peak_bytes[0], 768 + 256 * 8);
}

}  // namespace
}  // namespace spiritlevel
