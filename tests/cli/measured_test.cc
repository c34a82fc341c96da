// C01: a measured 1F1B timeline of eight GPUs against our prediction from its own pass times.
//
// The data is other people's (AMD-AGI/Primus, example of its visualiser) and is read where
// SPIRITLEVEL_PUBLIC_DATA says; without it the test is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "cli/play.h"
#include "scenarios/scenario.h"

namespace spiritlevel {
namespace {

using nlohmann::json;

constexpr int kRanks = 8;
constexpr int kMicroBatches = 16;
constexpr int kColdIterations = 4;  // compilation, allocation and tuning

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

struct MeasuredRank {
  double forward_ms = 0;
  double backward_ms = 0;
  double total_ms = 0;
};

MeasuredRank ReadRank(const std::filesystem::path& file) {
  std::ifstream stream(file);
  const json iterations = json::parse(stream);
  std::vector<double> forward, backward, total;
  for (const auto& [number, iteration] : iterations.items()) {
    if (std::stoi(number) <= kColdIterations) continue;
    total.push_back(iteration["total"]);
    for (size_t i = 0; i < kMicroBatches; ++i) {
      forward.push_back(iteration["fwd_end"][i].get<double>() -
                        iteration["fwd_start"][i].get<double>());
      backward.push_back(iteration["bwd_end"][i].get<double>() -
                         iteration["bwd_start"][i].get<double>());
    }
  }
  return {Median(forward), Median(backward), Median(total)};
}

// The scenario file that a user would write from such a timeline.
std::string AsScenario(const std::vector<MeasuredRank>& ranks, double transfer_ms) {
  json rows = json::array();
  for (const MeasuredRank& rank : ranks) {
    rows.push_back({{"forward_us", rank.forward_ms * 1000},
                    {"input_grad_us", rank.backward_ms * 1000},
                    {"weight_grad_us", 0},
                    {"activation_bytes", 1}});
  }
  return json{{"name", "measured"},
              {"ranks", kRanks},
              {"micro_batches", kMicroBatches},
              {"costs", {{"table", {{"row", rows}, {"transfer_us", transfer_ms * 1000}}}}}}
      .dump();
}

double PredictedStepMs(const std::vector<MeasuredRank>& ranks, double transfer_ms) {
  const Scenario scenario =
      ParseScenario(AsScenario(ranks, transfer_ms), ScenarioFormat::kJson, "measured.json");
  const Played played = Play(scenario, NamedSchedule("1f1b"), {});
  EXPECT_TRUE(played.result.valid) << played.result.reason;
  // In flight at the peak, rank by rank.
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(played.result.summary->peak_bytes[static_cast<size_t>(rank)], kRanks - rank);
  }
  return static_cast<double>(played.result.summary->step) * 1e-6;
}

TEST(Measured, C01OneFOneBOnEightGpusIsPredictedWithinThreePercent) {
  const char* data = std::getenv("SPIRITLEVEL_PUBLIC_DATA");
  if (data == nullptr) GTEST_SKIP() << "SPIRITLEVEL_PUBLIC_DATA is not set";
  std::vector<MeasuredRank> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(ReadRank(std::filesystem::path(data) / "primus_pp8" /
                             ("pp_rank_" + std::to_string(rank) + ".json")));
  }
  const double measured = ranks[0].total_ms;
  EXPECT_NEAR(measured, 3249, 1);
  EXPECT_NEAR(PredictedStepMs(ranks, 0) / measured, 1, 0.03);
  EXPECT_NEAR(PredictedStepMs(ranks, 2) / measured, 1, 0.03);

  // A planner that flattens the stages to their mean misses the slow last one.
  MeasuredRank mean;
  for (const MeasuredRank& rank : ranks) {
    mean.forward_ms += rank.forward_ms / kRanks;
    mean.backward_ms += rank.backward_ms / kRanks;
  }
  EXPECT_LT(PredictedStepMs(std::vector<MeasuredRank>(kRanks, mean), 0) / measured, 0.97);
}

}  // namespace
}  // namespace spiritlevel
