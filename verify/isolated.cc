#include "verify/isolated.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/cores.h"
#include "sim/schedule.h"
#include "verify/clock.h"
#include "verify/isolated_parts.h"

namespace spiritlevel {
namespace {

constexpr int kTimedInARow = 2;

TimeNs Quantile(std::vector<TimeNs> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  return values[at];
}

// What all ranks' threads share.
struct Shared {
  Shared(const Program& placement_in, const WorkFactory& make_work_in,
         const IsolatedOptions& options_in, std::vector<std::vector<int>> turns_in)
      : placement(placement_in),
        make_work(make_work_in),
        options(options_in),
        turns(std::move(turns_in)),
        busy(turns.size()),
        gate(placement_in.num_ranks()),
        contributions(static_cast<size_t>(placement_in.num_ranks())) {
    times.passes.resize(static_cast<size_t>(placement.num_stages()));
    times.sums.resize(times.passes.size());
    for (int rank = 0; rank < placement.num_ranks(); ++rank) {
      for (const int stage : placement.stages_of(rank)) twins[stage][rank];
    }
    for (auto* of_ranks : {&times.steps, &times.contributions, &times.combinations}) {
      of_ranks->resize(static_cast<size_t>(placement.num_ranks()));
    }
  }

  const Program& placement;
  const WorkFactory& make_work;
  const IsolatedOptions& options;
  const std::vector<std::vector<int>> turns;    // ranks that compute at the same time
  std::vector<std::atomic<int>> busy;           // by turn: ranks with passes left to time
  std::barrier<> gate;                          // for all ranks
  std::vector<Payload> contributions;           // by rank
  std::map<int, std::map<int, Payload>> twins;  // by stage, then rank; all keys are there at once
  std::atomic<bool> stopping{false};
  bool over = false;  // set by rank 0 between two gates
  TimeNs begin = Now();
  std::mutex mutex;  // of what stands below
  IsolatedTimes times;
  std::exception_ptr error;
};

class RankTimer {
 public:
  RankTimer(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  // Whatever goes wrong is kept; the thread goes through the gates with the others all the same.
  void Run() {
    Try([&] {
      const std::vector<int>& cores = shared_.options.cores;
      if (!cores.empty()) cpu::PinThisThread({cores[static_cast<size_t>(rank_)]});
      SleepPrecisely();
      work_ = shared_.make_work({.program = shared_.placement,
                                 .rank = rank_,
                                 .replica = 0,
                                 .replicas = 1,
                                 .stopping = shared_.stopping});
      FindNodes();
    });
    for (iteration_ = 0; !shared_.over; ++iteration_) Cycle();
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

  void Cycle() {
    for (size_t turn = 0; turn < shared_.turns.size(); ++turn) {
      const std::vector<int>& ranks = shared_.turns[turn];
      const bool mine = std::find(ranks.begin(), ranks.end(), rank_) != ranks.end();
      if (rank_ == 0) shared_.busy[turn] = static_cast<int>(ranks.size());
      shared_.gate.arrive_and_wait();
      if (mine) RunPasses(shared_.busy[turn]);
      shared_.gate.arrive_and_wait();
    }
    const std::span<const int> stages = shared_.placement.stages_of(rank_);
    InTurns([&] {
      for (const int stage : stages) GiveTwin(stage);
    });
    InTurns([&] {
      for (const int stage : stages) SumTwins(stage);
      Contribute();
    });
    InTurns([&] { Step(); });
    if (rank_ == 0) shared_.over = IsOver();
    shared_.gate.arrive_and_wait();
  }

  template <class What>
  void InTurns(const What& what) {
    for (const std::vector<int>& ranks : shared_.turns) {
      const bool mine = std::find(ranks.begin(), ranks.end(), rank_) != ranks.end();
      if (mine) Try(what);
      shared_.gate.arrive_and_wait();
    }
  }

  bool IsOver() {
    if (shared_.options.stop != nullptr && *shared_.options.stop) shared_.stopping = true;
    if (iteration_ > 0) shared_.times.cycles = iteration_;
    if (shared_.stopping) return true;
    if (iteration_ == 0) shared_.begin = Now();
    return iteration_ >= shared_.options.least_cycles &&
           Now() - shared_.begin >= shared_.options.budget;
  }

  void FindNodes() {
    for (NodeId id = shared_.placement.rank_begin(rank_); id < shared_.placement.rank_end(rank_);
         ++id) {
      const NodeKind kind = shared_.placement.nodes()[id].kind;
      if (kind == NodeKind::kCollective) barrier_ = id;
      if (kind == NodeKind::kOptimizer) step_ = id;
    }
    SPIRITLEVEL_CHECK(barrier_ != kNone && step_ != kNone, "a placement has a barrier");
  }

  // Runs have one kind of backward or hardly change between them, and a meter keeps the blocks that
  // were used last: behind a change blocks of other sizes are asked for, whose pages are new. So
  // each kind runs for a while, and the first time does not count.
  void RunPasses(std::atomic<int>& busy) {
    Try([&] {
      for (const bool split : {true, false}) {
        for (int turn = 0; turn <= kTimedInARow; ++turn) {
          const std::span<const int> stages = shared_.placement.stages_of(rank_);
          if (shared_.options.alternates) {
            RunAll(stages, split, /*counts=*/turn > 0);
            continue;
          }
          for (size_t i = 0; i < stages.size(); ++i) {
            RunAll(stages.subspan(i, 1), split, /*counts=*/turn > 0);
          }
        }
      }
    });
    --busy;
    // Others are still timed, and are to be so beside a rank that computes.
    Try([&] {
      while (busy > 0 && !shared_.stopping) {
        const int stage = shared_.placement.stages_of(rank_).front();
        Time(stage, 0, Pass::kF, InputOf(stage), false);
        RunBackward(stage, 0, Pass::kBW, false);
      }
    });
  }

  void RunAll(std::span<const int> stages, bool split, bool counts) {
    const auto for_each = [&](const auto& run) {
      for (int i = 0; i < kMicroBatchesInFlight; ++i) {
        for (const int stage : stages) run(stage, i);
      }
    };
    for_each([&](int stage, int i) { Time(stage, i, Pass::kF, InputOf(stage), counts); });
    for_each(
        [&](int stage, int i) { RunBackward(stage, i, split ? Pass::kB : Pass::kBW, counts); });
    if (split) for_each([&](int stage, int i) { Time(stage, i, Pass::kW, {}, counts); });
  }

  void RunBackward(int stage, int micro_batch, Pass pass, bool counts) {
    Time(stage, micro_batch, pass,
         numbers_.Fill(shared_.options.output_bytes[static_cast<size_t>(stage)]), counts);
  }

  Payload InputOf(int stage) {
    return numbers_.Fill(shared_.options.input_bytes[static_cast<size_t>(stage)]);
  }

  void Time(int stage, int micro_batch, Pass pass, Payload input, bool counts) {
    OpCall call{
        .op = {.micro_batch = micro_batch, .stage = static_cast<uint16_t>(stage), .pass = pass},
        .iteration = iteration_,
        .input = std::move(input)};
    call.node = shared_.placement.rank_begin(rank_);
    call.start = Now();
    const Payload output = work_->RunOp(call);
    const TimeNs took = Now() - call.start;
    work_->TakePeakBytes();
    if (counts && iteration_ > 0) {
      Keep(shared_.times.passes[static_cast<size_t>(stage)][static_cast<size_t>(pass)], took);
    }
  }

  void Keep(std::vector<TimeNs>& values, TimeNs took) {
    const std::lock_guard lock(shared_.mutex);  // DualPipe's stages are timed on two ranks
    values.push_back(took);
  }

  SumCall Barrier() const {
    return {.node = barrier_,
            .kind = NodeKind::kCollective,
            .iteration = iteration_,
            .member = rank_,
            .num_members = shared_.placement.num_ranks()};
  }

  SumCall TwinSum(int stage) const {
    return {.node = barrier_,
            .kind = NodeKind::kTwinSum,
            .iteration = iteration_,
            .stage = stage,
            .member = 0,
            .num_members = 2};
  }

  void GiveTwin(int stage) {
    const TimeNs start = Now();
    Payload mine = work_->Contribute(TwinSum(stage));
    giving_[stage] = Now() - start;
    const std::lock_guard lock(shared_.mutex);
    shared_.twins[stage][rank_] = std::move(mine);
  }

  // With the other rank's where there is one, so that both have the same bits; else with itself.
  void SumTwins(int stage) {
    const std::map<int, Payload>& given = shared_.twins.at(stage);
    const std::array<std::span<const std::byte>, 2> both = {given.begin()->second.bytes(),
                                                            given.rbegin()->second.bytes()};
    const TimeNs start = Now();
    work_->Combine(TwinSum(stage), both);
    if (iteration_ == 0) return;
    Keep(shared_.times.sums[static_cast<size_t>(stage)], giving_[stage] + Now() - start);
  }

  void Contribute() {
    const TimeNs start = Now();
    shared_.contributions[static_cast<size_t>(rank_)] = work_->Contribute(Barrier());
    if (iteration_ == 0) return;
    Keep(shared_.times.contributions[static_cast<size_t>(rank_)], Now() - start);
  }

  void Step() {
    std::vector<std::span<const std::byte>> all;
    for (const Payload& each : shared_.contributions) all.push_back(each.bytes());
    const TimeNs start = Now();
    work_->Combine(Barrier(), all);
    const TimeNs combined = Now();
    work_->StepOptimizer({.node = step_, .iteration = iteration_, .start = combined});
    const TimeNs end = Now();
    work_->TakePeakBytes();
    if (iteration_ == 0) return;
    Keep(shared_.times.combinations[static_cast<size_t>(rank_)], combined - start);
    Keep(shared_.times.steps[static_cast<size_t>(rank_)], end - combined);
  }

  Shared& shared_;
  const int rank_;
  std::shared_ptr<RankWork> work_;
  NodeId barrier_ = kNone;
  NodeId step_ = kNone;
  int iteration_ = 0;
  std::map<int, TimeNs> giving_;  // by stage: what its part in the sum of twins took
  SmallNumbers numbers_;
};

}  // namespace

TimeNs IsolatedTimes::MedianOf(int stage, Pass pass) const {
  return Quantile(passes[static_cast<size_t>(stage)][static_cast<size_t>(pass)], 0.5);
}

double IsolatedTimes::SpreadOf(int stage, Pass pass) const {
  const auto& values = passes[static_cast<size_t>(stage)][static_cast<size_t>(pass)];
  const size_t in_a_cycle = cycles == 0 ? 0 : values.size() / static_cast<size_t>(cycles);
  if (in_a_cycle == 0) return 0;
  std::vector<TimeNs> medians;
  for (auto begin = values.begin(); values.end() - begin >= std::ssize(values) / cycles;
       begin += static_cast<std::ptrdiff_t>(in_a_cycle)) {
    medians.push_back(Quantile({begin, begin + static_cast<std::ptrdiff_t>(in_a_cycle)}, 0.5));
  }
  const TimeNs median = Quantile(medians, 0.5);
  if (median == 0) return 0;
  return static_cast<double>(Quantile(medians, 0.75) - Quantile(medians, 0.25)) /
         static_cast<double>(median);
}

IsolatedTimes TimeInIsolation(const Program& placement, const WorkFactory& make_work,
                              const IsolatedOptions& options) {
  const auto stages = static_cast<size_t>(placement.num_stages());
  SPIRITLEVEL_CHECK(options.input_bytes.size() == stages && options.output_bytes.size() == stages,
                    "each stage has an input and an output");
  SPIRITLEVEL_CHECK(placement.num_micro_batches() >= kMicroBatchesInFlight,
                    "a few micro-batches in flight");
  const TimeNs begin = Now();
  Shared shared(placement, make_work, options, TurnsOf(placement.num_ranks(), options.cores));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    threads.emplace_back([&shared, rank] { RankTimer(shared, rank).Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  if (shared.error) std::rethrow_exception(shared.error);
  if (shared.stopping) throw InputError("interrupted while kernels were timed", "run it again");
  shared.times.seconds = static_cast<double>(Now() - begin) * 1e-9;
  return std::move(shared.times);
}

Program PlacementProgram(const std::vector<std::vector<int>>& stages_of, const Costs& costs,
                         Tail tail, bool twins) {
  Orders orders(stages_of.size());
  for (size_t rank = 0; rank < stages_of.size(); ++rank) {
    for (int i = 0; i < costs.num_micro_batches(); ++i) {
      const auto add = [&](int stage, Pass pass) {
        orders[rank].push_back(
            {.micro_batch = i, .stage = static_cast<uint16_t>(stage), .pass = pass});
      };
      const std::vector<int>& all = stages_of[rank];
      const std::vector<int> one = {all[static_cast<size_t>(i) % all.size()]};
      const std::vector<int>& stages = twins ? one : all;
      for (const int stage : stages) add(stage, Pass::kF);
      for (size_t k = stages.size(); k-- > 0;) add(stages[k], Pass::kBW);
    }
  }
  return Lower(Schedule(orders), costs, {.tail = tail, .iterations = 1});
}

}  // namespace spiritlevel
