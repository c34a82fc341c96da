#include "verify/isolated_tail.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/cores.h"
#include "verify/clock.h"
#include "verify/isolated_parts.h"
#include "verify/model_costs.h"
#include "verify/model_work.h"

namespace spiritlevel {
namespace {

constexpr double kDistantThreshold = 1e6;
constexpr float kBeyondIt = 1e9f;
// A budget ends it sooner; faults are told before a run begins.
constexpr int kMostCycles = 1000;

std::vector<GradientFault> EverySecond(const TrainingTask& task) {
  std::vector<GradientFault> faults;
  for (int cycle = 0; cycle <= kMostCycles; ++cycle) {
    faults.push_back(FaultBehindAll(task, 2 * cycle + 1));
  }
  return faults;
}

// What all ranks' threads share.
struct Shared {
  Shared(const TrainingTask& task, const std::vector<std::vector<int>>& stages_of,
         const IsolatedOptions& options_in)
      : program(PlacementProgram(stages_of, ModelCosts(task, {}, {.keeps_snapshot = true}),
                                 Tail::kSpeculativeValidation)),
        make_work(
            ModelWorks(task, {.make_tail = TransactionalTails(task, {.faults = EverySecond(task)},
                                                              MakePrefixTable(task))})),
        options(options_in),
        turns(TurnsOf(program.num_ranks(), options_in.cores)),
        gate(program.num_ranks()),
        contributions(static_cast<size_t>(program.num_ranks())) {
    for (auto* of_ranks :
         {&times.contributions, &times.steps, &times.settlements, &times.rollbacks}) {
      of_ranks->resize(static_cast<size_t>(program.num_ranks()));
    }
  }

  const Program program;
  const WorkFactory make_work;
  const IsolatedOptions& options;
  const std::vector<std::vector<int>> turns;  // ranks that compute at the same time
  std::barrier<> gate;                        // for all ranks
  std::vector<Payload> contributions;         // by rank
  std::atomic<bool> stopping{false};
  bool over = false;  // set by rank 0 between two gates
  TimeNs begin = Now();
  TailTimes times;   // each rank writes what is its own
  std::mutex mutex;  // of what stands below
  std::exception_ptr error;
};

class RankTail {
 public:
  RankTail(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  // Whatever goes wrong is kept; the thread goes through the gates with the others all the same.
  void Run() {
    Try([&] {
      const std::vector<int>& cores = shared_.options.cores;
      if (!cores.empty()) cpu::PinThisThread({cores[static_cast<size_t>(rank_)]});
      SleepPrecisely();
      work_ = shared_.make_work({.program = shared_.program,
                                 .rank = rank_,
                                 .replica = 0,
                                 .replicas = 1,
                                 .stopping = shared_.stopping});
    });
    for (; !shared_.over; ++cycle_) {
      Iterate(/*is_rejected=*/false);
      Iterate(/*is_rejected=*/true);
      if (rank_ == 0) shared_.over = IsOver();
      shared_.gate.arrive_and_wait();
    }
    if (work_ != nullptr) work_->Abandon();
  }

 private:
  template <class What>
  void Try(const What& what) {
    if (shared_.stopping) return;
    try {
      what();
    } catch (...) {
      const std::lock_guard lock(shared_.mutex);
      if (!shared_.error) shared_.error = std::current_exception();
      shared_.stopping = true;
    }
  }

  template <class What>
  void InTurns(const What& what) {
    for (const std::vector<int>& ranks : shared_.turns) {
      if (std::find(ranks.begin(), ranks.end(), rank_) != ranks.end()) Try(what);
      shared_.gate.arrive_and_wait();
    }
  }

  bool IsOver() {
    if (shared_.options.stop != nullptr && *shared_.options.stop) shared_.stopping = true;
    shared_.times.cycles = cycle_;
    if (shared_.stopping || cycle_ == kMostCycles) return true;
    if (cycle_ == 0) shared_.begin = Now();
    return cycle_ >= shared_.options.least_cycles &&
           Now() - shared_.begin >= shared_.options.budget;
  }

  // Each piece is begun when all ranks have ended the one before, so all prefixes are known.
  void Iterate(bool is_rejected) {
    InTurns([&] {
      for (const int stage : shared_.program.stages_of(rank_)) RunPasses(stage);
    });
    InTurns([&] { Contribute(is_rejected); });
    InTurns([&] { Step(is_rejected); });
    InTurns([&] { Settle(is_rejected); });
    ++iteration_;
  }

  void RunPasses(int stage) {
    const auto place = static_cast<size_t>(stage);
    RunPass(stage, Pass::kF, numbers_.Fill(shared_.options.input_bytes[place]));
    RunPass(stage, Pass::kBW, numbers_.Fill(shared_.options.output_bytes[place]));
  }

  void RunPass(int stage, Pass pass, Payload input) {
    OpCall call{.node = shared_.program.rank_begin(rank_),
                .op = {.micro_batch = 0, .stage = static_cast<uint16_t>(stage), .pass = pass},
                .iteration = iteration_,
                .start = Now(),
                .input = std::move(input)};
    work_->RunOp(call);
    work_->TakePeakBytes();
  }

  SumCall Reduction() const {
    return {.node = shared_.program.reduction_node(rank_),
            .kind = NodeKind::kReduction,
            .iteration = iteration_,
            .member = rank_,
            .num_members = shared_.program.num_ranks()};
  }

  // The first cycle finds pages and caches cold.
  void Keep(std::vector<std::vector<TimeNs>>& times, TimeNs took, bool counts) {
    if (counts && cycle_ > 0) times[static_cast<size_t>(rank_)].push_back(took);
  }

  void Contribute(bool is_rejected) {
    const TimeNs start = Now();
    shared_.contributions[static_cast<size_t>(rank_)] = work_->Contribute(Reduction());
    Keep(shared_.times.contributions, Now() - start, !is_rejected);
  }

  void Step(bool is_rejected) {
    const TimeNs start = Now();
    work_->StepOptimizer({.node = kNone, .iteration = iteration_, .start = start});
    Keep(shared_.times.steps, Now() - start, !is_rejected);
  }

  void Settle(bool is_rejected) {
    std::vector<std::span<const std::byte>> all;
    for (const Payload& each : shared_.contributions) all.push_back(each.bytes());
    const TimeNs start = Now();
    work_->Combine(Reduction(), all);
    const bool is_right = work_->Validate(
        {.node = kNone, .iteration = iteration_ + 1, .judges = true, .rejected = is_rejected});
    SPIRITLEVEL_CHECK(is_right != is_rejected, "what is rejected is what a fault makes so");
    if (is_rejected) work_->RollBack({.node = kNone, .iteration = iteration_ + 1, .start = start});
    Keep(is_rejected ? shared_.times.rollbacks : shared_.times.settlements, Now() - start, true);
    work_->TakePeakBytes();
  }

  Shared& shared_;
  const int rank_;
  std::shared_ptr<RankWork> work_;
  int cycle_ = 0;
  int iteration_ = 0;
  SmallNumbers numbers_;
};

}  // namespace

TailTimes TimeTail(const TrainingTask& task, const std::vector<std::vector<int>>& stages_of,
                   const IsolatedOptions& options) {
  const auto stages = static_cast<size_t>(task.num_stages());
  SPIRITLEVEL_CHECK(options.input_bytes.size() == stages && options.output_bytes.size() == stages,
                    "each stage has an input and an output");
  TrainingTask small = WithDistantThreshold(task);
  small.micro_batches = 1;  // nothing that is timed hangs on how many there are
  Shared shared(small, stages_of, options);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shared.program.num_ranks(); ++rank) {
    threads.emplace_back([&shared, rank] { RankTail(shared, rank).Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  if (shared.error) std::rethrow_exception(shared.error);
  if (shared.stopping) throw InputError("interrupted while kernels were timed", "run it again");
  return std::move(shared.times);
}

TrainingTask WithDistantThreshold(TrainingTask task) {
  task.clip_norm = kDistantThreshold;
  return task;
}

GradientFault FaultBehindAll(const TrainingTask& task, int64_t iteration) {
  const ParameterNumbers numbers(task);
  const int last = task.num_stages() - 1;
  // Copies of a tied embedding have one gradient on two stages.
  int number = numbers.first_of(last);
  while (!numbers.counts_in_norm(number) || number == numbers.embedding()) ++number;
  SPIRITLEVEL_CHECK(number < numbers.end_of(last), "a stage has parameters of its own");
  return {.iteration = iteration,
          .stage = last,
          .parameter = number - numbers.first_of(last),
          .entry = 0,
          .value = kBeyondIt};
}

}  // namespace spiritlevel
