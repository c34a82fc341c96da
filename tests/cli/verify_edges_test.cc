// The verify command at the edges of what it can run: one rank, one micro-batch, little memory,
// models that its kernels are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <tuple>

#include "tests/cli/verify_for_test.h"
#include "tests/sanitized.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

TEST_F(VerifyCommand, OneRankSendsNothingAndIsRun) {
  const json all = Parsed(RunSpiritlevel(
      Quick({Model(1), "--schedule", "1f1b", "--schedule", "interleaved", "--json", "-"})));
  for (const json& schedule : all["schedules"]) {
    EXPECT_EQ(schedule["gradients_equal"], true) << schedule;
  }
}

TEST_F(VerifyCommand, OneMicroBatchIsEnough) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  folder_.Write("config.json", kVerifyConfig);
  const std::string file = folder_.Write(
      "one.textproto",
      "ranks: 2 micro_batches: 1 model { config: \"config.json\" sequence_length: 16 }");
  const json all = Parsed(RunSpiritlevel(Quick({file, "--schedule", "1f1b", "--json", "-"})));
  EXPECT_EQ(all["schedules"][0]["gradients_equal"], true) << all;
}

TEST_F(VerifyCommand, AnActivationWithoutKernelsIsRefusedByName) {
  for (const auto& [from, to, says] :
       {std::tuple{"\"silu\"", "\"relu\"", "relu in a gated MLP"},
        std::tuple{"\"silu\"", "\"gelu\"", "gelu in a gated MLP"},
        std::tuple{"\"mlp_bias\"", "\"attention_dropout\": 0.5, \"mlp_bias\"",
                   "dropout of attention's probabilities"}}) {
    std::string config = kVerifyConfig;
    config.replace(config.find(from), std::string(from).size(), to);
    const std::string file = Model(1);
    folder_.Write("config.json", config);
    const Outcome outcome = RunSpiritlevel(Quick({file, "--schedule", "1f1b"}));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr(std::string("no kernels for ") + says));
  }
}

// A limit that it does not keep is a reason not to run a schedule, alone or beside others.
TEST_F(VerifyCommand, AScheduleOverTheMemoryLimitIsNotRunAndSaysWhy) {
  const Outcome alone = RunSpiritlevel({"verify", "scenarios/example.textproto", "--emulate",
                                        "--schedule", "gpipe", "--rounds", "1"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("over the limit of"));
  std::string typed = kVerifyTyped;  // in which gpipe holds all micro-batches, and 1f1b four
  typed.replace(typed.find("micro_batches: 4"), 16, "micro_batches: 8");
  const std::string limited = folder_.Write("s.textproto", typed + " memory_limit_bytes: 5500");
  const json all = Parsed(RunSpiritlevel(
      Quick({limited, "--emulate", "--schedule", "gpipe", "--schedule", "1f1b", "--json", "-"})));
  EXPECT_THAT(all["schedules"][0]["reason"], HasSubstr("over the limit of"));
  EXPECT_TRUE(all["schedules"][0]["measured_step_ns"].is_null());
}

TEST_F(VerifyCommand, TiedEmbeddingsAreSearchedToo) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  const std::string file = Model(2);
  std::string config = kVerifyConfig;
  const std::string untied = "\"tie_word_embeddings\": false";
  config.replace(config.find(untied), untied.size(), "\"tie_word_embeddings\": true");
  folder_.Write("config.json", config);
  const json all = Parsed(RunSpiritlevel(
      Quick({file, "--schedule", "search", "--search-seconds", "0.2", "--json", "-"})));
  EXPECT_EQ(all["schedules"][0]["gradients_equal"], true) << all;
}

TEST_F(VerifyCommand, TooLittleMemoryIsSaidAtOnce) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow is larger than any such limit";
  const std::string file = Model(1);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &old), 0);
  const rlimit low{.rlim_cur = rlim_t{180} << 20, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &low), 0);  // of what is started from here, too
  const Outcome outcome = RunSpiritlevel(Quick({file, "--schedule", "1f1b"}));
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &old), 0);
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("of memory, and"));
}

}  // namespace
}  // namespace spiritlevel
