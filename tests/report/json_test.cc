#include "report/json.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "report/figures.h"
#include "tests/report/comparison_for_test.h"
#include "tests/report/provenance_for_test.h"

namespace spiritlevel {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string> kResultKeys = {"schedule",
                                              "makespan_ns",
                                              "max_rank_span_ns",
                                              "period_ns",
                                              "step_ns",
                                              "bubble_rate",
                                              "bubble_fraction",
                                              "peak_bytes",
                                              "peak_activation_bytes",
                                              "busy_ns",
                                              "stalls_ns",
                                              "peak_waiting_b",
                                              "peak_waiting_w",
                                              "pp_bytes",
                                              "parameter_copies",
                                              "lower_bound_ns",
                                              "lower_bound_reason",
                                              "gap",
                                              "proved_optimal",
                                              "certificate_note",
                                              "rejection",
                                              "fits",
                                              "valid",
                                              "reason",
                                              "speedup_over_1f1b"};

// 7 ranks: dualpipe cannot run.
ScenarioForTest Scenario() {
  return {.ranks = 7,
          .micro_batches = 14,
          .cost = {.forward = 2,
                   .input_grad = 2,
                   .weight_grad = 2,
                   .activation = 100,
                   .weight_state = 40},
          .common = {.hop = {.latency = 1, .bytes = 10}, .static_bytes = 1000},
          .memory_limit = 1900};
}

std::vector<std::string> Keys(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

TEST(Json, TopLevelFieldsAreThere) {
  const Json json = Json::parse(ToJson(Compare(Scenario())));
  EXPECT_EQ(json["scenario"], "made in a test");
  EXPECT_EQ(json["ranks"], 7);
  EXPECT_EQ(json["micro_batches"], 14);
  EXPECT_EQ(json["memory_limit_bytes"], 1900);
  EXPECT_EQ(json["posting"], "ideal");
  EXPECT_EQ(json["tail"], "barrier");
  EXPECT_EQ(json["rejection"], 0);
  for (const char* key : {"receives", "channels", "weight_grads"}) {
    EXPECT_TRUE(json[key].is_string()) << key;
  }
  EXPECT_EQ(json["results"].size(), AllSchedules().size());
  EXPECT_TRUE(json["advice"].is_string());
  EXPECT_TRUE(json["warnings"].is_array());
}

TEST(Json, EveryResultHasEveryKeyInOrder) {
  const Json json = Json::parse(ToJson(Compare(Scenario())));
  for (const Json& result : json["results"]) EXPECT_EQ(Keys(result), kResultKeys);
}

TEST(Json, NumbersAreThoseOfTheSummary) {
  const Comparison comparison = Compare(Scenario());
  const Json json = Json::parse(ToJson(comparison));
  for (size_t i = 0; i < comparison.results.size(); ++i) {
    const Result& result = comparison.results[i];
    const Json& r = json["results"][i];
    EXPECT_EQ(r["schedule"], result.schedule);
    EXPECT_EQ(r["reason"], result.reason);
    if (!result.summary) continue;
    const Summary& s = *result.summary;
    EXPECT_EQ(r["makespan_ns"], s.makespan);
    EXPECT_EQ(r["max_rank_span_ns"], s.max_rank_span);
    EXPECT_EQ(r["period_ns"], s.period);
    EXPECT_EQ(r["step_ns"], s.step);
    EXPECT_EQ(r["bubble_rate"].get<double>(), s.bubble_rate);
    EXPECT_EQ(r["bubble_fraction"].get<double>(), s.bubble_fraction);
    EXPECT_EQ(r["peak_bytes"].get<std::vector<Bytes>>(), s.peak_bytes);
    EXPECT_EQ(r["peak_activation_bytes"].get<std::vector<Bytes>>(), s.peak_activation_bytes);
    EXPECT_EQ(r["busy_ns"].get<std::vector<TimeNs>>(), s.stalls.busy);
    EXPECT_EQ(r["peak_waiting_b"], s.peak_waiting_b);
    EXPECT_EQ(r["peak_waiting_w"], s.peak_waiting_w);
    EXPECT_EQ(r["pp_bytes"], s.pp_bytes);
    EXPECT_EQ(r["parameter_copies"], s.parameter_copies);
    EXPECT_EQ(r["fits"], result.fits);
    EXPECT_EQ(r["valid"], true);
  }
}

TEST(Json, StallsHaveAllCategoriesAndFillUpRanksTimesMakespan) {
  const Json json = Json::parse(ToJson(Compare(Scenario(), {"1f1b", "zb-v"})));
  for (const Json& r : json["results"]) {
    EXPECT_EQ(Keys(r["stalls_ns"]),
              (std::vector<std::string>{"dependency", "imbalance", "transfer", "memory",
                                        "collective", "optimizer", "launch"}));
    TimeNs sum = 0;
    for (const auto& [category, time] : r["stalls_ns"].items()) sum += time.get<TimeNs>();
    for (const Json& busy : r["busy_ns"]) sum += busy.get<TimeNs>();
    EXPECT_EQ(sum, 7 * r["makespan_ns"].get<TimeNs>());
  }
}

TEST(Json, KnownNumbersOfOneFOneB) {
  // 8 ranks, 16 micro-batches, F = B = W = 1: (16 + 8 - 1) x 3 = 69 units, 21 of them bubble.
  ScenarioForTest scenario{.cost = {.forward = 1, .input_grad = 1, .weight_grad = 1}};
  const Json r = Json::parse(ToJson(Compare(scenario, {"1f1b"})))["results"][0];
  EXPECT_EQ(r["makespan_ns"], 69);
  EXPECT_EQ(r["step_ns"], 69);
  EXPECT_NEAR(r["bubble_rate"].get<double>(), 21.0 / 69, 1e-12);
  EXPECT_EQ(r["stalls_ns"]["dependency"], 8 * 21);
  EXPECT_EQ(r["speedup_over_1f1b"], 1.0);
}

TEST(Json, ACertificateIsToldOrWhyThereIsNone) {
  Comparison comparison = Compare(Scenario(), {"1f1b", "zb-h1"});
  comparison.results[0].certificate = Certify(Bound{.value = 100, .reason = "work of rank 0"}, 125);
  comparison.results[1].certificate_note = "it does not fit the memory limit";
  const Json results = Json::parse(ToJson(comparison))["results"];
  EXPECT_EQ(results[0]["lower_bound_ns"], 100);
  EXPECT_EQ(results[0]["lower_bound_reason"], "work of rank 0");
  EXPECT_EQ(results[0]["gap"], 0.25);
  EXPECT_EQ(results[0]["proved_optimal"], false);
  EXPECT_TRUE(results[0]["certificate_note"].is_null());
  for (const char* key : {"lower_bound_ns", "lower_bound_reason", "gap", "proved_optimal"}) {
    EXPECT_TRUE(results[1][key].is_null()) << key;
  }
  EXPECT_EQ(results[1]["certificate_note"], "it does not fit the memory limit");
}

TEST(Json, ARejectionIsToldBesideThePeriods) {
  Comparison comparison = Compare(Scenario(), {"1f1b"});
  comparison.rejection = 0.5;
  comparison.results[0].rejection = Rejection{.probability = 0.5, .period = 30, .expected = 20};
  const Json r = Json::parse(ToJson(comparison))["results"][0]["rejection"];
  EXPECT_EQ(r["probability"], 0.5);
  EXPECT_EQ(r["period_rejected_ns"], 30);
  EXPECT_EQ(r["expected_step_ns"], 20);
}

TEST(Json, AScheduleThatCannotRunHasNullsAndItsReason) {
  const Json r = Json::parse(ToJson(Compare(Scenario(), {"dualpipe"})))["results"][0];
  for (const std::string& key : kResultKeys) {
    if (key == "schedule" || key == "fits" || key == "valid" || key == "reason") continue;
    EXPECT_TRUE(r[key].is_null()) << key;
  }
  EXPECT_EQ(r["fits"], false);
  EXPECT_EQ(r["valid"], false);
  EXPECT_THAT(r["reason"].get<std::string>(), testing::HasSubstr("even number of ranks"));
}

TEST(Json, WithoutProvenanceThereIsNone) {
  EXPECT_TRUE(Json::parse(ToJson(Compare(Scenario(), {"1f1b"})))["provenance"].is_null());
}

TEST(Json, TypedCostsHaveTheirFileAndNoModel) {
  Comparison comparison = Compare(Scenario(), {"1f1b"});
  comparison.provenance = Provenance{.scenario_file = "mine.textproto"};
  const Json from = Json::parse(ToJson(comparison))["provenance"];
  EXPECT_EQ(Keys(from), (std::vector<std::string>{"costs", "scenario_file", "model", "profile"}));
  EXPECT_EQ(from["costs"], "typed");
  EXPECT_EQ(from["scenario_file"], "mine.textproto");
  EXPECT_TRUE(from["model"].is_null());
  EXPECT_TRUE(from["profile"].is_null());
}

TEST(Json, AModelAndItsProfileAreTold) {
  Comparison comparison = Compare(Scenario(), {"1f1b"});
  comparison.provenance = ProvenanceForTest();
  const Json from = Json::parse(ToJson(comparison))["provenance"];
  const ModelProvenance& model = *comparison.provenance->model;
  EXPECT_EQ(from["costs"], "model");
  EXPECT_EQ(
      Keys(from["model"]),
      (std::vector<std::string>{"config_file", "class", "layers", "parameters", "sequence_length",
                                "micro_batch_size", "split", "splits", "recompute", "data_parallel",
                                "bucket_bytes", "all_cores_busy", "assumptions", "not_modelled"}));
  EXPECT_EQ(from["model"]["parameters"], model.parameters);
  EXPECT_EQ(from["model"]["splits"][1]["stages"], 8);
  EXPECT_EQ(from["model"]["splits"][1]["layers_per_stage"].get<std::vector<int64_t>>(),
            model.splits[1].layers_per_stage);
  EXPECT_EQ(from["model"]["recompute"].get<std::vector<std::string>>(), model.recompute);
  EXPECT_EQ(
      Keys(from["profile"]),
      (std::vector<std::string>{"file", "date", "cpu", "dtype", "library", "held_out_shapes",
                                "held_out_p90", "noisy", "typed_in", "left_out", "complete"}));
  EXPECT_EQ(from["profile"]["held_out_p90"], 0.084);
  comparison.provenance->profile->held_out_shapes = 0;
  EXPECT_TRUE(Json::parse(ToJson(comparison))["provenance"]["profile"]["held_out_p90"].is_null());
}

TEST(Json, NoLimitIsNull) {
  ScenarioForTest scenario = Scenario();
  scenario.memory_limit.reset();
  EXPECT_TRUE(Json::parse(ToJson(Compare(scenario, {"1f1b"})))["memory_limit_bytes"].is_null());
}

TEST(Json, ANameThatIsNotUtf8StillGivesJson) {
  Comparison comparison = Compare(Scenario(), {"1f1b"});
  comparison.scenario = "na\xefve";
  EXPECT_TRUE(Json::accept(ToJson(comparison)));
}

}  // namespace
}  // namespace spiritlevel
