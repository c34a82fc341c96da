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

#include "kernels/cpu/model/parameters.h"
#include "tests/base/temporary_folder.h"
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
    case Trouble::kCheckpointInRollback:
      c.transaction.faults = {HugeGradient(random.Below(task.num_stages()), random)};
      c.task.clip_norm = 10;
      break;
    default:
      break;
  }
  c.options.tail = random.OneIn(3) ? Tail::kStrictValidation : Tail::kSpeculativeValidation;
  c.options.iterations_per_segment = 1 + random.Below(3);
  c.options.restart_after_rejection = random.OneIn(2);
  // Requests come from the ranks, which must then be threads; processes take longer, and cannot be
  // started beside threads of a sanitizer.
  if (trouble != Trouble::kCheckpointInRollback && random.OneIn(10)) {
    c.options.transport = Transport::kProcesses;
  }
  c.options.shared_payload_bytes = size_t{1} << 21;
  c.options.patience = 0;
  return c;
}

NodeId RandomMessage(const Program& program, Random& random) {
  return program.messages()[random.Below(static_cast<int>(program.messages().size()))].from;
}

// What a rank does right behind one of its optimizer steps.
NodeId BehindAStep(const Program& program, Random& random) {
  std::vector<NodeId> places;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    for (NodeId id = program.rank_begin(rank); id + 1 < program.rank_end(rank); ++id) {
      if (program.nodes()[id].kind == NodeKind::kOptimizer) places.push_back(id + 1);
    }
  }
  if (places.empty()) return random.Below(program.num_lane_nodes());
  return places[static_cast<size_t>(random.Below(static_cast<int>(places.size())))];
}

std::optional<Fault> FaultFor(Trouble trouble, const Program& program, Random& random) {
  switch (trouble) {
    case Trouble::kKilledProvisional:
      return Fault{.kind = FaultKind::kKillRank, .node = BehindAStep(program, random)};
    case Trouble::kKilled:
      return Fault{.kind = FaultKind::kKillRank, .node = random.Below(program.num_lane_nodes())};
    case Trouble::kLostMessage:
      return Fault{.kind = FaultKind::kLoseMessage, .node = RandomMessage(program, random)};
    case Trouble::kDoubledMessage:
      return Fault{.kind = FaultKind::kDoubleMessage, .node = RandomMessage(program, random)};
    case Trouble::kDelayedMessage:
      return Fault{.kind = FaultKind::kDelayMessage,
                   .node = RandomMessage(program, random),
                   .delay = 500'000};
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

// That the trouble did happen, and that nothing else went wrong.
void ExpectTrouble(const Case& c, const TrainingRun& run) {
  int others = 0;
  for (const Attempt& attempt : run.attempts()) {
    if (!attempt.failure || attempt.failure->kind == FailureKind::kVerdict) continue;
    ++others;
    EXPECT_EQ(attempt.failure->kind, FailureOf(c.trouble)) << attempt.failure->message;
  }
  EXPECT_EQ(others, FailureOf(c.trouble) ? 1 : 0);
  const StageCounts total = Total(run);
  const int stages = c.task.num_stages();
  switch (c.trouble) {
    case Trouble::kOverflow:
      EXPECT_GT(total.overflows, 0);
      EXPECT_LT(run.state().scalars.step, kIterations);
      break;
    case Trouble::kLastStageClips:
      for (const std::vector<StageCounts>& rank : run.counts()) {
        for (const StageCounts& stage : rank) {
          EXPECT_EQ(stage.stage + 1 == stages ? stage.rolled_back : stage.skipped, 0);
        }
      }
      break;
    default:
      break;
  }
}

void RunCase(unsigned seed, StageCounts* seen) {
  Random random(seed);
  const auto trouble = static_cast<Trouble>(seed % kNumTroubles);
  Case c = MakeCase(trouble, random);
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + kNames[seed % kNumTroubles] + "\n" +
               c.schedule.ToString() + std::string(Name(c.options.tail)) +
               (c.options.transport == Transport::kProcesses ? ", processes" : ", threads"));
  const TrainingState expected =
      StateAfter(c.schedule, c.task, Barrier(c.transaction), kIterations);

  std::optional<TemporaryFolder> folder;
  c.options.transaction = c.transaction;
  c.options.faults = [&](int attempt, const Program& program) -> std::vector<Fault> {
    if (attempt > 0) return {};
    const std::optional<Fault> fault = FaultFor(c.trouble, program, random);
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
  ExpectTrouble(c, run);
  const StageCounts total = Total(run);
  seen->skipped += total.skipped;
  seen->rolled_back += total.rolled_back;
  seen->dropped_forwards += total.dropped_forwards;
  if (trouble == Trouble::kCheckpointInRollback && rollbacks.load() > 0) {
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
  StageCounts seen;
  for (unsigned seed = GetParam(); seed < Placements(); seed += kParts) {
    RunCase(seed, &seen);
    if (HasFailure()) return;
  }
  // Else nothing was shown; a few places of a few runs need not have all of it.
  if (Placements() / kParts < 200) return;
  EXPECT_GT(seen.skipped, 0);
  EXPECT_GT(seen.rolled_back, 0);
  EXPECT_GT(seen.dropped_forwards, 0);
}

INSTANTIATE_TEST_SUITE_P(Parts, RandomTrouble, testing::Range(0u, kParts));

}  // namespace
}  // namespace spiritlevel
