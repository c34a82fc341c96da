// Run under mpirun, one rank a process: training runs through rejected steps, faults and restarts,
// which end with the bits of a run in threads whose norms are known before anybody steps.
//
//   mpi_training                       the tests
//   mpi_training kill FOLDER SEED      trains with checkpoints until a rank is killed somewhere
//   mpi_training resume FOLDER         goes on where that had come to, on as many ranks as there
//                                      are; prints what it began with, and fails unless the bits
//                                      are those of a run that nobody has killed
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tests/sim/random_case.h"
#include "tests/verify/mpi_world.h"
#include "tests/verify/training_run_case.h"
#include "verify/mpi_job.h"

namespace spiritlevel {
namespace {

namespace fs = std::filesystem;

constexpr Tail kPostValidations[] = {Tail::kStrictValidation, Tail::kSpeculativeValidation};
constexpr TimeNs kStallLimit = 2'000'000'000;

TrainingRunOptions UnderMpi(Tail tail, const TransactionOptions& transaction = {}) {
  return {.tail = tail,
          .transport = Transport::kMpi,
          .transaction = transaction,
          .iterations_per_segment = 2,
          .stall_limit = kStallLimit};
}

Schedule ForAll(const char* name) { return Make(name, World().size, 2 * World().size); }

// All processes have the same state, not the first alone.
void ExpectSameEverywhere(const TrainingState& state) {
  const std::string own = Pack(state.scalars, state.parameters);
  std::string first = own;
  ShareFromFirst(&first);
  EXPECT_EQ(own == first, true) << "process " << World().rank << " has another state";
}

void ExpectBitsOf(const TrainingState& expected, const Schedule& schedule, const TrainingTask& task,
                  const TrainingRunOptions& options, int64_t iterations) {
  TrainingRun run(schedule, task, options);
  const std::optional<Failure> failure = run.Run(iterations);
  ASSERT_FALSE(failure) << Words(run.attempts());
  EXPECT_EQ(Differences(run.state(), expected), "") << Words(run.attempts());
  ExpectSameEverywhere(run.state());
}

TEST(TrainingUnderMpi, EndsWithTheBarriersBitsUnderEveryTail) {
  for (const char* const name : {"1f1b", "interleaved", "zb-h2", "zb-v", "dualpipe"}) {
    const Schedule schedule = ForAll(name);
    TrainingTask task = TinyTask(schedule);
    // Nothing is clipped; or each step, so that each version is rejected.
    for (const double clip_norm : {1e3, 1e-2}) {
      task.clip_norm = clip_norm;
      const TrainingState expected = StateAfter(schedule, task, Barrier(), 5);
      for (const Tail tail : {Tail::kBarrier, kPostValidations[0], kPostValidations[1]}) {
        SCOPED_TRACE(std::string(name) + ", " + std::string(Name(tail)) + ", clip " +
                     std::to_string(clip_norm));
        ExpectBitsOf(expected, schedule, task, UnderMpi(tail), 5);
      }
    }
  }
}

TEST(TrainingUnderMpi, OfReplicasEndsWithTheBarriersBits) {
  const Schedule schedule = Make("zb-h1", World().size / 2, World().size);
  TrainingTask task = TinyTask(schedule);
  task.replicas = 2;
  for (const double clip_norm : {1e3, 1e-2}) {
    task.clip_norm = clip_norm;
    const TrainingState expected = StateAfter(schedule, task, Barrier(), 3);
    for (const Tail tail : kPostValidations) {
      SCOPED_TRACE(Name(tail));
      ExpectBitsOf(expected, schedule, task, UnderMpi(tail), 3);
    }
  }
}

TEST(TrainingUnderMpi, SkipsAnOverflowAndTakesAClippedStepBack) {
  const Schedule schedule = ForAll("zb-h2");
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 10;
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 1e4f}) {
    const TransactionOptions transaction{
        .loss_scaling = {.first = 64, .steps_until_growth = 2},
        .faults = {{.iteration = 2, .stage = task.num_stages() - 1, .value = value}}};
    const TrainingState expected = StateAfter(schedule, task, Barrier(transaction), 4);
    for (const Tail tail : kPostValidations) {
      SCOPED_TRACE(std::string(Name(tail)) + ", " + std::to_string(value));
      TrainingRun run(schedule, task, UnderMpi(tail, transaction));
      ASSERT_FALSE(run.Run(4)) << Words(run.attempts());
      EXPECT_EQ(Differences(run.state(), expected), "");
      // The segment whose first version is rejected begins anew with a Program that knows of it.
      EXPECT_EQ(run.attempts().size(), tail == Tail::kStrictValidation ? 2u : 3u)
          << Words(run.attempts());
    }
  }
}

// In one job: the segment begins anew on all processes, and nothing of the run that has failed is
// taken for a message of the next.
TEST(FaultUnderMpi, ThatLeavesAllProcessesAliveBeginsTheSegmentAnew) {
  const Schedule schedule = ForAll("zb-h1");
  const TrainingTask task = TinyTask(schedule);
  const TrainingState expected = StateAfter(schedule, task, Barrier(), 4);
  RandomCase random(7);
  for (const FaultKind kind : {FaultKind::kLoseMessage, FaultKind::kDoubleMessage,
                               FaultKind::kDelayMessage, FaultKind::kFailWork}) {
    SCOPED_TRACE(Name(kind));
    const int place = random.Below(1 << 20);
    TrainingRunOptions options = UnderMpi(Tail::kSpeculativeValidation);
    options.faults = [&](int attempt, const Program& program) -> std::vector<Fault> {
      if (attempt != 1) return {};
      if (kind == FaultKind::kFailWork) return {{kind, place % program.num_lane_nodes()}};
      const std::span<const Message> messages = program.messages();
      Fault fault{kind, messages[static_cast<size_t>(place) % messages.size()].from};
      fault.delay = 100'000'000;
      return {fault};
    };
    TrainingRun run(schedule, task, options);
    ASSERT_FALSE(run.Run(4)) << Words(run.attempts());
    EXPECT_EQ(Differences(run.state(), expected), "");
    EXPECT_EQ(run.attempts().size(), kind == FaultKind::kDelayMessage ? 2u : 3u)
        << "place " << place << "\n"
        << Words(run.attempts());
    ExpectSameEverywhere(run.state());
  }
}

struct Trouble {
  const char* schedule;
  std::optional<FaultKind> fault{};
  std::optional<float> gradient{};
};

// One trouble at a random place of a random run.
void ExpectBitsInSpiteOf(const Trouble& trouble, RandomCase& random) {
  const Schedule schedule = ForAll(trouble.schedule);
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 10;
  TransactionOptions transaction{.loss_scaling = {.first = 64, .steps_until_growth = 2}};
  if (trouble.gradient) {
    transaction.faults = {{.iteration = random.Below(4),
                           .stage = random.Below(task.num_stages()),
                           .value = *trouble.gradient}};
  }
  const Tail tail = kPostValidations[random.Below(2)];
  TrainingRunOptions options = UnderMpi(tail, transaction);
  options.iterations_per_segment = 1 + random.Below(4);
  const int place = random.Below(1 << 20);
  options.faults = [&](int attempt, const Program& program) -> std::vector<Fault> {
    if (!trouble.fault || attempt != 0) return {};
    Fault fault{.kind = *trouble.fault, .delay = 20'000'000};
    const std::span<const Message> messages = program.messages();
    fault.node = fault.kind == FaultKind::kFailWork
                     ? place % program.num_lane_nodes()
                     : messages[static_cast<size_t>(place) % messages.size()].from;
    return {fault};
  };
  ExpectBitsOf(StateAfter(schedule, task, Barrier(transaction), 4), schedule, task, options, 4);
}

TEST(TroubleUnderMpi, EndsWithTheBarriersBitsWhereverItComes) {
  constexpr unsigned kSeed = 20;
  RandomCase random(kSeed);
  const float inf = std::numeric_limits<float>::infinity();
  int round = 0;
  for (const char* const name : {"1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe"}) {
    for (const Trouble& trouble :
         {Trouble{name, FaultKind::kFailWork}, Trouble{name, FaultKind::kDoubleMessage},
          Trouble{name, FaultKind::kWrongMessage}, Trouble{name, FaultKind::kDelayMessage},
          Trouble{name, {}, inf}, Trouble{name, {}, 1e4f}, Trouble{name, {}, -3e38f}}) {
      SCOPED_TRACE("seed " + std::to_string(kSeed) + ", round " + std::to_string(round++));
      ExpectBitsInSpiteOf(trouble, random);
    }
  }
}

// A folder that all processes know the name of.
fs::path SharedFolder() {
  std::string name;
  if (World().rank == 0) {
    std::string pattern = (fs::temp_directory_path() / "spiritlevel-mpi-XXXXXX").string();
    SPIRITLEVEL_CHECK(::mkdtemp(pattern.data()) != nullptr, "there is room for a folder");
    name = pattern;
  }
  ShareFromFirst(&name);
  return name;
}

TEST(CheckpointUnderMpi, IsWrittenWhereAnyProcessAsksAndReadByTheFirst) {
  const Schedule schedule = ForAll("1f1b");
  const TrainingTask task = TinyTask(schedule);
  const fs::path folder = SharedFolder();
  TrainingRunOptions options = UnderMpi(Tail::kSpeculativeValidation);
  options.checkpoint_folder = folder;
  TrainingRun run(schedule, task, options);
  ASSERT_FALSE(run.Run(2));
  EXPECT_EQ(run.checkpoints(), 0);
  if (World().rank == World().size - 1) run.RequestCheckpoint();
  ASSERT_FALSE(run.Run(2));
  EXPECT_EQ(run.checkpoints(), 1);
  TrainingRun again(schedule, task, options);
  // Others need not see the folder.
  ASSERT_TRUE(again.ResumeFrom(World().rank == 0 ? folder : fs::path("nowhere")));
  EXPECT_EQ(Differences(again.state(), run.state()), "");
  ASSERT_FALSE(again.Run(2));
  ASSERT_FALSE(run.Run(2));
  EXPECT_EQ(Differences(again.state(), run.state()), "");
  TrainingRun fresh(schedule, task, options);
  EXPECT_FALSE(fresh.ResumeFrom(folder / "nothing"));
  if (World().rank == 0) fs::remove_all(folder);
}

TEST(CheckpointUnderMpi, ThatCannotBeWrittenOrReadIsAnErrorOfAllProcesses) {
  const Schedule schedule = ForAll("1f1b");
  const TrainingTask task = TinyTask(schedule);
  const fs::path folder = SharedFolder();
  const fs::path file = folder / "manifest.json";
  DoAtFirst([&] { std::fclose(std::fopen(file.c_str(), "w")); });
  TrainingRunOptions options = UnderMpi(Tail::kBarrier);
  options.checkpoint_folder = file / "below a file";
  options.segments_per_checkpoint = 1;
  TrainingRun run(schedule, task, options);
  EXPECT_THROW(run.Run(2), InputError);
  EXPECT_THROW(run.ResumeFrom(folder), InputError);
  if (World().rank == 0) fs::remove_all(folder);
}

TEST(ShardedOptimizerUnderMpi, IsRefusedInATransactionAsElsewhere) {
  const Schedule schedule = Make("zb-h1", World().size / 2, World().size);
  TrainingTask task = TinyTask(schedule);
  task.replicas = 2;
  task.sharded_optimizer = true;
  EXPECT_THROW(TrainingRun(schedule, task, UnderMpi(Tail::kSpeculativeValidation)), InputError);
}

// -------------------------------------------------------------------------------------------------
// Two jobs.

constexpr int64_t kAllIterations = 10;
constexpr int kStages = 4;  // on however many ranks
constexpr int kMicroBatches = 8;

// By which no bits change: the model and its W order are the same on two ranks and on four.
Schedule ScheduleOfAllRanks() {
  const int ranks = World().size;
  return ranks == kStages ? Make("1f1b", ranks, kMicroBatches)
                          : Make("interleaved", ranks, kMicroBatches);
}

TrainingTask KilledTask(const Schedule& schedule) {
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 1e-2;  // each version is rejected: ranks step twice
  return task;
}

TrainingRunOptions WithCheckpoints(const fs::path& folder) {
  TrainingRunOptions options = UnderMpi(Tail::kSpeculativeValidation);
  options.checkpoint_folder = folder;
  options.segments_per_checkpoint = 1;
  return options;
}

int TrainUntilKilled(const fs::path& folder, unsigned seed) {
  if (World().rank == 0) fs::remove_all(folder);
  const Schedule schedule = ScheduleOfAllRanks();
  TrainingRunOptions options = WithCheckpoints(folder);
  RandomCase random(seed);
  const int fatal = 2 + random.Below(4);  // by then something has been committed
  const int place = random.Below(1 << 20);
  if (World().rank == 0) std::printf("seed %u\n", seed);
  options.faults = [=](int attempt, const Program& program) -> std::vector<Fault> {
    if (attempt != fatal) return {};
    return {{FaultKind::kKillRank, place % program.num_lane_nodes()}};
  };
  TrainingRun run(schedule, KilledTask(schedule), options);
  run.Run(kAllIterations);
  return 1;  // nobody was killed
}

int Resume(const fs::path& folder) {
  const Schedule schedule = ScheduleOfAllRanks();
  const TrainingTask task = KilledTask(schedule);
  TrainingRun run(schedule, task, UnderMpi(Tail::kSpeculativeValidation));
  if (!run.ResumeFrom(folder)) return 2;
  const int64_t begin = run.state().scalars.iteration;
  if (const std::optional<Failure> failure = run.Run(kAllIterations - begin)) {
    std::printf("process %d: %s\n", World().rank, failure->message.c_str());
    return 1;
  }
  if (World().rank != 0) return 0;
  const TrainingState expected = StateAfter(schedule, task, Barrier(), kAllIterations);
  const std::string differences = Differences(run.state(), expected);
  std::printf("on %d ranks from iteration %lld to %lld: %s\n", World().size,
              static_cast<long long>(begin), static_cast<long long>(run.state().scalars.iteration),
              differences.empty() ? "the bits are right" : differences.c_str());
  return differences.empty() && begin > 0 && begin < kAllIterations ? 0 : 1;
}

int RunJob(int argc, char** argv) {
  const MpiSession mpi;
  World() = {.rank = mpi.rank(), .size = mpi.size()};
  const std::string_view what = argv[1];
  if (what == "kill" && argc == 4) {
    return TrainUntilKilled(argv[2], static_cast<unsigned>(std::atoi(argv[3])));
  }
  if (what == "resume" && argc == 3) return Resume(argv[2]);
  return 2;
}

}  // namespace
}  // namespace spiritlevel

int main(int argc, char** argv) {
  const bool is_job = argc > 1 && argv[1][0] != '-';
  return is_job ? spiritlevel::RunJob(argc, argv) : spiritlevel::RunTestsUnderMpi(&argc, argv);
}
