#include "cli/options.h"

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cli/profile.h"
#include "cli/search_words.h"
#include "sim/schedules/catalog.h"

namespace spiritlevel {
namespace {

// The value that is called `word`.
template <class Value>
Value OneOf(std::string_view flag, std::string_view word, std::initializer_list<Value> values) {
  std::string names;
  for (const Value value : values) {
    if (Name(value) == word) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", Name(value));
  }
  throw InputError(fmt::format("{}: there is no \"{}\"", flag, word),
                   fmt::format("there is {}", names));
}

double CheckedRejection(double probability, const PlayOptions& options) {
  if (!(probability >= 0 && probability <= 1)) {
    throw InputError(fmt::format("--rejection: {} is no probability", probability),
                     "use a number from 0 to 1");
  }
  const bool can_reject =
      options.tail == Tail::kSpeculativeValidation && options.posting == Posting::kIdeal;
  if (probability > 0 && !can_reject) {
    throw InputError("--rejection: nothing can be rejected here",
                     "use it with --tail post-validation-speculative and --posting ideal");
  }
  return probability;
}

int AtLeastOne(std::string_view flag, int value) {
  if (value >= 1) return value;
  throw InputError(fmt::format("{}: {} is not 1 or more", flag, value), "leave it out, or use 1");
}

void CheckSizes(const Scenario& scenario, const std::string& file) {
  const int64_t cells = int64_t{scenario.ranks} * scenario.stages_per_rank * scenario.micro_batches;
  if (int64_t{scenario.ranks} * scenario.stages_per_rank <= kMaxStages &&
      cells <= kMaxStageMicroBatches) {
    return;
  }
  throw InputError(
      fmt::format("{}: --stages-per-rank: {} ranks x {} stages x {} micro-batches do "
                  "not fit in memory",
                  file, scenario.ranks, scenario.stages_per_rank, scenario.micro_batches),
      fmt::format("keep their product at {} or less", kMaxStageMicroBatches));
}

}  // namespace

void ScenarioOptions::AddTo(CLI::App& command) {
  command.add_option("SCENARIO", file, "Scenario file: .textproto or .json")->required();
  command.add_option("--group", group, "Group size of the interleaved forms (default: PyTorch's)");
  command.add_option("--stages-per-rank", stages_per_rank,
                     "Stages a rank holds in the interleaved forms (default: the file's, or 2)");
}

void ScenarioOptions::AddProfileTo(CLI::App& command) {
  RefuseEmptyName(
      command.add_option("--profile", profile,
                         "Device profile that `spiritlevel calibrate` wrote, for a scenario with a "
                         "model (default: the one that the scenario names)"));
}

void RefuseEmptyName(CLI::Option* option) {
  option->each([option](const std::string& name) {
    if (!name.empty()) return;
    throw InputError(fmt::format("{}: \"\" names no file", option->get_name()),
                     "give its path, or leave it out");
  });
}

LoadedScenario ScenarioOptions::Load() const {
  return WithProfile(LoadWithoutProfile(), file, profile);
}

Scenario ScenarioOptions::LoadWithoutProfile() const {
  Scenario scenario = LoadScenario(file);
  if (group) scenario.group = AtLeastOne("--group", *group);
  if (stages_per_rank) {
    scenario.stages_per_rank = AtLeastOne("--stages-per-rank", *stages_per_rank);
  }
  CheckSizes(scenario, file);
  return scenario;
}

void PlayFlags::AddTo(CLI::App& command) {
  command
      .add_option("--posting", posting,
                  "How messages are posted: ideal (early, never blocking), nccl-fifo (one in-order "
                  "lane for a pair of ranks), or batched (one blocking exchange before a turn)")
      ->capture_default_str();
  command
      .add_option("--receives", receives,
                  "Where receives stand: under nccl-fifo early, deferred or naive; under batched "
                  "early or naive")
      ->capture_default_str();
  command
      .add_option(
          "--channels", channels,
          "Under nccl-fifo, what shares a lane: a pair of ranks, or each direction (directed)")
      ->capture_default_str();
  command
      .add_option(
          "--tail", tail,
          "What ends an iteration: barrier (before the optimizer), none (each rank by itself), "
          "post-validation-strict, or post-validation-speculative")
      ->capture_default_str();
  command
      .add_option("--weight-grads", weight_grads,
                  "Where gradients are summed by bucket, W's that end a rank's work on a stage run "
                  "by-micro-batch, or by-bucket, so that buckets are full sooner")
      ->capture_default_str();
  command
      .add_option("--rejection", rejection,
                  "Probability that a speculative step is rejected and replayed")
      ->capture_default_str();
  command
      .add_option("--iterations", iterations,
                  "Iterations to keep, judge, and show in a page or trace; the period is always "
                  "read off the last two of at least 4")
      ->capture_default_str();
}

PlayOptions PlayFlags::Parse() const {
  PlayOptions options;
  options.posting =
      OneOf("--posting", posting, {Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched});
  options.receives =
      OneOf("--receives", receives, {Receives::kEarly, Receives::kDeferred, Receives::kNaive});
  options.channels = OneOf("--channels", channels, {Channels::kPair, Channels::kDirected});
  options.tail =
      OneOf("--tail", tail,
            {Tail::kNoTail, Tail::kBarrier, Tail::kStrictValidation, Tail::kSpeculativeValidation});
  options.weight_grads =
      OneOf("--weight-grads", weight_grads, {WeightGrads::kByMicroBatch, WeightGrads::kByBucket});
  if (options.posting != Posting::kNcclFifo && channels != "pair") {
    throw InputError("--channels: only nccl-fifo has lanes that are shared",
                     "add --posting nccl-fifo, or leave it out");
  }
  const bool literal_batches =
      options.posting == Posting::kBatched && options.receives == Receives::kNaive;
  if (options.posting != Posting::kNcclFifo && receives != "early" && !literal_batches) {
    throw InputError("--receives: only nccl-fifo has lanes to place receives in",
                     "add --posting nccl-fifo, or leave it out; under batched there is naive, too");
  }
  options.rejection = CheckedRejection(rejection, options);
  if (iterations < 1 || iterations > kMaxIterations) {
    throw InputError(
        fmt::format("--iterations: {} is not between 1 and {}", iterations, kMaxIterations),
        fmt::format("use 1 to {}; the period settles after a few", kMaxIterations));
  }
  options.iterations = static_cast<int>(iterations);
  return options;
}

void PlayFlags::RefuseIdleOn(const Scenario& scenario) const {
  const bool by_bucket =
      scenario.model ? scenario.model->run.data_parallel > 1 : scenario.slices.sums.reduction > 0;
  if (by_bucket || weight_grads == Name(WeightGrads::kByMicroBatch)) return;
  throw InputError("--weight-grads: this scenario sums no gradients over replicas",
                   "give it data_parallel (of a model) or reduction_us, or leave the flag out");
}

void MemoryLimitFlag::AddTo(CLI::App& command) {
  command.add_option("--memory-limit", text,
                     "What a rank may hold (60GiB, 8e9), or one size for each rank with commas "
                     "between (default: the scenario's)");
}

void MemoryLimitFlag::Apply(bool writes_page, Scenario* scenario, PlayOptions* options) const {
  if (text.empty()) return;
  LimitMemory(ParseMemoryLimits(text, scenario->ranks), scenario, options);
  if (!writes_page || options->limits.empty()) return;
  throw InputError("--memory-limit: a page shows one limit, that of all ranks",
                   "give one size, or leave --html out");
}

// One value for each flag: what follows may be the scenario.
void ScheduleFlags::AddTo(CLI::App& command, bool many) {
  command
      .add_option("--schedule", names,
                  many ? "Schedule, may be given several times (default: all)"
                       : "Schedule; `spiritlevel schedules` lists them")
      ->allow_extra_args(false);
  command.add_option("--schedule-file", files, "Schedule read from a PyTorch CSV")
      ->allow_extra_args(false);
}

std::vector<ScheduleChoice> ScheduleFlags::Load() const {
  std::vector<ScheduleChoice> choices;
  for (const std::string& name : names) choices.push_back(NamedSchedule(name));
  for (const std::string& file : files) choices.push_back(ScheduleFromFile(file));
  if (!choices.empty()) return choices;
  for (const ScheduleInfo& info : AllSchedules()) choices.push_back(NamedSchedule(info.name));
  return choices;
}

ScheduleChoice ScheduleFlags::LoadOne() const {
  if (names.size() + files.size() != 1) {
    throw InputError(empty() ? "no schedule is given" : "more than one schedule is given",
                     "give one --schedule NAME (`spiritlevel schedules` lists them) or one "
                     "--schedule-file FILE");
  }
  return Load().front();
}

std::vector<std::string> InputFiles(const LoadedScenario& scenario,
                                    const ScheduleFlags& schedules) {
  std::vector<std::string> files = scenario.files;
  files.insert(files.end(), schedules.files.begin(), schedules.files.end());
  return files;
}

}  // namespace spiritlevel
