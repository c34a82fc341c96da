// The sums of gradients that a run of a model ends with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "models/model_costs.h"
#include "tests/base/input_error_of.h"
#include "tests/models/configs.h"
#include "tests/models/made_up_device.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kLayer = 218'112'000;   // parameters of one of Llama-3.1-8B
constexpr int64_t kMatrix = 525'336'576;  // its embedding, and its head

GradientSums SumsOf(const Architecture& a, const ModelRun& run) {
  return CostsFromModel(a, run, MadeUpDevice()).common().gradients;
}

std::vector<Bytes> BytesOf(const std::vector<GradientBucket>& buckets) {
  std::vector<Bytes> bytes;
  for (const GradientBucket& bucket : buckets) bytes.push_back(bucket.sum.bytes);
  return bytes;
}

// W fills a stage's gradients from its last block to its first: the head before the layers, the
// embedding after them. A bucket holds whole blocks, as many as the limit lets it.
TEST(ModelGradients, BucketsAreWholeBlocksInTheOrderInWhichWFillsThem) {
  const Architecture llama = Parsed(Llama8B());
  ModelRun run{.sequence_length = 512, .ranks = 4, .data_parallel = 8};
  run.bucket_bytes = 5 * kLayer;  // two layers in bfloat16, and half of a third
  const GradientSums sums = SumsOf(llama, run);
  ASSERT_THAT(sums.buckets, SizeIs(4));
  EXPECT_EQ(BytesOf(sums.buckets[1]), std::vector<Bytes>(4, 2 * 2 * kLayer));
  EXPECT_EQ(BytesOf(sums.buckets[0]),
            (std::vector<Bytes>{4 * kLayer, 4 * kLayer, 4 * kLayer, 4 * kLayer, 2 * kMatrix}));
  EXPECT_EQ(BytesOf(sums.buckets[3]), (std::vector<Bytes>{2 * (kMatrix + 4096), 4 * kLayer,
                                                          4 * kLayer, 4 * kLayer, 4 * kLayer}));
}

TEST(ModelGradients, ABlockThatIsLargerThanABucketIsOneByItself) {
  const Architecture llama = Parsed(Llama8B());
  const ModelRun run{.sequence_length = 512, .ranks = 8, .data_parallel = 2};  // 25 MiB
  EXPECT_EQ(BytesOf(SumsOf(llama, run).buckets[1]), std::vector<Bytes>(4, 2 * kLayer));
}

TEST(ModelGradients, EveryGradientIsInOneBucketAndEveryPartOfWHasItsShare) {
  const Architecture qwen = Parsed(Qwen06B());
  for (const Bytes limit : {Bytes{1}, Bytes{40} << 20, Bytes{1} << 40}) {
    ModelRun run{.sequence_length = 512, .ranks = 4, .data_parallel = 2};
    run.bucket_bytes = limit;
    const Costs costs = CostsFromModel(qwen, run, MadeUpDevice());
    const std::vector<Bytes> all = StaticBytesByStage(qwen, run);
    for (size_t stage = 0; stage < 4; ++stage) {
      const auto& buckets = costs.common().gradients.buckets[stage];
      const std::vector<Bytes> bytes = BytesOf(buckets);
      EXPECT_EQ(8 * std::accumulate(bytes.begin(), bytes.end(), Bytes{0}), all[stage]);
      int64_t shares = 0;
      for (const GradientBucket& bucket : buckets) shares += bucket.share;
      const auto rounding = static_cast<double>(buckets.size());
      const int number = static_cast<int>(stage);
      EXPECT_NEAR(static_cast<double>(shares), static_cast<double>(costs.of(number, 0).weight_grad),
                  rounding);
    }
  }
}

// In a ring each of d members sends 2 (d - 1) messages of 1 / d of the bytes; made up: 0.5 ns a
// byte, 1000 ns each.
TEST(ModelGradients, ASumTakesWhatARingTakes) {
  const Architecture llama = Parsed(Llama8B());
  ModelRun run{.sequence_length = 512, .ranks = 8, .data_parallel = 8};
  const Bytes bytes = 2 * kLayer;
  EXPECT_EQ(SumsOf(llama, run).buckets[1][0].sum.duration, 14 * (bytes / 8 / 2 + 1000));
  run.data_parallel = 2;
  EXPECT_EQ(SumsOf(llama, run).buckets[1][0].sum.duration, 2 * (bytes / 2 / 2 + 1000));
}

TEST(ModelGradients, WithoutReplicasThereAreOnlyTwinsAndTiedEmbeddings) {
  const Architecture llama = Parsed(Llama8B());
  const ModelRun run{.sequence_length = 512, .ranks = 4};
  const GradientSums untied = SumsOf(llama, run);
  EXPECT_THAT(untied.buckets, IsEmpty());
  EXPECT_THAT(untied.tied, IsEmpty());
  ASSERT_THAT(untied.twins, SizeIs(4));
  EXPECT_EQ(untied.twins[1], (GradientSum{.bytes = 16 * kLayer, .duration = 8 * kLayer + 2000}));

  const Architecture qwen = Parsed(Qwen06B());
  const GradientSums tied = SumsOf(qwen, run);
  ASSERT_THAT(tied.tied, SizeIs(1));
  const Bytes embedding = Bytes{2} * 151'936 * 1024;
  EXPECT_EQ(tied.tied[0], (GradientSum{.bytes = embedding, .duration = embedding / 2 + 2000}));
  ModelRun alone = run;
  alone.ranks = 1;
  EXPECT_THAT(SumsOf(qwen, alone).tied, IsEmpty());
}

TEST(ModelGradients, AStageWithoutLayersHasABucketOfNothing) {
  const Architecture llama = Parsed(Llama8B());
  ModelRun run{.sequence_length = 512, .ranks = 4, .data_parallel = 8};
  run.layers_per_stage = {16, 0, 16, 0};
  const GradientSums sums = SumsOf(llama, run);
  EXPECT_EQ(sums.buckets[1], std::vector<GradientBucket>(1));
  EXPECT_EQ(sums.twins[1], GradientSum{});
  EXPECT_EQ(BytesOf(sums.buckets[3]), std::vector<Bytes>{2 * (kMatrix + 4096)});
}

TEST(ModelGradients, NoReplicasOrNoBucketIsRefused) {
  const Architecture llama = Parsed(Llama8B());
  ModelRun run{.sequence_length = 512, .ranks = 4, .data_parallel = 0};
  EXPECT_THAT(InputErrorOf([&] { SumsOf(llama, run); }), HasSubstr("0 replicas"));
  run.data_parallel = 2;
  run.bucket_bytes = 0;
  EXPECT_THAT(InputErrorOf([&] { SumsOf(llama, run); }), HasSubstr("0 bytes"));
}

}  // namespace
}  // namespace spiritlevel
