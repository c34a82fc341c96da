// Runs that fail under verify: whatever ends one is wrong, is said, and ends the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cli/verify_costs.h"
#include "cli/verify_run.h"
#include "kernels/cpu/cores.h"
#include "tests/cli/verify_for_test.h"
#include "verify/emulated_work.h"

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Of the second rank.
enum class Way { kThrows, kStalls, kIsStuck };

// As the work it stands in for, but for one op.
class Failing : public RankWork {
 public:
  Failing(std::shared_ptr<RankWork> work, const RankContext& context, Way way)
      : work_(std::move(work)), context_(context), way_(way) {}

  Payload RunOp(OpCall& call) override {
    if (context_.rank == 1 && call.op.micro_batch == 2) Fail();
    return work_->RunOp(call);
  }
  std::pair<Payload, Payload> RunPair(OpCall& first, OpCall& second) override {
    return work_->RunPair(first, second);
  }
  void StepOptimizer(const StepCall& call) override { work_->StepOptimizer(call); }
  void RollBack(const StepCall& call) override { work_->RollBack(call); }
  bool Validate(const ValidationCall& call) override { return work_->Validate(call); }
  Payload Contribute(const SumCall& call) override { return work_->Contribute(call); }
  void Combine(const SumCall& call,
               std::span<const std::span<const std::byte>> contributions) override {
    work_->Combine(call, contributions);
  }
  Bytes TakePeakBytes() override { return work_->TakePeakBytes(); }
  void Abandon() noexcept override { work_->Abandon(); }
  Payload Finish() override { return work_->Finish(); }

 private:
  void Fail() const {
    if (way_ == Way::kThrows) throw std::runtime_error("out of <paper>");
    // One that looks at nothing never comes back.
    while (way_ == Way::kIsStuck || !context_.stopping) ::usleep(1000);
  }

  const std::shared_ptr<RankWork> work_;
  const RankContext context_;
  const Way way_;
};

// Fails in the run of that number, the first being 0.
std::function<WorkFactory(WorkFactory)> FailsIn(int failing, Way way = Way::kThrows) {
  auto run = std::make_shared<int>(0);
  return [=](WorkFactory works) -> WorkFactory {
    if ((*run)++ != failing) return works;
    return [works = std::move(works), way](const RankContext& context) {
      return std::make_shared<Failing>(works(context), context, way);
    };
  };
}

class VerifyFailures : public VerifyCommand {
 protected:
  // Emulated, under a tail that validates behind the step: in each round the run, the same with a
  // barrier, and one in which a version is rejected.
  static Verification Emulated(VerifySettings settings, Tail tail = Tail::kSpeculativeValidation) {
    const Scenario scenario = ParseScenario(kVerifyTyped, ScenarioFormat::kText, "typed.textproto");
    CostsBook book(scenario, {.emulated = true, .tail = tail});
    settings.tail = tail;
    settings.iterations = 2;
    settings.emulated = true;
    Verifier verifier(scenario, &book, settings);
    verifier.Add("1f1b");
    verifier.Add("zb-h1");
    verifier.Run();
    return verifier.Take();
  }
};

void ExpectFailedOnly(const Verification& all, size_t schedule, const std::string& of) {
  EXPECT_FALSE(IsRight(all));
  ASSERT_EQ(all.schedules.size(), 2);
  const VerifiedSchedule& failed = all.schedules[schedule];
  EXPECT_THAT(WrongsOf(failed, all), ElementsAre("failed"));
  EXPECT_THAT(failed.failures,
              ElementsAre(AllOf(HasSubstr(of), HasSubstr("rank 1"), HasSubstr("out of <paper>"))));
  EXPECT_THAT(WrongsOf(all.schedules[1 - schedule], all), IsEmpty());
  EXPECT_GT(all.schedules[1 - schedule].runs, 0);  // the other one went on
  EXPECT_THAT(VerificationTable(all, false), HasSubstr("FAILED"));
}

TEST_F(VerifyFailures, OneRunIsWrongAndTheOtherSchedulesGoOn) {
  const Verification all = Emulated({.rounds = 2, .wrap = FailsIn(0)}, Tail::kBarrier);
  ExpectFailedOnly(all, 0, "1F2");
  EXPECT_EQ(all.schedules[0].runs, 0);
  EXPECT_EQ(all.schedules[0].reason, "");  // it is none of those that cannot run here
}

TEST_F(VerifyFailures, ALaterRunIsWrongThoughTheFirstCameBack) {
  const Verification all = Emulated({.rounds = 2, .wrap = FailsIn(3)}, Tail::kBarrier);
  ExpectFailedOnly(all, 1, "1F2");
  EXPECT_EQ(all.schedules[1].runs, 1);
}

TEST_F(VerifyFailures, ARunWithABarrierIsWrong) {
  ExpectFailedOnly(Emulated({.rounds = 1, .wrap = FailsIn(1)}), 0, "a run with a barrier: ");
}

TEST_F(VerifyFailures, ARunWithARejectedVersionIsWrong) {
  ExpectFailedOnly(Emulated({.rounds = 1, .wrap = FailsIn(2)}), 0,
                   "a run with a rejected version: ");
}

TEST_F(VerifyFailures, ARankThatStallsIsWrongAndNamedAtOnce) {
  testing::internal::CaptureStderr();
  const Verification all = Emulated(
      {.rounds = 1, .stall_limit = 200'000'000, .wrap = FailsIn(0, Way::kStalls)}, Tail::kBarrier);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("1f1b: the run failed: "), HasSubstr("rank 1"), HasSubstr("1F2")));
  EXPECT_FALSE(IsRight(all));
}

// Ctrl-C between runs leaves schedules out, and nothing is wrong with them.
TEST_F(VerifyFailures, AnInterruptIsNone) {
  std::atomic<bool> stop = false;
  const Verification all = Emulated(
      {.rounds = 2, .stop = &stop, .observer = [&](int, int, const auto&) { stop = true; }},
      Tail::kBarrier);
  EXPECT_TRUE(all.interrupted);
  EXPECT_EQ(all.schedules[1].reason, "not run before the interrupt");
  EXPECT_TRUE(IsRight(all));
}

// Run 0 is timed, run 1 is recorded.
TEST_F(VerifyFailures, ARecordedRunIsWrongThoughAllTimedOnesCameBack) {
  if (!HasTwoCores()) GTEST_SKIP() << "one core";
  const Scenario scenario = LoadScenario(Model(2));
  CostsBook book(scenario, {.cores = {0, 1}, .seconds = 0});
  Verifier verifier(scenario, &book, {.iterations = 2, .rounds = 1, .wrap = FailsIn(1)});
  verifier.Add("zb-h1");
  verifier.Run();
  const Verification all = verifier.Take();
  EXPECT_EQ(all.schedules[0].runs, 1);
  EXPECT_FALSE(all.schedules[0].gradients_equal);
  EXPECT_THAT(all.schedules[0].failures, ElementsAre(HasSubstr("the recorded run: ")));
  EXPECT_FALSE(IsRight(all));
}

// Nothing can end a thread from outside, so the process ends; without it this would never return.
TEST_F(VerifyFailures, ARankThatIsStuckEndsTheProcessWithWords) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(Emulated({.rounds = 1,
                        .stall_limit = 200'000'000,
                        .grace = 300'000'000,
                        .wrap = FailsIn(0, Way::kIsStuck)},
                       Tail::kBarrier),
              testing::ExitedWithCode(1),
              "1f1b: the run failed: .*rank 1.*1F2.*\n.*1f1b: 0.3 s later a rank is still inside");
}

}  // namespace
}  // namespace spiritlevel
