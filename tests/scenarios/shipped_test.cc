// Every scenario in scenarios/ is read without complaint, and holds what it says it holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/scenarios/texts.h"

namespace spiritlevel {
namespace {

using ::testing::IsEmpty;

std::vector<std::filesystem::path> ShippedFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios")) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".textproto" || ending == ".json") files.push_back(entry.path());
  }
  // The models' configs that some of them name.
  for (const char* config : {"scenarios/tinyllama-1.1b.json", "scenarios/verify-2ranks.json"}) {
    EXPECT_EQ(std::erase(files, std::filesystem::path(config)), 1u) << config;
  }
  return files;
}

TEST(ShippedScenarios, AllAreReadWithoutAWarning) {
  const std::vector<std::filesystem::path> files = ShippedFiles();
  EXPECT_GE(files.size(), 15u);
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    const Scenario s = LoadScenario(file);
    EXPECT_THAT(s.warnings, IsEmpty());
    EXPECT_NO_THROW(RefuseStages(s, s.ranks));
    EXPECT_NO_THROW(RefuseStages(s, 2 * s.ranks));
  }
}

TEST(ShippedScenarios, TheExampleIsTheOneOfTheDocumentation) {
  std::ifstream in("scenarios/example.textproto");
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), kExample);
}

struct Profiled {
  const char* model;
  int ranks;
  int micro_batches;
  double f_ms, b_ms, w_ms, transfer_ms;
  int layers;  // of a full rank
  int64_t hidden, heads, sequences;
};

// arXiv 2401.10241, Table 9, with the models of its Table 3.
constexpr Profiled kProfiled[] = {
    {"1.5b", 8, 24, 18.522, 18.086, 9.337, 0.601, 3, 2304, 24, 6},
    {"1.5b", 8, 32, 18.513, 18.086, 9.331, 0.626, 3, 2304, 24, 6},
    {"1.5b", 8, 64, 18.546, 18.097, 9.321, 0.762, 3, 2304, 24, 6},
    {"6.2b", 8, 24, 29.718, 29.444, 19.927, 0.527, 4, 4096, 32, 3},
    {"6.2b", 8, 32, 29.802, 29.428, 19.53, 0.577, 4, 4096, 32, 3},
    {"6.2b", 8, 64, 29.935, 29.621, 19.388, 0.535, 4, 4096, 32, 3},
    {"14.6b", 16, 48, 11.347, 11.248, 8.132, 0.377, 3, 5120, 40, 1},
    {"14.6b", 16, 64, 11.307, 11.254, 8.101, 0.379, 3, 5120, 40, 1},
    {"14.6b", 16, 128, 11.325, 11.308, 8.109, 0.378, 3, 5120, 40, 1},
    {"28.3b", 32, 96, 10.419, 10.207, 7.715, 0.408, 2, 6144, 48, 1},
    {"28.3b", 32, 128, 10.408, 10.204, 7.703, 0.408, 2, 6144, 48, 1},
    {"28.3b", 32, 256, 10.402, 10.248, 7.698, 0.46, 2, 6144, 48, 1},
};

TEST(ShippedScenarios, TheProfiledOnesHoldThePublishedTimesAndTheirFormulas) {
  for (const Profiled& row : kProfiled) {
    const std::string file = "scenarios/gpt-" + std::string(row.model) + "-p" +
                             std::to_string(row.ranks) + "-m" + std::to_string(row.micro_batches) +
                             ".textproto";
    SCOPED_TRACE(file);
    const Scenario s = LoadScenario(file);
    EXPECT_EQ(s.ranks, row.ranks);
    EXPECT_EQ(s.micro_batches, row.micro_batches);
    EXPECT_EQ(s.stages_per_rank, row.layers);
    EXPECT_EQ(s.memory_limit, int64_t{80} << 30);
    const StageCost& cost = s.slices.table.front();
    EXPECT_NEAR(static_cast<double>(cost.forward), row.f_ms * 1e6, 0.5);
    EXPECT_NEAR(static_cast<double>(cost.input_grad), row.b_ms * 1e6, 0.5);
    EXPECT_NEAR(static_cast<double>(cost.weight_grad), row.w_ms * 1e6, 0.5);
    EXPECT_NEAR(static_cast<double>(s.slices.common.hop.latency), row.transfer_ms * 1e6, 0.5);
    const int64_t tokens = 1024 * row.sequences;
    EXPECT_EQ(cost.activation, row.layers * tokens * (34 * row.hidden + 5 * row.heads * 1024));
    EXPECT_EQ(cost.weight_state, row.layers * 32 * tokens * row.hidden);
    EXPECT_EQ(s.slices.common.hop.bytes, 2 * tokens * row.hidden);
    EXPECT_EQ(s.slices.common.static_bytes, 16 * row.layers * 12 * row.hidden * row.hidden);
  }
}

TEST(ShippedScenarios, UnevenStagesAreUnevenAndMicroBatchFiveIsThreeTimesAsLong) {
  const Scenario s = LoadScenario("scenarios/uneven-stages.textproto");
  const Costs costs = CostsForStages(s.slices, 4);
  EXPECT_EQ(costs.of(0, 0).forward, 9'000'000);
  EXPECT_EQ(costs.of(3, 0).forward, 8'400'000);
  for (int stage = 0; stage < 4; ++stage) {
    const StageCost& usual = costs.of(stage, 0);
    const StageCost& packed = costs.of(stage, 5);
    EXPECT_EQ(packed.forward, 3 * usual.forward) << stage;
    EXPECT_EQ(packed.fused_backward, 3 * usual.fused_backward) << stage;
    EXPECT_EQ(packed.activation, 3 * usual.activation) << stage;
    EXPECT_EQ(packed.weight_state, 3 * usual.weight_state) << stage;
    EXPECT_EQ(costs.of(stage, 7), usual) << stage;
  }
}

}  // namespace
}  // namespace spiritlevel
