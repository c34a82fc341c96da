// Figures of a Result that more than one report shows.
#pragma once

#include <optional>
#include <string>

#include "report/result.h"

namespace spiritlevel {

// It ran and the checker found nothing.
bool Ran(const Result& result);

// 1F1B of the comparison, if it ran.
const Result* Baseline(const Comparison& comparison);

// How many times as fast as 1F1B, by step; nothing where one of the two did not run.
std::optional<double> SpeedUp(const Result& result, const Comparison& comparison);

// The most that any schedule could gain over 1F1B: no rank can be done before its own work is.
std::optional<double> LargestSpeedUp(const Comparison& comparison);

Bytes PeakBytes(const Summary& summary);  // of the fullest rank

bool HasLimit(const Comparison& comparison);
// "8 GiB", or "2 GiB to 8 GiB, by rank"; of a comparison that has one.
std::string LimitWords(const Comparison& comparison);
// The rank that is farthest over its limit, or nearest to it; without limits the fullest.
int TightestRank(const Summary& summary, const Comparison& comparison);
// What the tightest rank lacks: no more than 0 where all fit. Of a comparison that has limits.
Bytes MissingBytes(const Summary& summary, const Comparison& comparison);
Bytes LimitOf(const Comparison& comparison, int rank);  // of one that has limits

TimeNs SumOfStalls(const Summary& summary, StallCategory category);  // over ranks
TimeNs MeanStall(const Summary& summary, StallCategory category);    // a rank
TimeNs MeanBusy(const Summary& summary);                             // a rank
// Share of ranks x makespan; over all categories they sum to the bubble fraction.
double StallShare(const Summary& summary, StallCategory category);

// "0.04", "24.3": percent, never fewer than two digits that count.
std::string GapNumber(const Certificate& certificate);

// How to call it where it is read alone: "dependency"; "the tail (step, barrier, sums of
// gradients)" for what its name alone would blame on the optimizer.
std::string Words(StallCategory category);

// It holds weight gradients back (a BW, or a W right after its B, counts one at a time), so that
// what it gains depends on B and W really being separate.
bool DefersWeightGrads(const Summary& summary);

}  // namespace spiritlevel
