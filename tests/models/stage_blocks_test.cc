// What a stage holds inside a pass, against a walk through its layers that counts every tensor.
#include "models/stage_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/model_costs.h"
#include "sim/engine.h"
#include "sim/evaluate.h"
#include "sim/schedules/catalog.h"
#include "tests/models/configs.h"
#include "tests/models/made_up_device.h"

namespace spiritlevel {
namespace {

// Live bytes of one micro-batch on a stage, and the most there ever were since Begin().
class Live {
 public:
  void Begin() { peak_ = now_; }
  void Take(Bytes bytes) { peak_ = std::max(peak_, now_ += bytes); }
  void Give(Bytes bytes) { now_ -= bytes; }
  Bytes now() const { return now_; }
  Bytes peak() const { return peak_; }

 private:
  Bytes now_ = 0;
  Bytes peak_ = 0;
};

Bytes NeededForWOfF(const BlockWork& work) {
  return KeptAfterInputGrad(work) - GradientsForW(work);
}

// Runs the pass block by block: F makes all of a block's tensors and drops what is not kept; B
// makes them again where they were dropped, adds its gradients, and drops all but what W needs.
class Walk {
 public:
  explicit Walk(StageBlocks stage) : stage_(std::move(stage)) {}

  Bytes F() {
    live_.Begin();
    for (const StageBlock& block : stage_) {
      live_.Take(KeptAfterForward(*block.work));
      if (block.recompute != Recompute::kNothing) {
        live_.Give(KeptAfterForward(*block.work) - block.checkpoint);
      }
    }
    return live_.peak();
  }
  Bytes B() {
    live_.Begin();
    for (auto block = stage_.rbegin(); block != stage_.rend(); ++block) {
      const Bytes whole = KeptAfterForward(*block->work);
      if (block->recompute != Recompute::kNothing) live_.Take(whole - block->checkpoint);
      live_.Take(GradientsForW(*block->work));
      const bool nothing_of_f = block->recompute == Recompute::kFullAgainInW;
      live_.Give(whole - (nothing_of_f ? block->checkpoint : NeededForWOfF(*block->work)));
    }
    return live_.peak();
  }
  Bytes W() {
    live_.Begin();
    for (auto block = stage_.rbegin(); block != stage_.rend(); ++block) {
      const Bytes whole = KeptAfterForward(*block->work);
      const bool again = block->recompute == Recompute::kFullAgainInW;
      if (again) live_.Take(whole - block->checkpoint);
      live_.Give(GradientsForW(*block->work) + (again ? whole : NeededForWOfF(*block->work)));
    }
    return live_.peak();
  }
  Bytes BW() {
    live_.Begin();
    for (auto block = stage_.rbegin(); block != stage_.rend(); ++block) {
      const Bytes whole = KeptAfterForward(*block->work);
      if (block->recompute != Recompute::kNothing) live_.Take(whole - block->checkpoint);
      live_.Take(GradientsForW(*block->work));
      live_.Give(whole + GradientsForW(*block->work));
    }
    return live_.peak();
  }
  Bytes now() const { return live_.now(); }

 private:
  StageBlocks stage_;
  Live live_;
};

class StageBlocksTest : public testing::TestWithParam<Recompute> {};

// Level at the start, with what the pass takes there, plus the transient: the true peak, unless
// what lies there before or after is more.
TEST_P(StageBlocksTest, ThePeakInsideAPassIsThatOfAWalkThroughItsBlocks) {
  for (const Architecture& a :
       {Parsed(Llama8B()), Parsed(Gemma()), PaperGpt(4, 1024, 16, true), Parsed(NeoX())}) {
    for (const bool norm_grads_in_w : {false, true}) {
      const BlockShape shape{.sequence = 256, .micro_batch = 2, .norm_grads_in_w = norm_grads_in_w};
      const ModelBlocks model(a, shape);
      for (const bool embedding : {false, true}) {
        for (const bool head : {false, true}) {
          SCOPED_TRACE(a.name + (embedding ? ", embedding" : "") + (head ? ", head" : ""));
          const StageBlocks stage = model.Stage(
              {.layers = 3, .embedding = embedding, .head = head, .recompute = GetParam()});
          const StageMemory memory = MemoryOf(stage);
          const auto transient = [&](Pass p) { return memory.transient[static_cast<size_t>(p)]; };
          const Bytes f = memory.after_forward;
          const Bytes w = memory.after_input_grad;
          Walk split(stage);
          EXPECT_EQ(f + transient(Pass::kF), split.F());
          EXPECT_EQ(split.now(), f);
          EXPECT_EQ(std::max(f, w) + transient(Pass::kB), std::max({split.B(), f, w}));
          EXPECT_EQ(split.now(), w);
          EXPECT_EQ(w + transient(Pass::kW), split.W());
          EXPECT_EQ(split.now(), 0);
          Walk fused(stage);
          fused.F();
          EXPECT_EQ(f + transient(Pass::kBW), fused.BW());
          EXPECT_EQ(fused.now(), 0);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EachRecomputation, StageBlocksTest,
                         testing::Values(Recompute::kNothing, Recompute::kFull,
                                         Recompute::kFullAgainInW),
                         [](const testing::TestParamInfo<Recompute>& parameter) {
                           return std::string(parameter.param == Recompute::kNothing ? "None"
                                              : parameter.param == Recompute::kFull
                                                  ? "Full"
                                                  : "FullAgainInW");
                         });

// The layer that B builds again is part of a rank's peak: 1F1B's last rank holds the inputs of its
// layers, and while its backward runs one whole layer with its gradients.
TEST(StageBlocks, ARebuiltLayerCountsInTheRanksPeak) {
  const Architecture gpt = PaperGpt(28, 1024, 16, true);
  ModelRun run{.sequence_length = 1024, .ranks = 4, .micro_batches = 8};
  run.recompute = {Recompute::kFull};
  const Costs costs = CostsFromModel(gpt, run, OnlyFlops());
  const Schedule schedule = FindSchedule("1f1b").Make({.ranks = 4, .micro_batches = 8});
  const BlockWork layer = LayerWork(gpt, run.shape(), 0);
  const Bytes input = LayerInputBytes(gpt, run.shape());
  // Rank 2 holds two micro-batches; of one of them its seventh layer is whole.
  const Bytes expected = StaticBytesByStage(gpt, run)[2] + 7 * input + 6 * input +
                         KeptAfterForward(layer) + GradientsForW(layer);
  Evaluator evaluator(costs);
  EXPECT_EQ(evaluator.Evaluate(schedule, Tail::kBarrier).peak_bytes[2], expected);
}

}  // namespace
}  // namespace spiritlevel
