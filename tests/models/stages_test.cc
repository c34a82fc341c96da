// Layers to stages: none vanishes, and the fullest stage is named.
#include "models/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "models/model_costs.h"
#include "tests/base/input_error_of.h"
#include "tests/models/configs.h"
#include "tests/models/made_up_device.h"

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// C09: what the usual derivation builds is not what was configured.
TEST(Stages, LayersThatWouldBeLostAreNamedWithWhatWouldDo) {
  EXPECT_THAT(InputErrorOf([] { ChunkedStages(80, 16, 2); }),
              AllOf(HasSubstr("80 are configured"), HasSubstr("make 64"), HasSubstr("use 1, 5")));
  EXPECT_THAT(InputErrorOf([] { ChunkedStages(40, 8, 2); }),
              AllOf(HasSubstr("40 are configured"), HasSubstr("make 32"), HasSubstr("use 1, 5")));
  EXPECT_THAT(InputErrorOf([] { EvenStages(30, 4); }),
              AllOf(HasSubstr("30 are configured"), HasSubstr("make 28"),
                    HasSubstr("use 2, 3, 5, 6 stages, or layers per stage 8,8,7,7")));
  EXPECT_THAT(InputErrorOf([] { ChunkedStages(30, 4, 7); }),
              AllOf(HasSubstr("30 are configured"), HasSubstr("make 28")));
}

TEST(Stages, TheSplitsThatTheRefusalOffersAreAccepted) {
  EXPECT_THAT(ChunkedStages(80, 16, 1), AllOf(SizeIs(80), Each(1)));
  EXPECT_THAT(ChunkedStages(80, 16, 5), AllOf(SizeIs(16), Each(5)));
  EXPECT_THAT(ChunkedStages(80, 8, 2), AllOf(SizeIs(40), Each(2)));
  EXPECT_THAT(ChunkedStages(80, 20, 2), AllOf(SizeIs(40), Each(2)));
  EXPECT_THAT(EvenStages(30, 6), AllOf(SizeIs(6), Each(5)));
  EXPECT_THAT(GivenStages(30, {8, 8, 7, 7}), ElementsAre(8, 8, 7, 7));
}

TEST(Stages, EverySplitHoldsEveryLayerOrIsRefusedWithBothNumbers) {
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int64_t stages = 1; stages <= layers; ++stages) {
      const LayersPerStage balanced = BalancedStages(layers, stages);
      EXPECT_EQ(std::accumulate(balanced.begin(), balanced.end(), int64_t{0}), layers);
      EXPECT_LE(balanced.front() - balanced.back(), 1);
      const std::string refusal = InputErrorOf([&] { EvenStages(layers, stages); });
      EXPECT_EQ(refusal.empty(), layers % stages == 0) << layers << " on " << stages;
      for (int64_t chunk = 1; chunk <= layers / stages; ++chunk) {
        const std::string lost = InputErrorOf([&] {
          const LayersPerStage split = ChunkedStages(layers, stages, chunk);
          EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), layers);
        });
        const int64_t built = stages * (layers / stages / chunk) * chunk;
        EXPECT_EQ(lost.empty(), built == layers) << layers << "/" << stages << "/" << chunk;
      }
    }
  }
}

TEST(Stages, AListThatDoesNotSumUpIsRefused) {
  EXPECT_THAT(InputErrorOf([] {
                GivenStages(32, {8, 8, 8, 6});
              }),
              AllOf(HasSubstr("32 are configured"), HasSubstr("make 30"),
                    HasSubstr("use layers per stage 8,8,8,8")));
  EXPECT_THAT(InputErrorOf([] { GivenStages(32, {40, -8}); }), HasSubstr("-8 is negative"));
  EXPECT_THAT(InputErrorOf([] { GivenStages(32, {}); }), HasSubstr("the list is empty"));
  EXPECT_NE(InputErrorOf([] { GivenStages(2, {INT64_MAX, INT64_MAX, INT64_MAX}); }), "");
  EXPECT_THAT(InputErrorOf([] { EvenStages(4, 5); }), HasSubstr("4 layers cannot fill 5 stages"));
}

// C11: an uneven split of equal layers. The mean would be 2 layers and a quarter of the ends.
TEST(Stages, TheAnswerIsTheFullestStageAndNotTheMean) {
  Architecture a = Parsed(Llama8B());
  a.layers = 8;
  const ParameterCount count = CountParameters(a);
  const auto stages = ParametersByStage(count, a.tied_embeddings, {1, 2, 2, 3});
  EXPECT_EQ(stages[0].total(), count.embedding + count.per_layer());
  EXPECT_EQ(stages[1].total(), 2 * count.per_layer());
  EXPECT_EQ(stages[2].total(), 2 * count.per_layer());
  EXPECT_EQ(stages[3].total(), 3 * count.per_layer() + count.final_norm + count.head);
  EXPECT_EQ(FullestStage(stages), 3u);
  EXPECT_GT(stages[3].total(), count.total() / 4);
}

// C12: seven stages of 3.15 ms and one of 3.90: the cycle is 3.90.
TEST(Stages, ThePaceIsThatOfTheSlowestStage) {
  const std::vector<int64_t> times = {3150, 3150, 3150, 3150, 3150, 3150, 3150, 3900};
  const Balance balance = BalanceOf(times);
  EXPECT_EQ(balance.slowest, 7u);
  EXPECT_NEAR(balance.share, 0.832, 0.0005);
  EXPECT_NEAR(balance.speedup, 6.65, 0.005);
}

TEST(Stages, SixtyFourLayersOnSixStagesGoAtThePaceOfEleven) {
  const LayersPerStage split = BalancedStages(64, 6);
  EXPECT_THAT(split, ElementsAre(11, 11, 11, 11, 10, 10));
  EXPECT_NEAR(BalanceOf(split).share, 0.97, 0.0005);
}

// C50: both ends hold the matrix, which is the untied total.
TEST(Stages, ATiedEmbeddingIsHeldTwiceUnlessFirstAndLastStageAreTogether) {
  const Architecture qwen = Parsed(Qwen06B());
  const ParameterCount count = CountParameters(qwen);
  const auto stages = ParametersByStage(count, true, EvenStages(28, 2));
  EXPECT_EQ(stages[0].total() + stages[1].total(), 751'632'384);
  EXPECT_EQ(ParametersByStage(count, true, {28})[0].total(), 596'049'920);
  const std::vector<int> both = {0, 3};
  EXPECT_EQ(ParametersOn(count, true, EvenStages(28, 4), both).head, count.final_norm);
}

// 16 bytes a parameter: bf16 with its gradient, a float32 master copy and Adam's two moments.
TEST(Stages, TheVocabularyCosts16BytesForEachElementOnEachEnd) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    Architecture a = Parsed(Llama8B());
    const ModelRun run{.sequence_length = 1024, .dtype = dtype, .ranks = 4};
    const std::vector<Bytes> bytes = StaticBytesByStage(a, run);
    const Bytes matrix = 16 * a.vocabulary * a.hidden;
    EXPECT_EQ(bytes[0] - bytes[1], matrix);
    EXPECT_EQ(bytes[3] - bytes[2], matrix + 16 * a.hidden);  // the final norm is there too
    EXPECT_EQ(bytes[1], bytes[2]);
    EXPECT_EQ(bytes[1], 16 * 8 * CountParameters(a).per_layer());
  }
}

// C24: a V places the first and the last stage on rank 0, so that it holds embedding and head: what
// is one rank's in a line moves to the other, and nothing else changes.
TEST(Stages, C24InAVTheFirstRankTakesOneMatrixMoreAndTheLastOneLess) {
  const Architecture a = Parsed(Llama8B());  // 32 layers, vocabulary 128256, hidden 4096
  const ModelRun linear{.sequence_length = 4096, .ranks = 8};
  const ModelRun v{.sequence_length = 4096, .ranks = 8, .stages = 16};
  const Costs line = CostsFromModel(a, linear, OnlyFlops());
  const Costs two_a_rank = CostsFromModel(a, v, OnlyFlops());
  const Bytes matrix = Bytes{16} * 128256 * 4096;
  const Bytes norm = 16 * 4096;  // the final norm stands with the head
  for (int rank = 0; rank < 8; ++rank) {
    const std::vector<int> held = {rank, 15 - rank};
    const Bytes before = Total(line.static_memory(std::span(&rank, 1), 8));
    const Bytes change = Total(two_a_rank.static_memory(held, 8)) - before;
    EXPECT_EQ(change, rank == 0 ? matrix + norm : rank == 7 ? -matrix - norm : 0) << rank;
    EXPECT_EQ(StaticBytesOn(a, v, held) - before, change) << rank;
  }
}

// Where both ends are on one rank, an embedding that they share is there once.
TEST(Stages, InAVATiedEmbeddingIsHeldOnce) {
  const Architecture qwen = Parsed(Qwen06B());
  const ModelRun v{.sequence_length = 1024, .ranks = 7, .stages = 14};
  const Costs costs = CostsFromModel(qwen, v, OnlyFlops());
  Bytes all = 0;
  for (int rank = 0; rank < 7; ++rank) {
    const std::vector<int> held = {rank, 13 - rank};
    EXPECT_EQ(Total(costs.static_memory(held, 7)), StaticBytesOn(qwen, v, held)) << rank;
    all += Total(costs.static_memory(held, 7));
  }
  EXPECT_EQ(all, 16 * CountParameters(qwen).total());
}

}  // namespace
}  // namespace spiritlevel
