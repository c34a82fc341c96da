// A scenario that names a model: what is read, what is refused, and what it costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "models/parameters.h"
#include "sim/schedules/catalog.h"
#include "tests/models/made_up_device.h"
#include "tests/scenarios/texts.h"

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// As if it lay beside the shipped config. `fields` stand in line 3.
std::string WithModel(const std::string& fields) {
  return "ranks: 4\nmicro_batches: 8\nmodel { config: \"tinyllama-1.1b.json\" " + fields + " }\n";
}
Scenario Parsed(const std::string& text) {
  return ParseScenario(text, ScenarioFormat::kText, "scenarios/my.textproto");
}
std::string Refusal(const std::string& text) {
  return ErrorOf([&] { Parsed(text); });
}
std::string RefusalOf(const std::string& fields) { return Refusal(WithModel(fields)); }

const std::string kBalanced = "sequence_length: 256 split: \"balanced\"";

Scenario Measured(const std::string& fields) {
  Scenario scenario = Parsed(WithModel(fields));
  AttachProfile(MadeUpDevice(), &scenario);
  return scenario;
}

TEST(ModelScenario, EveryFieldIsRead) {
  const Scenario s = Parsed(WithModel(
      "profile: \"machines/mine.textproto\" sequence_length: 512 micro_batch_size: 3 "
      "dtype: \"bf16\" layers_per_stage: [6, 6, 6, 4] "
      "recompute_by_stage: [\"full\", \"none\", \"full-again-in-w\", \"none\"] data_parallel: 8 "
      "bucket_bytes: 1000 norm_grads_in_w: true stored_attention: true all_cores_busy: false"));
  EXPECT_THAT(s.warnings, IsEmpty());
  ASSERT_TRUE(s.model);
  const ModelForm& model = *s.model;
  EXPECT_EQ(model.config_file, "scenarios/tinyllama-1.1b.json");
  EXPECT_EQ(model.profile_file, "scenarios/machines/mine.textproto");
  EXPECT_EQ(model.architecture.name, "LlamaForCausalLM");
  EXPECT_EQ(model.dtype, DType::kBFloat16);
  EXPECT_EQ(model.split, Split::kGiven);
  const ModelRun& run = model.run;
  EXPECT_EQ(run.ranks, 4);
  EXPECT_EQ(run.micro_batches, 8);
  EXPECT_EQ(run.sequence_length, 512);
  EXPECT_EQ(run.micro_batch_size, 3);
  EXPECT_THAT(run.layers_per_stage, ElementsAre(6, 6, 6, 4));
  EXPECT_THAT(run.recompute, ElementsAre(Recompute::kFull, Recompute::kNothing,
                                         Recompute::kFullAgainInW, Recompute::kNothing));
  EXPECT_EQ(run.data_parallel, 8);
  EXPECT_EQ(run.bucket_bytes, 1000);
  EXPECT_TRUE(run.norm_grads_in_w);
  EXPECT_TRUE(run.stored_attention);
  EXPECT_FALSE(run.all_cores_busy);
}

TEST(ModelScenario, WhatIsLeftOutHasItsDefault) {
  const ModelForm model = *Parsed(WithModel(kBalanced)).model;
  EXPECT_EQ(model.profile_file, "");
  EXPECT_EQ(model.dtype, std::nullopt);
  EXPECT_EQ(model.run.micro_batch_size, 1);
  EXPECT_THAT(model.run.recompute, IsEmpty());
  EXPECT_EQ(model.run.data_parallel, 1);
  EXPECT_EQ(model.run.bucket_bytes, 25 << 20);
  EXPECT_FALSE(model.run.norm_grads_in_w);
  EXPECT_FALSE(model.run.stored_attention);
  EXPECT_TRUE(model.run.all_cores_busy);
}

TEST(ModelScenario, IsReadFromJsonToo) {
  const Scenario s = ParseScenario(
      R"({"ranks": 4, "microBatches": 8, "model": {"config": "tinyllama-1.1b.json",
          "sequenceLength": 256, "layersPerStage": [6, 6, 6, 4],
          "recomputeByStage": ["full", "none", "none", "none"]}})",
      ScenarioFormat::kJson, "scenarios/my.json");
  EXPECT_THAT(s.model->run.layers_per_stage, ElementsAre(6, 6, 6, 4));
  EXPECT_EQ(s.model->run.recompute[0], Recompute::kFull);
}

TEST(ModelScenario, OneOfCostsAndModelIsGiven) {
  const std::string costs = "costs { uniform { " + kPasses + " } }\n";
  EXPECT_THAT(Refusal(WithModel(kBalanced) + costs),
              AllOf(StartsWith("scenarios/my.textproto:3: model: stands beside costs"),
                    HasSubstr("not both")));
  EXPECT_THAT(Refusal("ranks: 4\nmicro_batches: 8\n"),
              AllOf(HasSubstr("costs: is missing"), HasSubstr("or model { config: ")));
}

// They would be ignored.
TEST(ModelScenario, SharedCostsBesideAModelAreRefused) {
  for (const char* field :
       {"transfer_us: 1", "link_busy_us: 1", "launch_us: 1", "optimizer_us: 1", "barrier_us: 1",
        "message_bytes: 1", "static_bytes: 1", "reduction_us: 1", "buckets: 1", "twin_sum_us: 1",
        "tied_exchange_us: 1"}) {
    const std::string name(std::string_view(field).substr(0, std::string_view(field).find(':')));
    EXPECT_THAT(Refusal(WithModel(kBalanced) + field),
                StartsWith("scenarios/my.textproto:4: " + name + ": stands beside a model"));
  }
}

TEST(ModelScenario, EveryNumberIsChecked) {
  const struct {
    const char* fields;
    const char* field;
    const char* says;
  } kCases[] = {
      {"", "model.sequence_length", "is missing"},
      {"sequence_length: 0", "model.sequence_length", "0 is zero"},
      {"sequence_length: -4", "model.sequence_length", "-4 is negative"},
      {"sequence_length: 99999999999", "model.sequence_length", "is more than"},
      {"sequence_length: 268435456 micro_batch_size: 1048576", "model.sequence_length",
       "fit no machine"},
      {"sequence_length: 9 micro_batch_size: 0", "model.micro_batch_size", "0 is zero"},
      {"sequence_length: 9 micro_batch_size: 9223372036854775807", "model.micro_batch_size",
       "is more than"},
      {"sequence_length: 9 dtype: \"int8\"", "model.dtype", "int8"},
      {"sequence_length: 9 split: \"fair\"", "model.split", "there is no split \"fair\""},
      {"sequence_length: 9 split: \"given\"", "model.split", "there is no split"},
      {"sequence_length: 9 split: \"even\" layers_per_stage: [6, 6, 6, 4]", "model.split",
       "stands beside layers_per_stage"},
      {"sequence_length: 9 layers_per_stage: [6, 6, 6, 5]", "model.layers_per_stage",
       "22 are configured, but the layers per stage make 23"},
      {"sequence_length: 9 layers_per_stage: [23, -1, 0, 0]", "model.layers_per_stage",
       "-1 is negative"},
      {"sequence_length: 9 layers_per_stage: [11, 11]", "model.layers_per_stage",
       "2 entries do not fit"},
      {"sequence_length: 9 recompute: \"some\"", "model.recompute",
       "there is no recomputation \"some\""},
      {"sequence_length: 9 recompute: \"full\" recompute_by_stage: [\"full\"]", "model.recompute",
       "stands beside recompute_by_stage"},
      {"sequence_length: 9 split: \"balanced\" "
       "recompute_by_stage: [\"full\", \"half\", \"full\", \"full\"]",
       "model.recompute_by_stage[1]", "half"},
      {"sequence_length: 9 split: \"balanced\" recompute_by_stage: [\"full\"]",
       "model.recompute_by_stage", "1 entries do not fit 4 ranks"},
      {"sequence_length: 9 layers_per_stage: [6, 6, 6, 4] recompute_by_stage: [\"full\", "
       "\"full\", \"full\", \"full\", \"full\", \"full\", \"full\", \"full\"]",
       "model.recompute_by_stage", "has 8 entries, and layers_per_stage has 4"},
      {"sequence_length: 9 split: \"balanced\" data_parallel: 0", "model.data_parallel",
       "0 is zero"},
      {"sequence_length: 9 split: \"balanced\" data_parallel: 2000000", "model.data_parallel",
       "is more than"},
      {"sequence_length: 9 split: \"balanced\" bucket_bytes: 0", "model.bucket_bytes", "0 is zero"},
      {"sequence_length: 9 split: \"balanced\" bucket_bytes: -1", "model.bucket_bytes",
       "-1 is negative"},
      {"sequence_length: 9 profile: \"\"", "model.profile", "names no file"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(RefusalOf(c.fields),
                AllOf(StartsWith(std::string("scenarios/my.textproto:3: ") + c.field + ": "),
                      HasSubstr(c.says), HasSubstr("\n    ")))
        << c.fields;
  }
}

TEST(ModelScenario, LayersThatDoNotDivideAreRefusedWithWhatWouldDo) {
  EXPECT_THAT(RefusalOf("sequence_length: 256"),
              AllOf(StartsWith("scenarios/my.textproto:3: model"), HasSubstr("22 are configured"),
                    HasSubstr("layers per stage 6,6,5,5"), EndsWith("or split: \"balanced\"")));
  const std::string many = "ranks: 23\nmicro_batches: 8\nmodel { config: \"tinyllama-1.1b.json\" ";
  for (const char* split : {"even", "balanced"}) {
    EXPECT_THAT(Refusal(many + "sequence_length: 8 split: \"" + split + "\" }"),
                AllOf(HasSubstr("model.split"), HasSubstr("22 layers cannot fill 23 stages")));
  }
}

TEST(ModelScenario, WhatIsWrongWithTheConfigNamesBothFiles) {
  const std::string missing = "ranks: 4\nmicro_batches: 8\nmodel { config: \"none.json\" }\n";
  EXPECT_THAT(Refusal(missing), StartsWith("scenarios/my.textproto:3: model.config: "
                                           "scenarios/none.json: "));
  const std::string scenario = "ranks: 4\nmicro_batches: 8\nmodel { config: \"example.json\" }\n";
  EXPECT_THAT(Refusal(scenario), StartsWith("scenarios/my.textproto:3: model.config: "
                                            "scenarios/example.json: "));
  EXPECT_THAT(Refusal("ranks: 4\nmicro_batches: 8\nmodel { }\n"),
              HasSubstr("model.config: is missing"));
  EXPECT_THAT(Refusal("ranks: 4\nmicro_batches: 8\nmodel { config: \"a\\033b\" }\n"),
              HasSubstr("model.config: is no file name"));
}

TEST(ModelScenario, ASequenceLongerThanTheModelsPositionsIsWarnedOf) {
  const Scenario s = Parsed(WithModel("sequence_length: 4096 split: \"balanced\""));
  ASSERT_EQ(s.warnings.size(), 1u);
  EXPECT_THAT(s.warnings[0], AllOf(StartsWith("scenarios/my.textproto:3: model.sequence_length: "),
                                   HasSubstr("4096 is more than the 2048 positions")));
}

// Stages that share a rank, by the orders themselves.
TEST(ModelScenario, GroupsAreTheStagesOfEachRank) {
  const auto groups = [](std::string_view name) {
    return GroupsOf(FindSchedule(name).Make({.ranks = 4, .micro_batches = 8}));
  };
  EXPECT_THAT(groups("1f1b"),
              testing::ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(groups("interleaved"), testing::ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5),
                                                          ElementsAre(2, 6), ElementsAre(3, 7)));
  EXPECT_THAT(groups("zb-v"), testing::ElementsAre(ElementsAre(0, 7), ElementsAre(1, 6),
                                                   ElementsAre(2, 5), ElementsAre(3, 4)));
  // Each on two ranks.
  EXPECT_THAT(groups("dualpipe"), testing::ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
}

// The head of a model is worth more than a layer: what shares its rank gets fewer.
TEST(ModelScenario, ABalancedSplitIsMadeForThePlacement) {
  const Scenario s = Measured(kBalanced);
  const auto busiest = [&](const Schedule& schedule, const Costs& costs) {
    TimeNs most = 0;
    for (const std::vector<int>& group : GroupsOf(schedule)) {
      TimeNs sum = 0;
      for (const int stage : group) {
        const StageCost& cost = costs.of(stage, 0);
        sum += cost.forward + cost.input_grad + cost.weight_grad;
      }
      most = std::max(most, sum);
    }
    return most;
  };
  for (const char* name : {"zb-v", "interleaved", "dualpipe"}) {
    const Schedule schedule = FindSchedule(name).Make({.ranks = s.ranks, .micro_batches = 8});
    EXPECT_LE(busiest(schedule, CostsFor(s, schedule)),
              busiest(schedule, CostsFor(s, schedule.num_stages())))
        << name;
  }
}

TEST(ModelScenario, EachNumberOfStagesIsCutAnew) {
  const Scenario s = Measured(kBalanced);
  for (const int stages : {4, 8, 12, 20}) {
    const LayersPerStage layers = LayersFor(s, stages);
    ASSERT_EQ(layers.size(), static_cast<size_t>(stages));
    int64_t sum = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      EXPECT_GE(layers[i], LeastLayers(i, layers.size()));
      sum += layers[i];
    }
    EXPECT_EQ(sum, 22);
    const Costs costs = CostsFor(s, stages);
    EXPECT_EQ(costs.num_stages(), stages);
    EXPECT_EQ(costs.num_micro_batches(), 8);
    RefuseStages(s, stages);
  }
}

// They appear as rows with their reason.
TEST(ModelScenario, StagesThatTheModelCannotHaveAreRefused) {
  const auto refusals = [](const Scenario& s, int stages) {
    const std::string costs = ErrorOf([&] { CostsFor(s, stages); });
    EXPECT_EQ(ErrorOf([&] { RefuseStages(s, stages); }), costs);
    return costs;
  };
  EXPECT_THAT(refusals(Measured(kBalanced), 24), HasSubstr("22 layers cannot fill 24 stages"));
  EXPECT_THAT(refusals(Measured("sequence_length: 256 layers_per_stage: [6, 6, 6, 4]"), 8),
              HasSubstr("4 entries do not fit 8 stages on 4 ranks"));
  EXPECT_THAT(refusals(Measured(kBalanced + " recompute_by_stage: "
                                            "[\"full\", \"none\", \"none\", \"none\"]"),
                       8),
              HasSubstr("recompute by stage: 4 entries for 8 stages"));
}

TEST(ModelScenario, AProfileOfAnotherTypeIsRefusedWhereTheFileSaysOne) {
  Scenario s = Parsed(WithModel(kBalanced + " dtype: \"float32\""));
  EXPECT_THAT(ErrorOf([&] { AttachProfile(MadeUpDevice(), &s); }),
              AllOf(StartsWith("scenarios/my.textproto:3: model.dtype: "),
                    HasSubstr("measured with bfloat16, not float32")));
  // Without a word about it, the profile's.
  const Scenario taken = Measured(kBalanced);
  EXPECT_EQ(CostsFor(taken, 4).common().hop.bytes, 256 * 2048 * 2);
}

TEST(ModelScenario, TheShippedModelIsTinyLlamaToTheLastParameter) {
  const Scenario s = LoadScenario("scenarios/tinyllama-p4-m16.textproto");
  EXPECT_EQ(CountParameters(s.model->architecture).total(), 1'100'048'384);
  EXPECT_EQ(s.ranks, 4);
  EXPECT_EQ(s.micro_batches, 16);
  EXPECT_EQ(s.model->split, Split::kBalanced);
}

TEST(ModelScenario, TimesThatDoNotAddUpWithinAnIntegerAreRefusedWithTheirProfile) {
  const std::string text =
      "ranks: 4\nmicro_batches: 2000000\nstages_per_rank: 1 model { config: "
      "\"tinyllama-1.1b.json\" sequence_length: 65536 split: \"balanced\" }\n";
  Scenario s = Parsed(text);
  DeviceProfile slow = OnlyFlops();
  for (RateCurve& curve : slow.gemm) curve.points = {{1, 0.01}};
  EXPECT_THAT(ErrorOf([&] { AttachProfile(slow, &s); }),
              AllOf(StartsWith("scenarios/my.textproto:3: model: "), HasSubstr("adds up to "),
                    HasSubstr("use fewer micro_batches")));
  for (RateCurve& curve : slow.gemm) curve.points = {{1, 1e9}};
  EXPECT_THAT(ErrorOf([&] { AttachProfile(slow, &s); }),
              StartsWith("scenarios/my.textproto:3: model: more than a day for F, B and W"));
}

// The split that was found for one use is not taken for another.
TEST(ModelScenario, ASplitThatWasFoundIsOfItsOwnStagesAndRun) {
  Scenario s = Measured(kBalanced);
  const LayersPerStage four = LayersFor(s, 4);
  const LayersPerStage in_v = LayersFor(s, 8, {{0, 7}, {1, 6}, {2, 5}, {3, 4}});
  EXPECT_EQ(LayersFor(s, 4), four);
  EXPECT_EQ(LayersFor(s, 8, {{0, 7}, {1, 6}, {2, 5}, {3, 4}}), in_v);
  s.model->run.sequence_length = 16'384;  // next to attention, the head is less
  EXPECT_NE(LayersFor(s, 4), four);
  EXPECT_EQ(LayersFor(s, 4), LayersFor(Measured("sequence_length: 16384 split: \"balanced\""), 4));
}

}  // namespace
}  // namespace spiritlevel
