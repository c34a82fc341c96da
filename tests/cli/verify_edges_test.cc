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
