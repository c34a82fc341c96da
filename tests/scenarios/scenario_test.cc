// What good files mean.
#include "scenarios/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scenarios/texts.h"

namespace spiritlevel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Scenario, TheExampleMeansWhatItSays) {
  const Scenario s = ParseText(kExample);
  EXPECT_EQ(s.name, "gpt-1.5b, 8 ranks, 24 micro-batches");
  EXPECT_EQ(s.ranks, 8);
  EXPECT_EQ(s.micro_batches, 24);
  EXPECT_EQ(s.stages_per_rank, 2);
  EXPECT_EQ(s.group, 0);
  EXPECT_EQ(s.memory_limit, 16000);
  EXPECT_THAT(s.warnings, IsEmpty());

  EXPECT_TRUE(s.slices.uniform);
  EXPECT_EQ(s.slices.ranks, 8);
  EXPECT_EQ(s.slices.micro_batches, 24);
  EXPECT_THAT(s.slices.table, ElementsAre(StageCost{.forward = 18'522'000,
                                                    .input_grad = 18'086'000,
                                                    .weight_grad = 9'337'000,
                                                    .fused_backward = kDerived,
                                                    .overlapped = kDerived,
                                                    .activation = 1000,
                                                    .weight_state = 366}));
  Costs::Common common;
  common.hop.latency = 601'000;
  EXPECT_EQ(s.slices.common, common);
}

TEST(Scenario, EveryOptionalFieldArrives) {
  const Scenario s = ParseText(R"(
    ranks: 4 micro_batches: 8 stages_per_rank: 3 group: 5
    costs {
      uniform {
        forward_us: 1 input_grad_us: 2 weight_grad_us: 3 fused_backward_us: 4.5 overlapped_us: 5
        activation_bytes: 6 weight_state_bytes: 7
        transfer_us: 8 link_busy_us: 9 message_bytes: 10
      }
      launch_us: 11 static_bytes: 12
    }
    optimizer_us: 13 barrier_us: 14
    reduction_us: 15 buckets: 16 twin_sum_us: 17 tied_exchange_us: 18)");
  EXPECT_EQ(s.stages_per_rank, 3);
  EXPECT_EQ(s.group, 5);
  EXPECT_EQ(s.memory_limit, std::nullopt);
  EXPECT_THAT(s.slices.table, ElementsAre(StageCost{.forward = 1000,
                                                    .input_grad = 2000,
                                                    .weight_grad = 3000,
                                                    .fused_backward = 4500,
                                                    .overlapped = 5000,
                                                    .activation = 6,
                                                    .weight_state = 7}));
  EXPECT_EQ(s.slices.common, (Costs::Common{.hop = {.latency = 8000, .busy = 9000, .bytes = 10},
                                            .launch = 11'000,
                                            .optimizer = 13'000,
                                            .barrier = 14'000,
                                            .static_bytes = 12}));
  EXPECT_EQ(
      s.slices.sums,
      (SharedSums{.reduction = 15'000, .buckets = 16, .twin = 17'000, .tied_exchange = 18'000}));
}

TEST(Scenario, ASharedCostMayStandInAnyOfItsPlaces) {
  for (const char* field :
       {"transfer_us", "link_busy_us", "launch_us", "optimizer_us", "barrier_us", "message_bytes",
        "static_bytes", "reduction_us", "twin_sum_us", "tied_exchange_us"}) {
    const auto shared = [](const std::string& text) {
      const ModelSlices slices = ParseText(text).slices;
      return std::pair(slices.common, slices.sums);
    };
    const std::string line = std::string(field) + ": 7 ";
    const auto inside = shared(WithUniform(kPasses + " " + line));
    EXPECT_NE(inside, std::pair(Costs::Common(), SharedSums())) << field;
    EXPECT_EQ(shared(line + WithUniform(kPasses)), inside) << field;
    const std::string in_costs =
        "ranks: 8 micro_batches: 24 costs { " + line + "uniform { " + kPasses + " } }";
    EXPECT_EQ(shared(in_costs), inside) << field;
    const std::string in_table = WithRows("row { " + kPasses + " } " + line);
    EXPECT_EQ(shared(in_table), inside) << field;
  }
}

TEST(Scenario, FractionsOfAMicrosecondAreRoundedHalfUpToNanoseconds) {
  const Scenario s =
      ParseText(WithUniform("forward_us: 0.0005 input_grad_us: 0.0014 weight_grad_us: 18.5224999"));
  EXPECT_EQ(s.slices.table[0].forward, 1);
  EXPECT_EQ(s.slices.table[0].input_grad, 1);
  EXPECT_EQ(s.slices.table[0].weight_grad, 18'522);
}

TEST(Scenario, RowsWithoutMicroBatchesAreOneEntryEach) {
  const Scenario s = ParseText(WithRows(R"(
    row { forward_us: 1 input_grad_us: 2 weight_grad_us: 3 activation_bytes: 4 }
    row { forward_us: 5 input_grad_us: 6 weight_grad_us: 7 weight_state_bytes: 8 })"));
  EXPECT_FALSE(s.slices.uniform);
  EXPECT_EQ(s.slices.rows, 2);
  ASSERT_EQ(s.slices.table.size(), 2u);
  EXPECT_EQ(s.slices.table[0].forward, 1000);
  EXPECT_EQ(s.slices.table[0].activation, 4);
  EXPECT_EQ(s.slices.table[1].weight_grad, 7000);
  EXPECT_EQ(s.slices.table[1].weight_state, 8);
}

TEST(Scenario, AMicroBatchOverridesWhatItNamesAndNothingElse) {
  const Scenario s = ParseText(WithRows(R"(
    row {
      forward_us: 1 input_grad_us: 2 weight_grad_us: 3 activation_bytes: 4
      micro_batch { index: 3 forward_us: 10 }
      micro_batch { index: 0 input_grad_us: 20 activation_bytes: 40 }
    }
    row { forward_us: 5 input_grad_us: 6 weight_grad_us: 7 })"));
  ASSERT_EQ(s.slices.table.size(), 2u * 4u);  // the micro-batch runs fastest
  const auto entry = [&s](int row, int micro_batch) {
    return s.slices.table[row * 4 + micro_batch];
  };
  EXPECT_EQ(entry(0, 3).forward, 10'000);
  EXPECT_EQ(entry(0, 3).input_grad, 2000);
  EXPECT_EQ(entry(0, 0).forward, 1000);
  EXPECT_EQ(entry(0, 0).input_grad, 20'000);
  EXPECT_EQ(entry(0, 0).activation, 40);
  EXPECT_EQ(entry(0, 1), entry(0, 2));
  EXPECT_EQ(entry(0, 1).forward, 1000);
  EXPECT_EQ(entry(1, 0), entry(1, 3));
  // Sums that nobody gave follow the override.
  const Costs costs = CostsForStages(s.slices, 2);
  EXPECT_EQ(costs.of(0, 0).fused_backward, 23'000);
  EXPECT_EQ(costs.of(0, 0).overlapped, 24'000);
  EXPECT_EQ(costs.of(0, 1).fused_backward, 5000);
}

TEST(Scenario, JsonAndTextFormatMeanTheSame) {
  const Scenario text = LoadScenario("scenarios/example.textproto");
  const Scenario json = LoadScenario("scenarios/example.json");
  EXPECT_EQ(json.name, text.name);
  EXPECT_EQ(json.ranks, text.ranks);
  EXPECT_EQ(json.micro_batches, text.micro_batches);
  EXPECT_EQ(json.memory_limit, text.memory_limit);
  EXPECT_EQ(json.slices.table, text.slices.table);
  EXPECT_EQ(json.slices.common, text.slices.common);
}

TEST(Scenario, JsonTakesBothFormsOfNamesAndBytesAsNumberOrString) {
  const Scenario snake = ParseJson(R"({"ranks": 8, "micro_batches": 24, "memory_limit_bytes": 16000,
    "costs": {"table": {"row": [{"forward_us": 1, "input_grad_us": 1, "weight_grad_us": 1,
      "activation_bytes": 3, "micro_batch": [{"index": 1, "forward_us": 2}]}]}}})");
  const Scenario camel = ParseJson(R"({"ranks": 8, "microBatches": 24, "memoryLimitBytes": "16000",
    "costs": {"table": {"row": [{"forwardUs": 1, "inputGradUs": 1, "weightGradUs": 1,
      "activationBytes": "3", "microBatch": [{"index": 1, "forwardUs": 2.0}]}]}}})");
  EXPECT_EQ(snake.micro_batches, 24);
  EXPECT_EQ(snake.memory_limit, 16000);
  EXPECT_EQ(camel.micro_batches, 24);
  EXPECT_EQ(camel.memory_limit, 16000);
  EXPECT_EQ(camel.slices.table, snake.slices.table);
}

TEST(Scenario, AFileWithoutANameIsCalledAfterItself) {
  EXPECT_EQ(ParseText(WithUniform(kPasses)).name, "my");
}

TEST(Scenario, WindowsLineEndsAndAByteOrderMarkAreRead) {
  std::string text = "\xEF\xBB\xBF" + WithUniform(kPasses);
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
    text.replace(at, 1, "\r\n");
  }
  EXPECT_EQ(ParseText(text).ranks, 8);
}

TEST(Scenario, WeightStateMayExceedTheActivationAndAPassMayBeFree) {
  const Scenario s = ParseText(WithUniform(
      "forward_us: 2 input_grad_us: 2 weight_grad_us: 0 fused_backward_us: 2 activation_bytes: 1 "
      "weight_state_bytes: 5"));
  EXPECT_EQ(s.slices.table[0].weight_state, 5);
  EXPECT_EQ(s.slices.table[0].weight_grad, 0);
}

// C28 of the collected cases: fused layers compute the weight gradient inside B.
TEST(Scenario, ABackwardThatIsProbablyNotSplitIsWarnedOf) {
  EXPECT_THAT(
      ParseText(WithUniform("forward_us: 1 input_grad_us: 1.95 weight_grad_us: 0.05")).warnings,
      ElementsAre("my.textproto:3: costs.uniform.weight_grad_us: W is 2.5 % of the backward: the "
                  "weight-gradient split is probably not happening (fused layers compute it "
                  "inside B), and zero-bubble schedules will gain little"));
  EXPECT_THAT(
      ParseText(WithUniform("forward_us: 1 input_grad_us: 1.6 weight_grad_us: 0.5")).warnings,
      ElementsAre(HasSubstr("input_grad_us: B is 1.6 times F: the weight-gradient split")));
  // The bounds themselves are not suspicious: W = 10 % of BW, B = 1.5 F.
  EXPECT_THAT(ParseText(WithUniform("forward_us: 6 input_grad_us: 9 weight_grad_us: 1")).warnings,
              IsEmpty());
  // Of forwards that take no time nothing follows.
  EXPECT_THAT(ParseText(WithUniform("forward_us: 0 input_grad_us: 9 weight_grad_us: 1")).warnings,
              IsEmpty());
}

TEST(Scenario, AMemoryLimitWithNothingToLimitIsWarnedOf) {
  EXPECT_THAT(ParseText("memory_limit_bytes: 5\n" + WithUniform(kPasses)).warnings,
              ElementsAre(HasSubstr("my.textproto:1: memory_limit_bytes: is given, but no "
                                    "activation_bytes")));
}

TEST(Scenario, RowsThatFitNoScheduleAreWarnedOf) {
  const std::string row = "row { " + kPasses + " }\n";
  EXPECT_THAT(ParseText(WithRows(row + row + row)).warnings,
              ElementsAre(HasSubstr("my.textproto:4: costs.table.row: 3 rows cannot be cut for "
                                    "any schedule of 2 ranks: give 2 rows")));
  EXPECT_THAT(ParseText(WithRows(row + row)).warnings, IsEmpty());
  EXPECT_THAT(ParseText("stages_per_rank: 3\n" + WithRows(row + row + row)).warnings, IsEmpty());
}

}  // namespace
}  // namespace spiritlevel
