// Recomputation under a split backward: what it saves, where it does not, and when it pays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "models/model_costs.h"
#include "sim/evaluate.h"
#include "sim/schedules/catalog.h"
#include "tests/models/configs.h"
#include "tests/models/made_up_device.h"

namespace spiritlevel {
namespace {

using Peaks = std::vector<Bytes>;

Schedule Make(std::string_view name, int ranks, int micro_batches) {
  return FindSchedule(name).Make(
      {.ranks = ranks, .micro_batches = micro_batches, .stages_per_rank = 2});
}

// F = B = W = 1; one stage's bytes of a micro-batch.
Peaks PeaksOf(const Schedule& schedule, Bytes for_b, Bytes for_w, TimeNs again = 0) {
  const StageCost cost{.forward = 1,
                       .input_grad = 1 + again,
                       .weight_grad = 1,
                       .fused_backward = 2 + again,
                       .overlapped = 3 + again,
                       .activation = for_b,
                       .weight_state = for_w};
  const Costs costs = Costs::Uniform(schedule.num_stages(), schedule.num_micro_batches(), cost);
  Evaluator evaluator(costs);
  return evaluator.Evaluate(schedule, Tail::kBarrier).peak_bytes;
}

// C25: 34 kept for B, 32 for W, and only the input, 2, kept for B with recomputation. On rank r of
// ZB-H1 p micro-batches are live: without recomputation p - r of them wait for B and r for W. With
// it B first takes what W needs, and so one more counts for W. The first rank keeps most of its
// micro-batches between F and B, the last between B and W: the order of the ranks is turned round.
TEST(Recompute, C25TurnsTheMemoryOrderOfTheRanksRound) {
  const Schedule zb_h1 = Make("zb-h1", 4, 12);
  EXPECT_EQ(PeaksOf(zb_h1, 34, 32), (Peaks{4 * 34, 3 * 34 + 32, 2 * 34 + 2 * 32, 34 + 3 * 32}));
  EXPECT_EQ(PeaksOf(zb_h1, 2, 32, /*again=*/1),
            (Peaks{3 * 2 + 32, 2 * 2 + 2 * 32, 2 + 3 * 32, 4 * 32}));
  // W right after B on the late ranks cures it: 1F1B's backward.
  EXPECT_EQ(PeaksOf(Make("1f1b", 4, 12), 2, 32, 1), (Peaks{4 * 2, 3 * 2, 2 * 2, 2}));
}

TEST(Recompute, KeepsTheLayersInputAndWhatWNeeds) {
  const Architecture gpt = PaperGpt(28, 1024, 16, true);
  ModelRun run{.sequence_length = 1024, .micro_batch_size = 1, .ranks = 4};
  const StageMemory none = StageMemories(gpt, run)[1];
  run.recompute = {Recompute::kFull};
  const StageMemory full = StageMemories(gpt, run)[1];
  run.recompute = {Recompute::kFullAgainInW};
  const StageMemory again = StageMemories(gpt, run)[1];
  const Bytes unit = 7 * 1024 * 1024;  // 7 layers of s b h
  EXPECT_EQ(full.after_forward, 2 * unit);
  EXPECT_EQ(again.after_forward, 2 * unit);
  EXPECT_EQ(none.after_input_grad, 32 * unit);
  EXPECT_EQ(full.after_input_grad, 32 * unit);
  EXPECT_EQ(again.after_input_grad, 20 * unit);  // the input, and 18 of output gradients
  // While B is at the first layer, that one is there as F made it with its gradients for W, and
  // the other six have left what they need.
  const Bytes whole = none.after_forward / 7;
  EXPECT_EQ(full.after_input_grad + full.transient[static_cast<size_t>(Pass::kB)],
            whole + (18 + 6 * 32) * unit / 7);
}

TEST(Recompute, AddsAForwardToBAndOnceMoreToW) {
  const Architecture gpt = PaperGpt(28, 1024, 16, true);
  ModelRun run{.sequence_length = 1024, .micro_batch_size = 1, .ranks = 4};
  const StageCost none = CostsFromModel(gpt, run, MadeUpDevice()).of(1, 0);
  run.recompute = {Recompute::kFull};
  const Costs full = CostsFromModel(gpt, run, MadeUpDevice());
  run.recompute = {Recompute::kFullAgainInW};
  const Costs again = CostsFromModel(gpt, run, MadeUpDevice());
  EXPECT_EQ(full.of(1, 0).input_grad, none.input_grad + none.forward);
  EXPECT_EQ(full.of(1, 0).weight_grad, none.weight_grad);
  EXPECT_EQ(again.of(1, 0).weight_grad, none.weight_grad + none.forward);
  // A backward in one op builds the layer once, whichever way a split one would.
  EXPECT_EQ(full.of(1, 0).fused_backward, none.forward + none.input_grad + none.weight_grad);
  EXPECT_EQ(again.of(1, 0).fused_backward, full.of(1, 0).fused_backward);
}

TEST(Recompute, CanBeChosenForEachStage) {
  const Architecture gpt = PaperGpt(28, 1024, 16, true);
  ModelRun run{.sequence_length = 1024, .micro_batch_size = 1, .ranks = 4};
  run.recompute = {Recompute::kFull, Recompute::kNothing, Recompute::kFull, Recompute::kNothing};
  const std::vector<StageMemory> stages = StageMemories(gpt, run);
  EXPECT_LT(stages[2].after_forward, stages[1].after_forward);
  EXPECT_EQ(stages[2].after_input_grad, stages[1].after_input_grad);
}

struct Played {
  TimeNs makespan = 0;
  Peaks peaks{};
};

Played Play(std::string_view name, Recompute recompute) {
  const Architecture gpt = PaperGpt(32, 1024, 16, false);
  const ModelRun run{.sequence_length = 1024,
                     .micro_batch_size = 1,
                     .ranks = 8,
                     .micro_batches = 32,
                     .stages = 16,
                     .recompute = {recompute}};
  const Costs costs = CostsFromModel(gpt, run, OnlyFlops());
  Evaluator evaluator(costs);
  const Schedule schedule = Make(name, 8, 32);
  const auto& result = evaluator.Evaluate(schedule, Tail::kBarrier);
  return {result.makespan, result.peak_bytes};
}

// C27: p = 8, v = 2. A runtime that walks the graph twice builds each layer in B and again in W:
// the split backward's gain is gone.
TEST(Recompute, C27InBothBAndWTakesTheGainOfTheSplitBackwardAway) {
  EXPECT_LT(Play("interleaved-zb", Recompute::kNothing).makespan,
            Play("interleaved", Recompute::kNothing).makespan);
  EXPECT_GT(Play("interleaved-zb", Recompute::kFullAgainInW).makespan,
            Play("interleaved", Recompute::kFullAgainInW).makespan);
}

TEST(Recompute, C27UnderASplitBackwardMakesTheLateRanksTheFullest) {
  const auto without_static = [](Recompute recompute) {
    return Play("interleaved-zb", recompute).peaks;
  };
  const Peaks none = without_static(Recompute::kNothing);
  const Peaks full = without_static(Recompute::kFull);
  const Peaks fused = Play("interleaved", Recompute::kFull).peaks;
  // Ranks 1 to 6 hold the same layers; the ends hold the embedding and the head beside them.
  for (size_t rank = 2; rank <= 6; ++rank) EXPECT_GE(full[rank], full[rank - 1]) << rank;
  EXPECT_GT(full[6], full[1]);
  EXPECT_LE(none[6], none[1]);
  EXPECT_GT(full[6], fused[6]);  // where a fused backward needs less
}

}  // namespace
}  // namespace spiritlevel
