// A checkpoint is all of one state or all of the one before, whatever becomes of who writes it.
#include "verify/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "tests/base/temporary_folder.h"
#include "tests/verify/training_run_case.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

TrainingState SomeState(int64_t iteration, size_t bytes) {
  TrainingState state;
  state.scalars = {.iteration = iteration,
                   .step = iteration,
                   .consumed_samples = 4 * iteration,
                   .rate = 1e-3f,
                   .loss_scale = 8};
  const char fill = static_cast<char>('a' + iteration % 26);
  for (const char* name : {"embedding.weight", "layers.0.mlp.up.weight", "head.weight"}) {
    state.parameters[name] = {.rows = 1,
                              .cols = static_cast<int64_t>(bytes / 4),
                              .value = std::string(bytes, fill),
                              .first_moment = std::string(bytes, fill),
                              .second_moment = std::string(bytes, fill)};
  }
  return state;
}

// Each parameter on a rank of its own.
std::vector<RankShard> ShardsOf(const TrainingState& state) {
  std::vector<RankShard> shards;
  for (const auto& [name, parameter] : state.parameters) {
    shards.push_back({.rank = static_cast<int>(shards.size()),
                      .bytes = Pack(state.scalars, {{name, parameter}})});
  }
  return shards;
}

TEST(Checkpoint, ComesBackToTheBitAndReplacesTheOneBefore) {
  const TemporaryFolder folder;
  EXPECT_FALSE(HasCheckpoint(folder / "made/by/it"));
  for (const int64_t iteration : {3, 4}) {
    const TrainingState state = SomeState(iteration, 100);
    CommitCheckpoint(folder / "made/by/it", ShardsOf(state));
    EXPECT_TRUE(HasCheckpoint(folder / "made/by/it"));
    EXPECT_EQ(LoadCheckpoint(folder / "made/by/it"), state);
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "made/by/it")) {
    files += entry.is_regular_file();
  }
  EXPECT_EQ(files, 4u) << "three shards and a manifest: what no manifest names is gone";
}

TEST(Checkpoint, IsCommittedOnlyByRanksThatAgree) {
  const TemporaryFolder folder;
  const TrainingState before = SomeState(3, 100);
  CommitCheckpoint(folder.path(), ShardsOf(before));
  std::vector<RankShard> shards = ShardsOf(SomeState(4, 100));
  TrainingScalars other = before.scalars;
  for (const int field : {0, 1, 2, 3, 4, 5}) {
    other = SomeState(4, 100).scalars;
    if (field == 0) ++other.iteration;
    if (field == 1) ++other.step;
    if (field == 2) ++other.consumed_samples;
    if (field == 3) other.rate *= 2;
    if (field == 4) other.loss_scale *= 2;
    if (field == 5) ++other.good_steps;
    shards[1].bytes = Pack(other, {});
    EXPECT_THROW(CommitCheckpoint(folder.path(), shards), InvariantError) << field;
  }
  // Two copies of one parameter.
  shards = ShardsOf(SomeState(4, 100));
  ParameterStates copy = {{"head.weight", SomeState(5, 100).parameters["head.weight"]}};
  shards.push_back({.rank = 3, .bytes = Pack(SomeState(4, 100).scalars, copy)});
  EXPECT_THROW(CommitCheckpoint(folder.path(), shards), InvariantError);
  EXPECT_EQ(LoadCheckpoint(folder.path()), before);
}

std::string MessageOf(const std::filesystem::path& folder) {
  try {
    LoadCheckpoint(folder);
  } catch (const InputError& error) {
    return error.what();
  }
  return "loaded";
}

TEST(Checkpoint, WithAnyByteChangedOrCutOffIsRefusedByName) {
  const TemporaryFolder folder;
  CommitCheckpoint(folder.path(), ShardsOf(SomeState(3, 40)));
  for (const std::string& name : folder.Names()) {
    const std::filesystem::path path = folder / name.c_str();
    const std::string bytes = ReadFile(path);
    if (name == "manifest.json") continue;
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ 0x10);
      if (i % 7 == 0) {
        WriteFile(path, changed);
        EXPECT_THAT(MessageOf(folder.path()), HasSubstr(name));
      }
      EXPECT_THROW(Unpack(changed), InputError) << i;
      EXPECT_THROW(Unpack(std::string_view(bytes).substr(0, i)), InputError) << i;
    }
    WriteFile(path, bytes);
  }
  EXPECT_EQ(MessageOf(folder.path()), "loaded");
}

TEST(Checkpoint, WithoutItsShardsOrWithAManifestOfAnotherKindIsRefusedByName) {
  const TemporaryFolder folder;
  EXPECT_THAT(MessageOf(folder.path()), HasSubstr("manifest.json"));
  for (const char* manifest : {"", "{}", "[1]", "{\"format\": \"another\"}",
                               "{\"format\": \"spiritlevel checkpoint 1\", \"iteration\": 1}",
                               "{\"format\": \"spiritlevel checkpoint 1\", \"iteration\": 1, "
                               "\"shards\": []}",
                               "{\"format\": \"spiritlevel checkpoint 1\", \"iteration\": 1, "
                               "\"shards\": [{\"file\": \"../x\", \"bytes\": 1, "
                               "\"checksum\": \"\"}]}"}) {
    WriteFile(folder / "manifest.json", manifest);
    EXPECT_THAT(MessageOf(folder.path()), HasSubstr("manifest.json")) << manifest;
  }
  CommitCheckpoint(folder.path(), ShardsOf(SomeState(3, 40)));
  for (const std::string& name : folder.Names()) {
    if (name == "manifest.json") continue;
    std::filesystem::remove(folder / name.c_str());
    EXPECT_THAT(MessageOf(folder.path()), HasSubstr(name));
    return;
  }
}

// Runs `body` in a process of its own and kills it after a random time, or waits for it where it is
// sooner done. True if it was.
template <class Body>
bool RunAndKill(int microseconds, Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  const timespec pause{.tv_sec = microseconds / 1'000'000,
                       .tv_nsec = microseconds % 1'000'000 * 1000L};
  ::nanosleep(&pause, nullptr);
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "exit " << WEXITSTATUS(status);
  return WIFEXITED(status);
}

// One checkpoint after the other, as fast as it goes, so that a kill falls into writing one.
TEST(Checkpoint, IsThereWholeWhereverWritingItIsKilled) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  constexpr size_t kBytes = 20'000;
  int64_t committed = 0;
  const auto began = std::chrono::steady_clock::now();
  for (; committed < 4; ++committed) {
    CommitCheckpoint(folder.path(), ShardsOf(SomeState(committed + 1, kBytes)));
  }
  // A kill comes within the time of two of them, so that some are written between the kills.
  const auto took = std::chrono::steady_clock::now() - began;
  const auto longest =
      static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(took).count() / 2);
  const int kills = kSanitized ? 20 : 60;
  const int64_t first = committed;
  for (int i = 0; i < kills || committed == first; ++i) {
    const int64_t last = committed;
    RunAndKill(std::uniform_int_distribution<int>(0, longest + 20 * i)(random), [&] {
      for (int64_t next = last + 1;; ++next) {
        CommitCheckpoint(folder.path(), ShardsOf(SomeState(next, kBytes)));
      }
    });
    const TrainingState state = LoadCheckpoint(folder.path());
    committed = state.scalars.iteration;
    ASSERT_GE(committed, last) << "kill " << i;
    ASSERT_EQ(state, SomeState(committed, kBytes)) << "kill " << i;
  }
}

// Training that is killed again and again, and goes on from what is there.
TEST(Checkpoint, LetsAKilledTrainingGoOnWithTheSameBits) {
  const Schedule schedule = Make("zb-h2", 3, 6);
  TrainingTask task = TinyTask(schedule);
  task.clip_norm = 0.05;  // some steps are clipped, and rolled back
  constexpr int64_t kIterations = 24;
  std::map<int64_t, TrainingState> expected;
  TrainingRun reference(schedule, task, Barrier());
  while (reference.state().scalars.iteration < kIterations) {
    ASSERT_FALSE(reference.Run(2));
    expected[reference.state().scalars.iteration] = reference.state();
  }
  const TemporaryFolder folder;
  const TrainingRunOptions options{.iterations_per_segment = 2,
                                   .checkpoint_folder = folder.path(),
                                   .segments_per_checkpoint = 1};
  std::mt19937 random(2);
  int kills = 0;
  bool done = false;
  // Longer and longer, so that it comes to an end on any machine.
  for (int longest = 2'000; !done; longest += 2'000) {
    const int wait = std::uniform_int_distribution<int>(500, longest)(random);
    done = RunAndKill(wait, [&] {
      TrainingRun run(schedule, task, options);
      if (HasCheckpoint(folder.path())) run.Resume(LoadCheckpoint(folder.path()));
      if (run.Run(kIterations - run.state().scalars.iteration)) ::_exit(1);
    });
    if (!done) ++kills;
    if (!HasCheckpoint(folder.path())) continue;
    const TrainingState state = LoadCheckpoint(folder.path());
    const auto at = expected.find(state.scalars.iteration);
    ASSERT_NE(at, expected.end()) << "not a drain point: " << state.scalars.iteration;
    ASSERT_EQ(Differences(state, at->second), "") << "kill " << kills;
  }
  EXPECT_GT(kills, 0);
  EXPECT_EQ(LoadCheckpoint(folder.path()).scalars.iteration, kIterations);
}

// One rank after four, and two after one: parameters lie elsewhere, and all bits are the same.
TEST(Resume, WithOtherRanksGoesOnWithTheSameBits) {
  const Schedule four = Make("1f1b", 4, 4);
  const TrainingTask on_four = TinyTask(four, 8);
  const TrainingState expected = StateAfter(four, on_four, Barrier(), 6);
  const TemporaryFolder folder;
  TrainingRun first(four, on_four,
                    {.iterations_per_segment = 2,
                     .checkpoint_folder = folder.path(),
                     .segments_per_checkpoint = 1});
  ASSERT_FALSE(first.Run(2));
  for (const int ranks : {1, 2}) {
    const Schedule schedule = Make("1f1b", ranks, 4);
    TrainingRun next(schedule, TinyTask(schedule, 8),
                     {.iterations_per_segment = 2,
                      .checkpoint_folder = folder.path(),
                      .segments_per_checkpoint = 1});
    const TrainingState saved = LoadCheckpoint(folder.path());
    next.Resume(saved);
    EXPECT_EQ(next.state(), saved) << "nothing has moved but the split";
    ASSERT_FALSE(next.Run(2));
  }
  EXPECT_EQ(Differences(LoadCheckpoint(folder.path()), expected), "");
}

// 2 iterations of 4 samples, then 6 samples an iteration, then 2: none is left out, none seen
// twice.
TEST(Resume, WithOtherMicroBatchesKeepsTheSamplePosition) {
  const TemporaryFolder folder;
  int64_t consumed = 0;
  TrainingState saved;
  for (const int micro_batches : {4, 6, 2}) {
    const Schedule schedule = Make("1f1b", 2, micro_batches);
    const TrainingTask task = TinyTask(schedule);
    TrainingRun run(schedule, task,
                    {.checkpoint_folder = folder.path(), .segments_per_checkpoint = 1});
    if (consumed > 0) {
      run.Resume(LoadCheckpoint(folder.path()));
      EXPECT_EQ(run.state().parameters, saved.parameters);
      EXPECT_EQ(run.state().scalars.step, saved.scalars.step);
      EXPECT_EQ(run.state().scalars.consumed_samples, consumed);
      // The task's own stream, from there on.
      const TrainingTask& going_on = run.task();
      const MicroBatchData next = DataOf(going_on, run.state().scalars.iteration, 0);
      TrainingTask from_there = task;
      from_there.first_sample = consumed;
      EXPECT_EQ(next.tokens, DataOf(from_there, 0, 0).tokens);
    }
    ASSERT_FALSE(run.Run(2));
    consumed += 2 * micro_batches;
    EXPECT_EQ(run.state().scalars.consumed_samples, consumed);
    saved = LoadCheckpoint(folder.path());
    EXPECT_EQ(Differences(saved, run.state()), "");
  }
}

// Also where what was done before is done again, with other bits.
TEST(Resume, OfARunThatHasRunForgetsWhatItHasDone) {
  const Schedule schedule = Make("zb-h1", 2, 4);
  const TrainingTask task = TinyTask(schedule);
  TrainingTask other = task;
  other.shape.seed += 1;
  const TrainingState from = StateAfter(schedule, other, Barrier(), 1);
  TrainingRun fresh(schedule, task, {});
  fresh.Resume(from);
  ASSERT_FALSE(fresh.Run(2));
  TrainingRun used(schedule, task, {});
  ASSERT_FALSE(used.Run(3));
  used.Resume(from);
  const std::optional<Failure> failure = used.Run(2);
  ASSERT_FALSE(failure) << failure->message;
  EXPECT_EQ(Differences(used.state(), fresh.state()), "");
}

TEST(Resume, OfAnotherModelIsRefusedByTheParametersName) {
  const Schedule schedule = Make("1f1b", 2, 4);
  const TrainingState state = StateAfter(schedule, TinyTask(schedule), {}, 1);
  TrainingTask wider = TinyTask(schedule);
  wider.shape.intermediate *= 2;
  TrainingRun run(schedule, wider, {.most_failures = 0});
  run.Resume(state);
  const std::optional<Failure> failure = run.Run(1);
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->message, HasSubstr("mlp.up.weight: has another shape"));
}

}  // namespace
}  // namespace spiritlevel
