// How a model is recut for a schedule.
#include "models/slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace spiritlevel {
namespace {

ModelSlices UniformSlices(int ranks, const StageCost& cost) {
  ModelSlices slices;
  slices.ranks = ranks;
  slices.micro_batches = 3;
  slices.uniform = true;
  slices.rows = ranks;
  slices.table = {cost};
  slices.common = {.hop = {.latency = 11, .busy = 13, .bytes = 17},
                   .launch = 19,
                   .optimizer = 23,
                   .barrier = 29,
                   .static_bytes = 31};
  return slices;
}

ModelSlices TableSlices(int rows, std::vector<StageCost> table) {
  ModelSlices slices = UniformSlices(4, {});
  slices.uniform = false;
  slices.rows = rows;
  slices.table = std::move(table);
  return slices;
}

StageCost Passes(TimeNs f, TimeNs b, TimeNs w) {
  return {.forward = f,
          .input_grad = b,
          .weight_grad = w,
          .fused_backward = kDerived,
          .overlapped = kDerived};
}

TEST(CostsForStages, OneStageARankKeepsTheNumbersAndFormsTheSums) {
  StageCost cost = Passes(5, 7, 4);
  cost.activation = 100;
  cost.weight_state = 33;
  const Costs costs = CostsForStages(UniformSlices(4, cost), 4);
  EXPECT_EQ(costs.num_stages(), 4);
  EXPECT_EQ(costs.num_micro_batches(), 3);
  EXPECT_EQ(costs.of(3, 2), (StageCost{.forward = 5,
                                       .input_grad = 7,
                                       .weight_grad = 4,
                                       .fused_backward = 11,
                                       .overlapped = 16,
                                       .activation = 100,
                                       .weight_state = 33}));
}

// 5 / 2 = 2.5 -> 3, 7 / 2 = 3.5 -> 4, 4 / 2 = 2: BW is 4 + 2 = 6, not 11 / 2 = 5.5 -> 6 by luck;
// with W = 5 it is 4 + 3 = 7, where 12 / 2 would be 6.
TEST(CostsForStages, SumsAreFormedAfterTheDivision) {
  EXPECT_EQ(CostsForStages(UniformSlices(4, Passes(5, 7, 4)), 8).of(0, 0).fused_backward, 6);
  const Costs costs = CostsForStages(UniformSlices(4, Passes(5, 7, 5)), 8);
  EXPECT_EQ(costs.of(0, 0).forward, 3);
  EXPECT_EQ(costs.of(0, 0).input_grad, 4);
  EXPECT_EQ(costs.of(0, 0).weight_grad, 3);
  EXPECT_EQ(costs.of(0, 0).fused_backward, 7);
  EXPECT_EQ(costs.of(0, 0).overlapped, 10);
}

TEST(CostsForStages, SumsThatWereGivenAreDividedThemselves) {
  StageCost cost = Passes(9, 9, 9);
  cost.fused_backward = 15;
  cost.overlapped = 20;
  const Costs costs = CostsForStages(UniformSlices(2, cost), 6);
  EXPECT_EQ(costs.of(0, 0).fused_backward, 5);
  EXPECT_EQ(costs.of(0, 0).overlapped, 7);  // 6.67
  cost.overlapped = kDerived;
  EXPECT_EQ(CostsForStages(UniformSlices(2, cost), 6).of(0, 0).overlapped, 3 + 5);
}

TEST(CostsForStages, BytesAreDividedHalfUp) {
  StageCost cost = Passes(1, 1, 1);
  cost.activation = 1001;
  cost.weight_state = 367;
  const Costs costs = CostsForStages(UniformSlices(8, cost), 16);
  EXPECT_EQ(costs.of(15, 0).activation, 501);
  EXPECT_EQ(costs.of(15, 0).weight_state, 184);
}

TEST(CostsForStages, WhatBelongsToHopsOpsAndRanksIsNotDivided) {
  const ModelSlices slices = UniformSlices(4, Passes(8, 8, 8));
  EXPECT_EQ(CostsForStages(slices, 16).common(), slices.common);
}

TEST(CostsForStages, EachRowIsCutIntoEqualStages) {
  const ModelSlices slices = TableSlices(2, {Passes(6, 12, 3), Passes(60, 120, 30)});
  const Costs costs = CostsForStages(slices, 6);
  for (int stage = 0; stage < 6; ++stage) {
    const int scale = stage < 3 ? 1 : 10;
    EXPECT_EQ(costs.of(stage, 1).forward, 2 * scale) << stage;
    EXPECT_EQ(costs.of(stage, 1).input_grad, 4 * scale) << stage;
    EXPECT_EQ(costs.of(stage, 1).weight_grad, 1 * scale) << stage;
    EXPECT_EQ(costs.of(stage, 1).fused_backward, 5 * scale) << stage;
  }
  EXPECT_FALSE(costs.varies_by_micro_batch());
}

TEST(CostsForStages, RowsKeepTheirMicroBatchesApart) {
  std::vector<StageCost> table;
  for (const TimeNs f : {2, 4, 6, 20, 40, 60}) table.push_back(Passes(f, f, f));
  const Costs costs = CostsForStages(TableSlices(2, table), 4);
  EXPECT_TRUE(costs.varies_by_micro_batch());
  for (int stage = 0; stage < 4; ++stage) {
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      EXPECT_EQ(costs.of(stage, micro_batch).forward, (stage < 2 ? 1 : 10) * (micro_batch + 1))
          << stage << " " << micro_batch;
    }
  }
}

TEST(CostsForStages, AnyOtherNumberOfStagesIsRefusedWithAWayOut) {
  const ModelSlices table = TableSlices(8, std::vector<StageCost>(8, Passes(1, 1, 1)));
  for (const int stages : {1, 4, 12}) {
    try {
      CostsForStages(table, stages);
      ADD_FAILURE() << stages << " stages were accepted";
    } catch (const InputError& error) {
      EXPECT_EQ(error.problem(),
                "8 rows of costs cannot be cut into " + std::to_string(stages) + " stages");
      EXPECT_EQ(error.way_out(), "give a row for each of the " + std::to_string(stages) +
                                     " stages, or use a schedule with 8, 16, ... stages");
    }
  }
  EXPECT_THROW(CostsForStages(UniformSlices(4, Passes(1, 1, 1)), 6), InputError);
  EXPECT_THROW(CostsForStages(UniformSlices(4, Passes(1, 1, 1)), 0), InputError);
}

// Of a rank's share, on as many ranks: 7 / 2 = 3.5 -> 4 a stage where a rank has two.
TEST(CostsForStages, SumsOfGradientsAreDividedOverARanksStages) {
  ModelSlices slices = UniformSlices(4, Passes(8, 8, 8));
  slices.sums = {.reduction = 700, .buckets = 3, .twin = 7, .tied_exchange = 5};
  const GradientSums one = CostsForStages(slices, 4).common().gradients;
  ASSERT_EQ(one.buckets.size(), 4u);
  for (const auto& buckets : one.buckets) {
    EXPECT_EQ(buckets, std::vector<GradientBucket>(3, {.sum = {.duration = 233}}));
  }
  EXPECT_EQ(one.twins, std::vector<GradientSum>(4, {.duration = 7}));
  EXPECT_EQ(one.tied, std::vector<GradientSum>(1, {.duration = 5}));

  const GradientSums two = CostsForStages(slices, 8).common().gradients;
  ASSERT_EQ(two.buckets.size(), 8u);
  for (const auto& buckets : two.buckets) {  // 3 / 2 = 1.5 -> 2 buckets of 350 / 2
    EXPECT_EQ(buckets, std::vector<GradientBucket>(2, {.sum = {.duration = 175}}));
  }
  EXPECT_EQ(two.twins, std::vector<GradientSum>(8, {.duration = 4}));
  EXPECT_EQ(two.tied, one.tied);  // the embedding is not divided

  // 3 / 8 of a bucket is one all the same.
  const GradientSums eight = CostsForStages(slices, 32).common().gradients;
  ASSERT_EQ(eight.buckets.size(), 32u);
  for (const auto& buckets : eight.buckets) {
    EXPECT_EQ(buckets, std::vector<GradientBucket>(1, {.sum = {.duration = 88}}));
  }
}

// A table of more rows than ranks gives a rank several of them.
TEST(CostsForStages, SumsOfGradientsOfATableAreOfTheRanksShareToo) {
  ModelSlices slices = TableSlices(8, std::vector<StageCost>(8, Passes(1, 1, 1)));
  slices.sums = {.reduction = 100};
  const GradientSums sums = CostsForStages(slices, 8).common().gradients;
  ASSERT_EQ(sums.buckets.size(), 8u);
  EXPECT_EQ(sums.buckets[7], std::vector<GradientBucket>(1, {.sum = {.duration = 50}}));
}

TEST(CostsForStages, OnlySumsThatAreGivenAppear) {
  const ModelSlices none = UniformSlices(4, Passes(8, 8, 8));
  EXPECT_TRUE(CostsForStages(none, 8).common().gradients.empty());
  ModelSlices one = none;
  one.sums.twin = 3;
  const GradientSums sums = CostsForStages(one, 4).common().gradients;
  EXPECT_TRUE(sums.buckets.empty());
  EXPECT_TRUE(sums.tied.empty());
  EXPECT_EQ(sums.twins.size(), 4u);
}

}  // namespace
}  // namespace spiritlevel
