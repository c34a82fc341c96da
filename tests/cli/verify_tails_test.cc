// Every tail and every posting under verify: bits, bytes, and what a validation costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/verify_costs.h"
#include "cli/verify_run.h"
#include "tests/cli/verify_for_test.h"

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

// F&B pairs and twins, a V, an order that ends its last rank first, and parallelograms.
const std::vector<std::string> kSchedules = {"1f1b", "interleaved", "zb-h2", "zb-v", "dualpipe"};

void ExpectRight(const json& schedule) {
  const std::string name = schedule["schedule"];
  EXPECT_EQ(schedule["reason"], "") << name;
  EXPECT_EQ(schedule["gradients_equal"], true) << name << schedule["gradients_note"];
  EXPECT_EQ(schedule["findings"], json::array()) << name;
  EXPECT_EQ(schedule["memory_equals_ledger"], true) << name;
  EXPECT_EQ(schedule["peak_waiting_b_predicted"], schedule["peak_waiting_b_measured"]) << name;
  EXPECT_EQ(schedule["peak_waiting_w_predicted"], schedule["peak_waiting_w_measured"]) << name;
}

class VerifyTails : public VerifyCommand {
 protected:
  json Run(std::vector<std::string> arguments) const {
    for (const std::string& name : kSchedules) {
      arguments.insert(arguments.end(), {"--schedule", name});
    }
    arguments.insert(arguments.begin(), Model(2));
    arguments.insert(arguments.end(), {"--json", "-"});
    return Parsed(RunSpiritlevel(Quick(std::move(arguments))));
  }
};

TEST_F(VerifyTails, EachPostValidationHasTheReferencesBitsAndTheLedgersBytes) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  for (const char* tail : {"post-validation-strict", "post-validation-speculative"}) {
    SCOPED_TRACE(tail);
    const json all = Run({"--tail", tail});
    EXPECT_EQ(all["tail"], tail);
    ASSERT_THAT(all["schedules"], SizeIs(kSchedules.size()));
    for (const json& schedule : all["schedules"]) {
      ExpectRight(schedule);
      const json& cost = schedule["validation"];
      EXPECT_EQ(cost["rollback_equal"], true) << schedule["schedule"] << cost["rollback_note"];
      EXPECT_EQ(cost["memory_equals_ledger"], true) << schedule["schedule"];
      for (const char* key : {"barrier_step", "normal_step", "normal_path_cost", "rollback"}) {
        EXPECT_TRUE(cost[key + std::string("_predicted_ns")].is_number()) << key;
        EXPECT_TRUE(cost[key + std::string("_measured_ns")].is_number()) << key;
      }
      EXPECT_EQ(cost["normal_step_measured_ns"], schedule["measured_step_ns"]);
    }
  }
}

TEST_F(VerifyTails, AStageIsTakenBackAmongProcessesToo) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  const json all = Parsed(
      RunSpiritlevel(Quick({Model(2, "dtype: \"bfloat16\""), "--schedule", "zb-h2", "--transport",
                            "processes", "--tail", "post-validation-speculative", "--json", "-"})));
  ExpectRight(all["schedules"][0]);
  EXPECT_EQ(all["schedules"][0]["validation"]["rollback_equal"], true);
}

TEST_F(VerifyTails, EachPostingHasTheReferencesBitsAndTheLedgersBytes) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  for (const char* posting : {"nccl-fifo", "batched"}) {
    SCOPED_TRACE(posting);
    const json all = Run({"--posting", posting});
    EXPECT_EQ(all["posting"], posting);
    for (const json& schedule : all["schedules"]) {
      ExpectRight(schedule);
      EXPECT_EQ(schedule["validation"], nullptr);
    }
  }
}

// The simulator plays a replay under ideal posting only; a strict validation has none.
TEST_F(VerifyTails, UnderAnotherPostingOnlyAStrictValidationIsRolledBack) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  for (const bool is_strict : {true, false}) {
    const json all = Run({"--posting", "nccl-fifo", "--tail",
                          is_strict ? "post-validation-strict" : "post-validation-speculative"});
    for (const json& schedule : all["schedules"]) {
      ExpectRight(schedule);
      const json& cost = schedule["validation"];
      EXPECT_EQ(cost["rollback_measured_ns"].is_number(), is_strict) << schedule["schedule"];
      EXPECT_EQ(cost["rollback_equal"], is_strict ? json(true) : json(nullptr));
      EXPECT_EQ(cost["rollback_note"].get<std::string>().empty(), is_strict);
    }
  }
}

TEST_F(VerifyTails, WhatDeadlocksUnderAPostingIsNotRunAndSaysWhy) {
  const std::string scenario = folder_.Write("t.textproto", kVerifyTyped);
  const std::vector<std::string> naive = {scenario,     "--emulate", "--posting",  "nccl-fifo",
                                          "--receives", "naive",     "--schedule", "1f1b"};
  const Outcome alone = RunSpiritlevel(Quick(naive));
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err,
              AllOf(HasSubstr("1f1b: deadlocks under nccl-fifo posting:\n"), HasSubstr("waits for"),
                    HasSubstr("use --receives early or deferred")));
  std::vector<std::string> beside = naive;
  beside.insert(beside.end(), {"--schedule", "gpipe", "--json", "-"});
  const json all = Parsed(RunSpiritlevel(Quick(beside)));
  EXPECT_EQ(all["schedules"][0]["reason"],
            "deadlocks under nccl-fifo posting; use --receives early or deferred");
  EXPECT_EQ(all["schedules"][0]["measured_step_ns"], nullptr);
  EXPECT_EQ(all["schedules"][1]["reason"], "");
}

TEST_F(VerifyTails, AnEmulatedRollbackIsPlayedAndShown) {
  const std::string scenario = folder_.Write("t.textproto", kVerifyTyped);
  const std::string page = folder_.Path("v.html");
  const std::string file = folder_.Path("v.json");
  const Outcome outcome =
      RunSpiritlevel(Quick({scenario, "--emulate", "--schedule", "zb-h2", "--tail",
                            "post-validation-speculative", "--html", page, "--json", file}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("what post-validation-speculative costs over a barrier"));
  EXPECT_THAT(Read(page), AllOf(HasSubstr("<a href=\"#validation\">"),
                                HasSubstr("data-key=\"rollback_measured_ns\"")));
  const json cost = json::parse(Read(file))["schedules"][0]["validation"];
  // Dropped forwards take their time, so that is what there is at least.
  EXPECT_GT(cost["rollback_predicted_ns"], 900'000);
  EXPECT_EQ(cost["memory_equals_ledger"], nullptr);
  EXPECT_EQ(cost["rollback_equal"], nullptr);  // nothing was computed
}

// A speculative ZB-H2 has no wait for a barrier.
TEST_F(VerifyTails, WhatASpeculativeTailSavesIsWhatTheSimulatorSays) {
  const Scenario scenario = ParseScenario(kVerifyTyped, ScenarioFormat::kText, "typed.textproto");
  CostsBook book(scenario, {.emulated = true, .tail = Tail::kSpeculativeValidation});
  Verifier verifier(
      scenario, &book,
      {.tail = Tail::kSpeculativeValidation, .iterations = 3, .rounds = 1, .emulated = true});
  verifier.Add("zb-h2");
  verifier.Run();
  const VerifiedSchedule schedule = verifier.Take().schedules[0];
  ASSERT_TRUE(schedule.validation);
  EXPECT_LT(schedule.validation->normal_path.predicted, 0);
  EXPECT_EQ(schedule.validation->normal_path.predicted,
            schedule.predicted.step - schedule.validation->barrier_step.predicted);
  ASSERT_TRUE(schedule.validation->rollback);
  // The first rank has run 2 p - 1 = 7 forwards, as far as there are micro-batches: 4.
  EXPECT_EQ(schedule.validation->rollback->predicted, 4 * 900'000);
}

}  // namespace
}  // namespace spiritlevel
