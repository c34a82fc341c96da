// Faults at random places of random runs. Each ends with all ranks on one validated version, with
// the bits of a run without the fault; a gradient that overflows with those of a run in which
// everybody knew before the step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/model/parameters.h"
#include "kernels/cpu/optimizer.h"
#include "tests/base/temporary_folder.h"
#include "tests/sanitized.h"
#include "tests/verify/observed_run.h"
#include "tests/verify/training_run_case.h"

namespace spiritlevel {
namespace {

enum class Trouble {
  kOverflow,           // Inf or NaN in some gradient of some stage
  kLastStageClips,     // a norm that passes the threshold in the last stage only
  kSomeStageClips,     // in any stage
  kKilledProvisional,  // a rank dies when it has stepped and nobody has judged it
  kKilled,             // anywhere
  kCheckpointInRollback,
  kLostMessage,
  kDelayedMessage,
  kDoubledMessage,
};
constexpr int kNumTroubles = 9;
constexpr std::array<const char*, kNumTroubles> kNames = {
    "overflow",       "the last stage clips",       "some stage clips", "killed behind its step",
    "killed",         "a checkpoint in a rollback", "lost message",     "delayed message",
    "doubled message"};

constexpr int kIterations = 3;

class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  bool OneIn(int n) { return Below(n) == 0; }

 private:
  std::mt19937 random_;
};

struct Shaped {
  const char* name;
  int ranks;
  int micro_batches;
};
constexpr Shaped kShapes[] = {{"zb-h1", 2, 3}, {"zb-h1", 4, 4},       {"zb-h2", 2, 4},
                              {"zb-h2", 3, 6}, {"1f1b", 3, 3},        {"zb-v", 2, 4},
                              {"zb-v", 3, 6},  {"interleaved", 2, 4}, {"dualpipe", 4, 8}};

struct Case {
  Schedule schedule;
  TrainingTask task;
  Trouble trouble;
  TransactionOptions transaction{};
  TrainingRunOptions options{};
};

// Makes the squared norm of one stage of one iteration far larger than that of all others.
GradientFault HugeGradient(int stage, Random& random) {
  return {.iteration = random.Below(kIterations),
          .stage = stage,
          .value = random.OneIn(2) ? 1e4f : 3e38f};
}

GradientFault Overflow(const TrainingTask& task, Random& random) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float values[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()};
  const int stage = random.Below(task.num_stages());
  const std::vector<cpu::ParameterInfo> infos =
      cpu::ParametersOf(task.shape, task.stages[static_cast<size_t>(stage)]);
  const int parameter = random.Below(static_cast<int>(infos.size()));
  return {.iteration = random.Below(kIterations),
          .stage = stage,
          .parameter = parameter,
          .entry = random.Below(static_cast<int>(infos[static_cast<size_t>(parameter)].size())),
          .value = values[random.Below(3)]};
}

Case MakeCase(Trouble trouble, Random& random) {
  const Shaped& shaped = kShapes[random.Below(static_cast<int>(std::size(kShapes)))];
  Schedule schedule = Make(shaped.name, shaped.ranks, shaped.micro_batches);
  TrainingTask task = TinyTask(schedule);
  Case c{.schedule = schedule, .task = task, .trouble = trouble};
  c.transaction.loss_scaling = {.first = 64, .steps_until_growth = 2};
  switch (trouble) {
    case Trouble::kOverflow:
      c.transaction.faults = {Overflow(task, random)};
      break;
    case Trouble::kLastStageClips:
      c.transaction.faults = {HugeGradient(task.num_stages() - 1, random)};
      c.task.clip_norm = 10;
      break;
    case Trouble::kSomeStageClips:
      c.transaction.faults = {HugeGradient(random.Below(task.num_stages()), random)};
      c.task.clip_norm = 10;
      break;
    case Trouble::kCheckpointInRollback:
      // Behind the first stage, which so steps and is rolled back.
      c.transaction.faults = {HugeGradient(1 + random.Below(task.num_stages() - 1), random)};
      c.task.clip_norm = 10;
      break;
    default:
      break;
  }
  c.options.tail = random.OneIn(3) ? Tail::kStrictValidation : Tail::kSpeculativeValidation;
  c.options.iterations_per_segment = 1 + random.Below(3);
  // Within a segment of one there is no validation to die before.
  if (trouble == Trouble::kKilledProvisional)
    c.options.iterations_per_segment = 2 + random.Below(2);
  c.options.restart_after_rejection = random.OneIn(2);
  // Requests come from the ranks, which must then be threads; processes take longer, and cannot be
  // started beside threads of a sanitizer.
  const bool is_kill = trouble == Trouble::kKilledProvisional || trouble == Trouble::kKilled;
  if (trouble != Trouble::kCheckpointInRollback && random.OneIn(is_kill && !kSanitized ? 3 : 10)) {
    c.options.transport = Transport::kProcesses;
  }
  c.options.shared_payload_bytes = size_t{1} << 21;
  c.options.patience = 0;
  return c;
}

NodeId RandomMessage(const Program& program, Random& random) {
  return program.messages()[random.Below(static_cast<int>(program.messages().size()))].from;
}

// Where a rank stands provisional as it dies, which is looked at in a run of its own: a thread that
// is killed leaves its work as it was. So are the places, in one without a fault.
NodeId BehindAStep(const Case& c, const Program& program, Random& random, bool* happened) {
  const ObservedRun free(program, c.task, c.transaction);
  EXPECT_FALSE(free.report.failure) << free.report.failure->message;
  const std::vector<NodeId> places = PlacesBehindAStep(free);
  SPIRITLEVEL_CHECK(!places.empty(), "segments of several iterations have steps to judge");
  const NodeId place = places[static_cast<size_t>(random.Below(static_cast<int>(places.size())))];
  const ObservedRun killed(program, c.task, c.transaction,
                           {{.kind = FaultKind::kKillRank, .node = place}});
  EXPECT_TRUE(killed.report.failure);
  *happened = IsAnyProvisional(killed.works[static_cast<size_t>(program.rank_of(place))]->Now());
  return place;
}

// Nothing in what a run comes to tells a message that was late: its timeline does.
Fault Delay(const Case& c, const Program& program, Random& random, bool* happened) {
  const auto index = static_cast<size_t>(random.Below(static_cast<int>(program.messages().size())));
  const Fault fault{
      .kind = FaultKind::kDelayMessage, .node = program.messages()[index].from, .delay = 500'000};
  const ObservedRun late(program, c.task, c.transaction, {fault});
  EXPECT_FALSE(late.report.failure) << late.report.failure->message;
  const MessageTimes& times = late.report.timelines[0].messages[index];
  *happened = times.arrival - times.start >= fault.delay;
  return fault;
}

// `happened`: whether the fault is there when it is to be, as far as that can be told beforehand.
std::optional<Fault> FaultFor(const Case& c, const Program& program, Random& random,
                              bool* happened) {
  switch (c.trouble) {
    case Trouble::kKilledProvisional:
      return Fault{.kind = FaultKind::kKillRank, .node = BehindAStep(c, program, random, happened)};
    case Trouble::kKilled:
      return Fault{.kind = FaultKind::kKillRank, .node = random.Below(program.num_lane_nodes())};
    case Trouble::kLostMessage:
      return Fault{.kind = FaultKind::kLoseMessage, .node = RandomMessage(program, random)};
    case Trouble::kDoubledMessage:
      return Fault{.kind = FaultKind::kDoubleMessage, .node = RandomMessage(program, random)};
    case Trouble::kDelayedMessage:
      return Delay(c, program, random, happened);
    default:
      return std::nullopt;
  }
}

std::optional<FailureKind> FailureOf(Trouble trouble) {
  switch (trouble) {
    case Trouble::kKilledProvisional:
    case Trouble::kKilled:
      return FailureKind::kDied;
    case Trouble::kLostMessage:
      return FailureKind::kLostMessage;
    case Trouble::kDoubledMessage:
      return FailureKind::kWrongMessage;
    default:
      return std::nullopt;
  }
}

// What the cases of one part have come to.
struct Tally {
  std::array<int, kNumTroubles> tried{};
  std::array<int, kNumTroubles> happened{};
  int killed_processes = 0;
  StageCounts seen{};
};

// That nothing went wrong but the fault, and that where it was put.
void ExpectFailure(const Case& c, const TrainingRun& run, const std::optional<Fault>& fault) {
  int others = 0;
  for (const Attempt& attempt : run.attempts()) {
    if (!attempt.failure || attempt.failure->kind == FailureKind::kVerdict) continue;
    ++others;
    EXPECT_EQ(attempt.failure->kind, FailureOf(c.trouble)) << attempt.failure->message;
    if (fault && fault->kind == FaultKind::kKillRank) {
      EXPECT_EQ(attempt.failure->node, fault->node) << attempt.failure->message;
    }
  }
  EXPECT_EQ(others, FailureOf(c.trouble) ? 1 : 0);
}

// By the gradients that a barrier has recorded: within the threshold without the last stage, over
// it with that. `scalars` are those before the step.
bool IsOverInTheLastStageOnly(const Case& c, const StepRecord& step,
                              const TrainingScalars& scalars) {
  const ParameterNumbers numbers(c.task);
  SquaredNorm before_last;
  SquaredNorm full;
  for (const ParameterRecord& parameter : step.parameters) {
    if (!numbers.counts_in_norm(parameter.number)) continue;
    const double partial = cpu::SumOfSquares(parameter.gradient);
    full.Add(partial);
    if (numbers.stage_of(parameter.number) + 1 < c.task.num_stages()) before_last.Add(partial);
  }
  return IsWithin(c.task, before_last, scalars) && !full.has_overflow &&
         !IsWithin(c.task, full, scalars);
}

bool ClipsInTheLastStageOnly(const Case& c) {
  TrainingRunOptions options = Barrier(c.transaction);
  options.record = true;
  TrainingRun run(c.schedule, c.task, options);
  EXPECT_FALSE(run.Run(kIterations));
  TrainingScalars scalars = FirstScalars(c.task, c.transaction.loss_scaling);
  for (const StepRecord& step : run.record()) {
    if (step.step == c.transaction.faults.at(0).iteration) {
      return IsOverInTheLastStageOnly(c, step, scalars);
    }
    scalars = After(c.task, c.transaction.loss_scaling, scalars, false);
  }
  return false;
}

void ExpectNoStageOutOfPlace(const Case& c, const TrainingRun& run) {
  for (const std::vector<StageCounts>& rank : run.counts()) {
    for (const StageCounts& stage : rank) {
      EXPECT_EQ(stage.stage + 1 == c.task.num_stages() ? stage.rolled_back : stage.skipped, 0);
    }
  }
}

// Whether the run went through what it was for, by what it came to.
bool HasHappened(const Case& c, const TrainingRun& run, int rollbacks) {
  const StageCounts total = Total(run);
  switch (c.trouble) {
    case Trouble::kOverflow:
      return total.overflows > 0 && run.state().scalars.step < kIterations;
    case Trouble::kLastStageClips:
      ExpectNoStageOutOfPlace(c, run);
      return total.rolled_back > 0 && ClipsInTheLastStageOnly(c);
    case Trouble::kSomeStageClips:
      return total.rolled_back + total.skipped > 0;
    case Trouble::kCheckpointInRollback:
      return rollbacks > 0;
    default:
      return true;  // ExpectFailure(), and before the run
  }
}

void RunCase(unsigned seed, Tally* tally) {
  Random random(seed);
  const auto trouble = static_cast<Trouble>(seed % kNumTroubles);
  Case c = MakeCase(trouble, random);
  const bool has_processes = c.options.transport == Transport::kProcesses;
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + kNames[seed % kNumTroubles] + "\n" +
               c.schedule.ToString() + std::string(Name(c.options.tail)) +
               (has_processes ? ", processes" : ", threads"));
  const TrainingState expected =
      StateAfter(c.schedule, c.task, Barrier(c.transaction), kIterations);

  std::optional<TemporaryFolder> folder;
  c.options.transaction = c.transaction;
  std::optional<Fault> fault;
  bool happened = true;
  c.options.faults = [&](int attempt, const Program& program) -> std::vector<Fault> {
    if (attempt > 0) return {};
    fault = FaultFor(c, program, random, &happened);
    return fault ? std::vector<Fault>{*fault} : std::vector<Fault>{};
  };
  TrainingRun* running = nullptr;
  std::mutex mutex;
  std::atomic<int> rollbacks = 0;
  std::string written_in_rollback;
  if (trouble == Trouble::kCheckpointInRollback) {
    folder.emplace();
    c.options.checkpoint_folder = folder->path();
    c.options.transaction.on_rollback = [&](int, int64_t) {
      running->RequestCheckpoint();
      rollbacks.fetch_add(1);
      const std::lock_guard lock(mutex);
      for (const std::string& name : folder->Names()) written_in_rollback += name + " ";
    };
  }
  TrainingRun run(c.schedule, c.task, c.options);
  running = &run;
  const std::optional<Failure> failure = run.Run(kIterations);
  ASSERT_FALSE(failure) << failure->message;
  EXPECT_EQ(Differences(run.state(), expected), "") << Words(run.attempts());
  ExpectFailure(c, run, fault);
  ++tally->tried[static_cast<size_t>(trouble)];
  happened = HasHappened(c, run, rollbacks.load()) && happened;
  EXPECT_TRUE(happened) << "then the case shows nothing";
  tally->happened[static_cast<size_t>(trouble)] += happened;
  tally->killed_processes += has_processes && fault && fault->kind == FaultKind::kKillRank;
  tally->seen = Sum(tally->seen, Total(run));
  if (trouble == Trouble::kCheckpointInRollback) {
    EXPECT_EQ(written_in_rollback, "") << "what is written is validated, and drained";
    ASSERT_TRUE(HasCheckpoint(folder->path()));
    const TrainingState saved = LoadCheckpoint(folder->path());
    EXPECT_EQ(Differences(saved, StateAfter(c.schedule, c.task, Barrier(c.transaction),
                                            saved.scalars.iteration)),
              "");
  }
}

unsigned Placements() {
  if (std::getenv("SPIRITLEVEL_LONG_TESTS") != nullptr) return kSanitized ? 500 : 5000;
  return kSanitized ? 50 : 1000;
}

// In parts, so that they can run beside each other.
constexpr unsigned kParts = 4;

class RandomTrouble : public testing::TestWithParam<unsigned> {};

TEST_P(RandomTrouble, EndsOnOneValidatedVersionWithTheRightBits) {
  Tally tally;
  for (unsigned seed = GetParam(); seed < Placements(); seed += kParts) {
    RunCase(seed, &tally);
    if (HasFailure()) return;
  }
  const unsigned cases = Placements() / kParts;
  for (size_t i = 0; i < tally.tried.size(); ++i) {
    SCOPED_TRACE(kNames[i]);
    EXPECT_GE(tally.happened[i], static_cast<int>(cases / kNumTroubles));
    EXPECT_EQ(tally.happened[i], tally.tried[i]);
  }
  // Else nothing was shown; a few places of a few runs need not have all of it.
  if (cases < 200) return;
  EXPECT_GE(tally.killed_processes, static_cast<int>(cases / 20)) << "by a SIGKILL each";
  EXPECT_GT(tally.seen.skipped, 0);
  EXPECT_GT(tally.seen.rolled_back, 0);
  EXPECT_GT(tally.seen.dropped_forwards, 0);
}

INSTANTIATE_TEST_SUITE_P(Parts, RandomTrouble, testing::Range(0u, kParts));

}  // namespace
}  // namespace spiritlevel
