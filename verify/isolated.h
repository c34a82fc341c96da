// Isolated times: how long each pass takes by itself, before any schedule is run.
//
//   const IsolatedTimes times = TimeInIsolation(placement, ModelWorks(task), {.cores = {0, 1}});
//   ModelCosts(task, TimesOf(times));
//
// A pass is called exactly as in a run, by the same code on the same cores, and nothing else is the
// same: no schedule, no message from another rank, no wait. All ranks compute at the same time, as
// they do in a run, so that what they take from each other (caches, the way to memory, clock) is in
// the numbers. Where there are more ranks than cores, as many as there are cores take turns.
//
// What each rank does, again and again: of each of its stages F of two micro-batches, B and W of
// these, a few times; the same with BW; sums of gradients; then the optimizer step. The first time
// of each pays for pages and caches and does not count. A rank that is done before others goes on
// with passes that nobody times.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "sim/op.h"
#include "sim/program.h"
#include "verify/run.h"
#include "verify/work.h"

namespace spiritlevel {

struct IsolatedOptions {
  std::vector<int> cores{};                 // by rank; ranks on one core take turns
  int least_cycles = 5;                     // that count
  TimeNs budget = 5'000'000'000;            // after the least, for as many as fit
  std::vector<Bytes> input_bytes{};         // by stage: of what F is given; 0 where nothing
  std::vector<Bytes> output_bytes{};        // by stage: of the gradient that B is given
  const std::atomic<bool>* stop = nullptr;  // when it turns true, InputError
  // A rank goes from one of its stages to the next with every pass, as DualPipe's do, and not when
  // it is through with one: more of its parameters are then in use than a cache may hold.
  bool alternates = false;
};

struct IsolatedTimes {
  // By stage, then by pass: each one that counts.
  std::vector<std::array<std::vector<TimeNs>, kNumPasses>> passes;
  std::vector<std::vector<TimeNs>> steps;  // by rank: the optimizer step of all its stages
  // By rank: what it adds to the barrier before the step, and what it makes of what all have added.
  std::vector<std::vector<TimeNs>> contributions;
  std::vector<std::vector<TimeNs>> combinations;
  // By stage: a sum of two copies of its gradients, each rank's part of it.
  std::vector<std::vector<TimeNs>> sums;
  int cycles = 0;
  double seconds = 0;

  TimeNs MedianOf(int stage, Pass pass) const;
  // Of the medians of single cycles, between their quartiles, over the median: whether the machine
  // held still. One pass more or less does not change it.
  double SpreadOf(int stage, Pass pass) const;
};

// Micro-batches of a stage that are between F and B at the same time, so that what B reads is not
// still in the cache from F.
inline constexpr int kMicroBatchesInFlight = 2;

// `placement` says which rank holds which stage: a Program with a barrier and one iteration, and
// has kMicroBatchesInFlight micro-batches at least.
IsolatedTimes TimeInIsolation(const Program& placement, const WorkFactory& make_work,
                              const IsolatedOptions& options);

// A Program for it: every rank runs one micro-batch after the other through the stages that it
// holds. `stages_of` by rank. Where they are `twins`, each stage is on two ranks, and a rank's
// micro-batches take turns in its stages.
Program PlacementProgram(const std::vector<std::vector<int>>& stages_of, const Costs& costs,
                         Tail tail = Tail::kBarrier, bool twins = false);

// What the runtime itself takes, with passes that compute nothing.
struct RuntimeTimes {
  TimeNs launch = 0;   // from the end of an op to the start of the next, which waits for nothing
  TimeNs hop = 0;      // from the end of an op to when what it sent may be read
  TimeNs barrier = 0;  // from the last rank's op to the first start of a step behind a barrier
};
RuntimeTimes TimeRuntime(int ranks, Bytes message, const RunOptions& options);

// FLOPs a second of a large fp32 matrix product on one core, while all of `cores` compute one: the
// best of several sizes and repetitions.
double TimeBestGemm(const std::vector<int>& cores);

}  // namespace spiritlevel
