// Figures of a run of several iterations, by one rule for predicted and measured timelines.
//
//   const std::vector<IterationFigures> all = FiguresByIteration(program, timeline);
//   all[0].step;         // of a measured run, a cold one
//   MedianOf(all);
//
// The last iteration has no next one to be told from, so it has no figures.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "sim/memory.h"
#include "sim/op.h"
#include "sim/program.h"
#include "sim/timeline.h"

namespace spiritlevel {

struct IterationFigures {
  // From a rank's first op to its first op one iteration later, the largest over ranks.
  TimeNs step = 0;
  // Of these times, summed over ranks, the share in which no op runs; the tail is idle, too.
  double idle_share = 0;
  double bubble_rate = 0;            // (largest rank span - largest busy time) / largest rank span
  TimeNs exposed_communication = 0;  // waited for while on its way, sum over ranks

  friend bool operator==(const IterationFigures&, const IterationFigures&) = default;
};

std::vector<IterationFigures> FiguresByIteration(const Program& program, const Timeline& timeline);

// From a rank's first op of iteration `first` to its first op of `last`, the largest over ranks.
// Dropped ops are none.
TimeNs TimeBetween(const Program& program, const Timeline& timeline, int first, int last);

// Each figure by itself; halves of times rounded up. Of nothing, zeros.
IterationFigures MedianOf(std::span<const IterationFigures> figures);

// One iteration of `timeline` as if it were the only one, counted from the first instant at which
// a rank was free for it. `one` is `program` lowered with one iteration; no version is rejected.
Timeline OneIteration(const Program& program, const Timeline& timeline, int iteration,
                      const Program& one);

// How long an op took, wherever it ran in the iterations [first, end). Ops of F&B pairs, which have
// no time of their own, are left out; parts of one op are summed.
struct PassSample {
  int stage = 0;
  Pass pass = Pass::kF;
  TimeNs duration = 0;
};
std::vector<PassSample> PassSamples(const Program& program, const Timeline& timeline, int first,
                                    int end);

// The most live memory of a rank at any time: by the costs, and as the timeline has it (of a
// measured one, what the works' own meters counted).
struct PeakMemory {
  Bytes ledger = 0;
  Bytes live = 0;
  // Of the ledger, the most of each category between nodes, each at its own instant: inside a pass
  // bytes change their use as it goes along.
  MemoryByCategory most{};
};
// By rank.
std::vector<PeakMemory> PeaksByRank(const Program& program, const Timeline& timeline);

// The most micro-batches of a rank's stages between two ops: those that wait for B or BW, and those
// that wait for W by itself; of the fullest rank. As a work counts what it has kept.
struct MostWaiting {
  int for_b = 0;
  int for_w = 0;
};
MostWaiting MostWaitingOf(const Program& program);

// The smallest value that `share` of all do not pass; 0 of nothing.
TimeNs QuantileOf(std::vector<TimeNs> values, double share);
TimeNs MedianOf(std::vector<TimeNs> values);  // halves rounded up

// How far values lie apart: from the lower quartile to the upper one, over the median.
double SpreadOf(const std::vector<TimeNs>& values);
TimeNs BetweenQuartiles(const std::vector<TimeNs>& values);

// Leading iterations that are not like those behind them: always the first, which finds caches,
// pages and branch predictors cold, and each behind it that takes `threshold` longer than the
// median of all that follow.
int ColdIterations(std::span<const IterationFigures> figures, double threshold = 0.05);

}  // namespace spiritlevel
