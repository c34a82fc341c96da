// What waits from F for B and from B for W, against the published per-layer figures.
#include "models/kept_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/layer_ops.h"
#include "tests/models/configs.h"

namespace spiritlevel {
namespace {

constexpr int64_t kSequence = 1024;
constexpr int64_t kBatch = 2;
constexpr int64_t kHidden = 2048;
constexpr int64_t kHeads = 16;
constexpr Bytes kUnit = kSequence * kBatch * kHidden;  // s b h
// Mean and scale of two LayerNorms, and of flash attention a log-sum-exp a head, in float32.
constexpr Bytes kStatistics = kSequence * kBatch * 2 * 8;
constexpr Bytes kLogSumExp = kSequence * kBatch * kHeads * 4;

struct Kept {
  Bytes for_b = 0;
  Bytes for_w = 0;
  Bytes change() const { return for_w - for_b; }
};

Kept KeptBy(const Architecture& a, const BlockShape& shape) {
  const BlockWork work = LayerWork(a, shape, 0);
  return {KeptAfterForward(work), KeptAfterInputGrad(work)};
}

BlockShape Shape(bool stored_attention, bool norm_grads_in_w = false) {
  return {.sequence = kSequence,
          .micro_batch = kBatch,
          .dtype = DType::kBFloat16,
          .stored_attention = stored_attention,
          .norm_grads_in_w = norm_grads_in_w};
}

// arXiv 2205.05198: s b (34 h + 5 a s). arXiv 2401.10241, table 1: W needs 32 s b h, which is 14 of
// inputs and 18 of output gradients.
TEST(KeptTensors, OfThePapersLayerAreThePapersFigures) {
  const Architecture gpt = PaperGpt(4, kHidden, kHeads, /*dropout=*/true);
  const Kept stored = KeptBy(gpt, Shape(true));
  EXPECT_EQ(stored.for_b, 34 * kUnit + 5 * kHeads * kSequence * kSequence * kBatch + kStatistics);
  EXPECT_EQ(stored.for_w, 32 * kUnit);
  const Kept flash = KeptBy(gpt, Shape(false));
  EXPECT_EQ(flash.for_b, 34 * kUnit + kStatistics + kLogSumExp);
  EXPECT_EQ(flash.for_w, 32 * kUnit);
  EXPECT_EQ(GradientsForW(LayerWork(gpt, Shape(false), 0)), 18 * kUnit);
}

// C26: the change at B in units of s b h, apart from a few bytes a row of statistics.
TEST(KeptTensors, TheChangeAtBTurnsFromNegativeToPositive) {
  const Architecture with = PaperGpt(4, kHidden, kHeads, /*dropout=*/true);
  const Architecture without = PaperGpt(4, kHidden, kHeads, /*dropout=*/false);
  const Bytes matrix = kHeads * kSequence * kSequence * kBatch;
  EXPECT_EQ(KeptBy(with, Shape(true)).change(), -2 * kUnit - 5 * matrix - kStatistics);
  EXPECT_EQ(KeptBy(without, Shape(true)).change(), -2 * matrix - kStatistics);
  EXPECT_EQ(KeptBy(with, Shape(false)).change(), -2 * kUnit - kStatistics - kLogSumExp);
  EXPECT_EQ(KeptBy(without, Shape(false)).change(), -kStatistics - kLogSumExp);
  // Where W forms the gradients of the norms too, it needs both their inputs and the gradients of
  // their outputs: 8 more.
  EXPECT_EQ(KeptBy(without, Shape(false, true)).change(), 8 * kUnit - kLogSumExp);
  EXPECT_EQ(KeptBy(with, Shape(false, true)).change(), 6 * kUnit - kLogSumExp);
  EXPECT_LT(KeptBy(with, Shape(true, true)).change(), 0);  // the matrix outweighs them
}

// A gated MLP keeps gate, up and their product; W needs the product and two gradients. Grouped
// queries make k and v narrower.
TEST(KeptTensors, FollowTheWidthsOfAGroupedGatedLayer) {
  const Architecture llama = Parsed(Llama8B());
  const BlockShape shape{.sequence = 4096, .micro_batch = 1};
  const Kept kept = KeptBy(llama, shape);
  const Bytes h = 4096 * 2;
  const Bytes qkv = (4096 + 2 * 1024) * 2;
  const Bytes f = 14336 * 2;
  const Bytes statistics = 2 * 4 + 32 * 4;
  EXPECT_EQ(kept.for_b, 4096 * (5 * h + qkv + 3 * f + statistics));
  EXPECT_EQ(kept.for_w, 4096 * (5 * h + qkv + 3 * f));
}

TEST(KeptTensors, AParallelLayerKeepsItsInputOnceAndOneGradientOfItsOutput) {
  const Architecture neox = Parsed(NeoX());
  Architecture sequential = neox;
  sequential.parallel_residual = false;
  const BlockShape shape{.sequence = 256, .micro_batch = 1};
  const Bytes input = LayerInputBytes(neox, shape);
  const Kept parallel = KeptBy(neox, shape);
  const Kept in_turn = KeptBy(sequential, shape);
  EXPECT_EQ(in_turn.for_b - parallel.for_b, input);
  EXPECT_EQ(in_turn.for_w - parallel.for_w, input);
}

TEST(KeptTensors, NormsOfQAndKAndAfterEachBranchKeepTheirInputs) {
  const BlockShape shape{.sequence = 128, .micro_batch = 1};
  Architecture qwen = Parsed(Qwen06B());
  const Bytes with = KeptBy(qwen, shape).for_b;
  qwen.qk_norms = false;
  EXPECT_EQ(with - KeptBy(qwen, shape).for_b, 128 * (24 * 128 * 2 + 24 * 4));
  Architecture gemma = Parsed(Gemma());
  const Bytes four = KeptBy(gemma, shape).for_b;
  gemma.post_norms = false;
  EXPECT_EQ(four - KeptBy(gemma, shape).for_b, 128 * 2 * (2304 * 2 + 4));
}

TEST(KeptTensors, OfTheHeadAreMostlyLogits) {
  const Architecture llama = Parsed(Llama8B());
  const BlockWork head = HeadWork(llama, {.sequence = 1000, .micro_batch = 1});
  EXPECT_EQ(KeptAfterForward(head), 1000 * (128256 * 4 + 2 * 4096 * 2 + 4 + 8));
  EXPECT_EQ(KeptAfterInputGrad(head), 1000 * (128256 * 2 + 4096 * 2));
}

TEST(KeptTensors, GrowInProportionToTokensExceptForTheStoredMatrix) {
  const Architecture gpt = PaperGpt(4, kHidden, kHeads, true);
  const auto kept = [&](int64_t sequence, int64_t batch, bool stored) {
    return KeptBy(gpt, {.sequence = sequence, .micro_batch = batch, .stored_attention = stored})
        .for_b;
  };
  EXPECT_EQ(kept(2048, 1, false), 2 * kept(1024, 1, false));
  EXPECT_EQ(kept(1024, 2, true), 2 * kept(1024, 1, true));
  EXPECT_GT(kept(2048, 1, true), 2 * kept(1024, 1, true));
}

// Names are what a reader looks up; two of one name could not be told apart.
TEST(KeptTensors, HaveNamesOfTheirOwn) {
  for (const auto& config : {Llama8B(), Qwen06B(), Gpt2Small(), NeoX(), Gemma()}) {
    for (const bool norms_in_w : {false, true}) {
      const BlockWork work = LayerWork(
          Parsed(config), {.sequence = 64, .micro_batch = 1, .norm_grads_in_w = norms_in_w}, 0);
      std::vector<std::string> names;
      for (const KeptTensor& tensor : work.kept) {
        EXPECT_GT(tensor.bytes, 0) << tensor.name;
        EXPECT_TRUE(tensor.made_by == Pass::kF || tensor.needed_by == NeededBy::kW) << tensor.name;
        names.push_back(tensor.name);
      }
      std::sort(names.begin(), names.end());
      EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
    }
  }
}

}  // namespace
}  // namespace spiritlevel
