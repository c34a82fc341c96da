// The verify command: as a user has it, and its runs with noise and interrupts put in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli/verify_costs.h"
#include "cli/verify_run.h"
#include "kernels/cpu/cores.h"
#include "tests/cli/verify_for_test.h"
#include "verify/clock.h"
#include "verify/emulated_work.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST_F(VerifyCommand, RunsAModelAndSaysWhatWasPredictedAndMeasured) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  const json all = Parsed(RunSpiritlevel(
      Quick({Model(2), "--schedule", "1f1b", "--schedule", "zb-v", "--schedule", "dualpipe",
             "--schedule", "search", "--search-seconds", "0.2", "--json", "-"})));
  EXPECT_EQ(all["emulated"], false);
  EXPECT_EQ(all["tokens_per_step"], 4 * 16);
  ASSERT_THAT(all["schedules"], SizeIs(4));
  for (const json& schedule : all["schedules"]) {
    const std::string name = schedule["schedule"];
    EXPECT_EQ(schedule["gradients_equal"], true) << name << schedule["gradients_note"];
    EXPECT_EQ(schedule["findings"], json::array()) << name;
    EXPECT_EQ(schedule["valid"], true) << name;
    EXPECT_EQ(schedule["memory_equals_ledger"], true) << name;
    EXPECT_GT(schedule["predicted_step_ns"], 0) << name;
    EXPECT_GT(schedule["measured_step_ns"], 0) << name;
    EXPECT_TRUE(schedule["noisy"].is_boolean()) << name;
    for (const char* key : {"idle_share_predicted", "idle_share_measured"}) {
      EXPECT_GE(schedule[key], 0) << name << key;
      EXPECT_LE(schedule[key], 1) << name << key;
    }
    EXPECT_EQ(schedule["steps_ns"].size() + schedule["cold_steps_ns"].size(), 3) << name;
    EXPECT_EQ(schedule["peak_waiting_b_predicted"], schedule["peak_waiting_b_measured"]) << name;
    EXPECT_EQ(schedule["peak_waiting_w_predicted"], schedule["peak_waiting_w_measured"]) << name;
    for (const json& rank : schedule["memory_by_rank"]) {
      EXPECT_EQ(rank["ledger_peak_bytes"], rank["live_peak_bytes"]) << name;
      EXPECT_EQ(rank["ledger_most_by_category"], rank["live_most_by_category"]) << name;
      EXPECT_GT(rank["most_handed_over_bytes"], 0) << name;
    }
    EXPECT_EQ(schedule["overlap_room_reserved_by_costs"], name == "dualpipe") << name;
    EXPECT_TRUE(schedule["within_bar"].is_boolean() || schedule["noisy"] == true) << name;
    for (const json& pass : schedule["passes"]) {
      EXPECT_GT(pass["calibrated_ns"], 0) << name;
      EXPECT_LE(pass["p50_ns"], pass["p95_ns"]) << name;
    }
  }
}

// Of a model this small the process' stacks and messages are more than its tensors, so how far the
// ratio is from 1 says nothing; of one with 32 MiB of parameters' state and activations it does.
TEST_F(VerifyCommand, ResidentSizeIsHeldAgainstTheLedger) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  std::string config = kVerifyConfig;
  const std::string vocabulary = "\"vocab_size\": ";
  config.replace(config.find(vocabulary), vocabulary.size() + 2, vocabulary + "65536");
  const std::string scenario = Model(2);
  folder_.Write("config.json", config);
  const json all = Parsed(RunSpiritlevel(Quick({scenario, "--schedule", "1f1b", "--json", "-"})));
  const json& schedule = all["schedules"][0];
  if (schedule["resident_bytes"].is_null()) GTEST_SKIP() << "the system does not say";
  Bytes ledger = 0;
  for (const json& rank : schedule["memory_by_rank"])
    ledger += rank["ledger_peak_bytes"].get<Bytes>();
  EXPECT_GT(ledger, Bytes{32} << 20);
  EXPECT_EQ(schedule["ledger_bytes"], ledger);
  const double ratio = schedule["resident_ratio"];
  EXPECT_DOUBLE_EQ(ratio, schedule["resident_bytes"].get<double>() / static_cast<double>(ledger));
  EXPECT_GT(ratio, 0.5);
  EXPECT_LT(ratio, 2);
  EXPECT_EQ(schedule["resident_within_bar"], ratio >= 0.9 && ratio <= 1.1);
}

TEST_F(VerifyCommand, RanksMayBeProcesses) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  const json all = Parsed(RunSpiritlevel(
      Quick({Model(2), "--schedule", "zb-h1", "--transport", "processes", "--json", "-"})));
  EXPECT_EQ(all["transport"], "processes");
  EXPECT_EQ(all["schedules"][0]["gradients_equal"], true);
  EXPECT_EQ(all["schedules"][0]["memory_equals_ledger"], true);
}

TEST_F(VerifyCommand, EmulationIsSaidInTableJsonPageAndTrace) {
  const std::string scenario = folder_.Write("t.textproto", kVerifyTyped);
  const std::string file = folder_.Path("v.json");
  const std::string page = folder_.Path("v.html");
  const std::string trace = folder_.Path("v.pftrace");
  const Outcome outcome = RunSpiritlevel(Quick({scenario, "--emulate", "--schedule", "zb-h1",
                                                "--json", file, "--html", page, "--trace", trace}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("EMULATED"), HasSubstr("4 emulated ranks")));
  const json all = json::parse(Read(file));
  EXPECT_EQ(all["emulated"], true);
  EXPECT_EQ(all["schedules"][0]["emulated"], true);
  EXPECT_EQ(all["schedules"][0]["gradients_equal"], nullptr);  // nothing was computed
  EXPECT_EQ(all["schedules"][0]["findings"], json::array());
  // No prediction stands where a measurement would.
  EXPECT_EQ(all["schedules"][0]["peak_waiting_b_measured"], nullptr);
  EXPECT_EQ(all["schedules"][0]["memory_equals_ledger"], nullptr);
  EXPECT_EQ(all["schedules"][0]["memory_by_rank"][0]["live_peak_bytes"], nullptr);
  EXPECT_THAT(Read(page), AllOf(HasSubstr("zb-h1, emulated"), HasSubstr("zb-h1, predicted")));
  EXPECT_THAT(Read(trace), HasSubstr("zb-h1, emulated"));
}

TEST_F(VerifyCommand, MoreRanksThanCoresAreRefusedWithAWayOut) {
  const std::string ranks = std::to_string(cpu::UsableCores().size() + 1);
  std::string config = kVerifyConfig;
  const std::string layers = "\"num_hidden_layers\": ";
  config.replace(config.find(layers + "4"), layers.size() + 1, layers + ranks);
  folder_.Write("config.json", config);
  const std::string scenario = folder_.Write(
      "s.textproto", "ranks: " + ranks +
                         " micro_batches: 4 model { config: \"config.json\" sequence_length: 16 }");
  const Outcome outcome = RunSpiritlevel({"verify", scenario});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("cores"), HasSubstr("--emulate")));
}

TEST_F(VerifyCommand, WhatCannotBeRunIsRefusedBeforeAnyWork) {
  const std::string typed = folder_.Write("t.textproto", kVerifyTyped);
  const auto refused = [&](std::vector<std::string> arguments, const std::string& what) {
    arguments.insert(arguments.begin(), "verify");
    const Outcome outcome = RunSpiritlevel(arguments);
    EXPECT_EQ(outcome.status, 2) << what;
    EXPECT_THAT(outcome.err, HasSubstr(what));
  };
  refused({typed, "--emulate", "--schedule", "zb-v2"}, "zb-v");
  refused({typed}, "--emulate");
  refused({typed, "--emulate", "--iterations", "1"}, "--iterations");
  refused({typed, "--emulate", "--rounds", "0"}, "--rounds");
  refused({typed, "--emulate", "--transport", "pigeons"}, "threads");
  refused({typed, "--emulate", "--tail", "dog"},
          "--tail: there is no \"dog\"\n    there is none, barrier, "
          "post-validation-strict, post-validation-speculative");
  refused({typed, "--emulate", "--posting", "owl"},
          "--posting: there is no \"owl\"\n    there is ideal, nccl-fifo, batched");
  refused({typed, "--emulate", "--seconds", "-1"}, "--seconds");
  refused({typed, "--emulate", "--trace", folder_.Path("x")}, "one --schedule");
  refused({typed, "--emulate", "--json", typed}, "written over");
  refused({typed, "--emulate", "--schedule", "dualpipe", "--rounds", "1"}, "dualpipe");
}

TEST_F(VerifyCommand, ModelsWithoutKernelsAreRefusedByName) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  const auto refused = [&](const std::string& more, const std::string& what) {
    const Outcome outcome =
        RunSpiritlevel({"verify", Model(2, more), "--schedule", "1f1b", "--rounds", "1"});
    EXPECT_EQ(outcome.status, 2) << what;
    EXPECT_THAT(outcome.err, HasSubstr(what));
  };
  refused("dtype: \"float16\"", "float16");
  refused("data_parallel: 2", "one replica");
  refused("norm_grads_in_w: true", "norms in W");
  refused("recompute: \"full-again-in-w\"", "recompute");
}

TEST_F(VerifyCommand, RecomputationAndBf16AreRunToo) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  const json all = Parsed(RunSpiritlevel(Quick({Model(2, "dtype: \"bfloat16\" recompute: \"full\""),
                                                "--schedule", "zb-h1", "--json", "-"})));
  EXPECT_EQ(all["schedules"][0]["gradients_equal"], true);
  EXPECT_EQ(all["schedules"][0]["memory_equals_ledger"], true);
}

// Each pass takes up to twice its time, by a seed.
class NoisyWork : public EmulatedWork {
 public:
  NoisyWork(const RankContext& context, uint64_t seed)
      : EmulatedWork(context), stopping_(context.stopping), random_(seed) {}

  Payload RunOp(OpCall& call) override {
    Payload output = EmulatedWork::RunOp(call);
    const TimeNs took = Now() - call.start;
    WaitUntil(Now() + static_cast<TimeNs>(random_() % static_cast<uint64_t>(took)), stopping_);
    return output;
  }

 private:
  const std::atomic<bool>& stopping_;
  std::mt19937_64 random_;
};

class VerifierTest : public testing::Test {
 protected:
  VerifierTest()
      : scenario_(ParseScenario(kVerifyTyped, ScenarioFormat::kText, "typed.textproto")) {}

  Scenario scenario_;
};

TEST_F(VerifierTest, InjectedNoiseIsTooNoisyAndNoPass) {
  CostsBook book(scenario_, {.emulated = true});
  uint64_t seed = 1;
  Verifier verifier(scenario_, &book,
                    {.iterations = 6, .rounds = 2, .emulated = true, .wrap = [&](WorkFactory) {
                       return [&](const RankContext& context) {
                         return std::make_shared<NoisyWork>(
                             context, seed + static_cast<uint64_t>(context.rank));
                       };
                     }});
  verifier.Add("1f1b");
  verifier.Run();
  const Verification all = verifier.Take();
  EXPECT_TRUE(all.schedules[0].noisy()) << all.schedules[0].spread;
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("too noisy"));
  EXPECT_TRUE(IsRight(all));  // noise breaks no rule
}

TEST_F(VerifierTest, AnInterruptKeepsWhatWasRun) {
  CostsBook book(scenario_, {.emulated = true});
  std::atomic<bool> stop = false;
  Verifier verifier(scenario_, &book,
                    {.iterations = 2,
                     .rounds = 3,
                     .emulated = true,
                     .stop = &stop,
                     .observer = [&](int done, int, const std::string&) { stop = done == 2; }});
  verifier.Add("1f1b");
  verifier.Add("zb-h1");
  verifier.Add("gpipe");
  verifier.Run();
  const Verification all = verifier.Take();
  EXPECT_TRUE(all.interrupted);
  EXPECT_EQ(all.schedules[0].runs, 1);
  EXPECT_EQ(all.schedules[1].runs, 1);
  EXPECT_EQ(all.schedules[2].runs, 1);  // the run that was going on ends
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("Interrupted"));
}

TEST_F(VerifierTest, SchedulesTakeTurns) {
  CostsBook book(scenario_, {.emulated = true});
  std::vector<std::string> order;
  Verifier verifier(
      scenario_, &book,
      {.iterations = 2, .rounds = 2, .emulated = true, .observer = [&](int, int, const auto& name) {
         order.push_back(name);
       }});
  verifier.Add("1f1b");
  verifier.Add("zb-v");
  verifier.Run();
  EXPECT_THAT(order, testing::ElementsAre("1f1b", "zb-v", "1f1b", "zb-v"));
}

TEST_F(VerifierTest, WhatDoesNotFitIsNotRun) {
  scenario_.memory_limit = 3500;  // of 1000 an activation; gpipe holds 4
  CostsBook book(scenario_, {.emulated = true});
  Verifier verifier(scenario_, &book, {.iterations = 2, .rounds = 1, .emulated = true});
  verifier.Add("gpipe");
  verifier.Run();
  const Verification all = verifier.Take();
  EXPECT_FALSE(all.schedules[0].ran());
  EXPECT_THAT(all.schedules[0].reason, HasSubstr("over the limit"));
}

}  // namespace
}  // namespace spiritlevel
