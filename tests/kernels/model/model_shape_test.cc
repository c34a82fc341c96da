#include "kernels/cpu/model/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/cpu/model/stage.h"
#include "kernels/cpu/model/stage_sizes.h"

namespace spiritlevel {
namespace {

using cpu::ModelShape;
using cpu::StageRange;
using testing::ElementsAre;
using testing::HasSubstr;

ModelShape Good() {
  return {.layers = 4,
          .hidden = 8,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 2,
          .intermediate = 8,
          .vocabulary = 16,
          .sequence = 4};
}

ModelShape GoodMixture() {
  ModelShape shape = Good();
  shape.mlp = cpu::MlpKind::kMixtureOfExperts;
  shape.experts = 4;
  shape.top_k = 2;
  return shape;
}

std::string Problem(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.problem();
  }
  return "none";
}

struct BadShape {
  const char* field;
  std::function<void(ModelShape*)> spoil;
};

TEST(ModelShapes, ThatCannotBeRunAreRefusedByField) {
  const std::vector<BadShape> bad = {
      {"layers", [](ModelShape* s) { s->layers = 0; }},
      {"hidden", [](ModelShape* s) { s->hidden = -1; }},
      {"heads", [](ModelShape* s) { s->heads = 0; }},
      {"kv_heads", [](ModelShape* s) { s->kv_heads = 0; }},
      {"kv_heads", [](ModelShape* s) { s->kv_heads = 3; }},
      {"head_dim", [](ModelShape* s) { s->head_dim = 3; }},
      {"intermediate", [](ModelShape* s) { s->intermediate = 0; }},
      {"vocabulary", [](ModelShape* s) { s->vocabulary = int64_t{1} << 40; }},
      {"sequence", [](ModelShape* s) { s->sequence = 0; }},
      {"sequences", [](ModelShape* s) { s->sequences = 0; }},
      {"tokens", [](ModelShape* s) { s->sequence = s->sequences = 1 << 20; }},
      {"norm_epsilon", [](ModelShape* s) { s->norm_epsilon = 0; }},
      {"rope_theta", [](ModelShape* s) { s->rope_theta = 1; }},
      {"dropout", [](ModelShape* s) { s->dropout = 1; }},
      {"dropout", [](ModelShape* s) { s->dropout = -0.1; }},
      {"storage", [](ModelShape* s) { s->storage = cpu::DType::kInt32; }},
      {"experts", [](ModelShape* s) { s->experts = 2; }},
  };
  for (const BadShape& b : bad) {
    ModelShape shape = Good();
    EXPECT_EQ(Problem([&] { cpu::CheckModelShape(shape); }), "none");
    b.spoil(&shape);
    EXPECT_THAT(Problem([&] { cpu::CheckModelShape(shape); }), HasSubstr(b.field));
  }
}

TEST(ModelShapes, OfMixturesThatCannotBeRunAreRefusedByField) {
  const std::vector<BadShape> bad = {
      {"experts", [](ModelShape* s) { s->experts = 0; }},
      {"top_k", [](ModelShape* s) { s->top_k = 0; }},
      {"top_k", [](ModelShape* s) { s->top_k = 5; }},
      {"capacity_factor", [](ModelShape* s) { s->capacity_factor = 0; }},
  };
  for (const BadShape& b : bad) {
    ModelShape shape = GoodMixture();
    EXPECT_EQ(Problem([&] { cpu::CheckModelShape(shape); }), "none");
    b.spoil(&shape);
    EXPECT_THAT(Problem([&] { cpu::CheckModelShape(shape); }), HasSubstr(b.field));
  }
}

TEST(StageRanges, ThatAreNoRunOfTheModelAreRefused) {
  const ModelShape shape = Good();
  for (const StageRange& range :
       {StageRange{.first_layer = 3, .layers = 2}, StageRange{.first_layer = -1, .layers = 2},
        StageRange{.first_layer = 1, .layers = 0},
        StageRange{.first_layer = 1, .layers = 1, .embedding = true},
        StageRange{.first_layer = 0, .layers = 2, .head = true}}) {
    EXPECT_THAT(Problem([&] { cpu::CheckStageRange(shape, range); }), HasSubstr("stage"));
    EXPECT_THAT(Problem([&] { cpu::SizesOf(shape, range); }), HasSubstr("stage"));
    cpu::MemoryMeter meter;
    EXPECT_THAT(Problem([&] { cpu::Stage(shape, range, &meter); }), HasSubstr("stage"));
    EXPECT_EQ(meter.live(), 0);
  }
}

TEST(EvenStages, GiveTheFirstOnesTheRest) {
  const ModelShape shape = Good();
  EXPECT_THAT(cpu::EvenStages(shape, 3),
              ElementsAre(StageRange{.first_layer = 0, .layers = 2, .embedding = true},
                          StageRange{.first_layer = 2, .layers = 1},
                          StageRange{.first_layer = 3, .layers = 1, .head = true}));
  EXPECT_THAT(Problem([&] { cpu::EvenStages(shape, 5); }), HasSubstr("stages"));
  EXPECT_THAT(Problem([&] { cpu::EvenStages(shape, 0); }), HasSubstr("stages"));
}

TEST(Capacity, IsAFairShareTimesItsFactorAndAtMostAllTokens) {
  ModelShape shape = GoodMixture();  // 4 tokens, 2 of 4 experts: 2 on the average
  shape.capacity_factor = 1;
  EXPECT_EQ(cpu::CapacityOf(shape), 2);
  shape.capacity_factor = 1.25;
  EXPECT_EQ(cpu::CapacityOf(shape), 3);
  shape.capacity_factor = 100;
  EXPECT_EQ(cpu::CapacityOf(shape), 4);
  shape.capacity_factor = 0.001;
  EXPECT_EQ(cpu::CapacityOf(shape), 1);
}

TEST(ParameterNames, StandInModelOrder) {
  ModelShape shape = Good();
  shape.layers = 1;
  shape.biases = true;
  std::vector<std::string> names;
  for (const cpu::ParameterInfo& info :
       cpu::ParametersOf(shape, {.layers = 1, .embedding = true, .head = true})) {
    names.push_back(info.name);
  }
  EXPECT_THAT(names,
              ElementsAre("embedding.weight", "layers.0.attention.norm.weight",
                          "layers.0.attention.qkv.weight", "layers.0.attention.qkv.bias",
                          "layers.0.attention.output.weight", "layers.0.attention.output.bias",
                          "layers.0.mlp.norm.weight", "layers.0.mlp.up.weight",
                          "layers.0.mlp.up.bias", "layers.0.mlp.down.weight",
                          "layers.0.mlp.down.bias", "head.norm.weight", "head.weight"));
}

}  // namespace
}  // namespace spiritlevel
