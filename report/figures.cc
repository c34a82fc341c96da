#include "report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "report/text.h"

namespace spiritlevel {
namespace {

int64_t Ranks(const Summary& summary) { return static_cast<int64_t>(summary.stalls.busy.size()); }

}  // namespace

bool Ran(const Result& result) { return result.summary.has_value() && result.valid; }

const Result* Baseline(const Comparison& comparison) {
  const std::optional<Result>& base = comparison.one_f_one_b;
  return base && base->summary ? &*base : nullptr;
}

std::optional<double> SpeedUp(const Result& result, const Comparison& comparison) {
  const Result* base = Baseline(comparison);
  if (base == nullptr || !result.summary || result.summary->step == 0) return {};
  return static_cast<double>(base->summary->step) / static_cast<double>(result.summary->step);
}

std::optional<double> LargestSpeedUp(const Comparison& comparison) {
  const Result* base = Baseline(comparison);
  if (base == nullptr || comparison.work_per_rank <= 0) return {};
  return static_cast<double>(base->summary->step) / static_cast<double>(comparison.work_per_rank);
}

Bytes PeakBytes(const Summary& summary) {
  return summary.peak_bytes[static_cast<size_t>(summary.fullest_rank())];
}

bool HasLimit(const Comparison& comparison) {
  return comparison.memory_limit.has_value() || !comparison.rank_limits.empty();
}

std::string LimitWords(const Comparison& comparison) {
  if (comparison.memory_limit) return FormatMemory(*comparison.memory_limit);
  const auto [least, most] =
      std::minmax_element(comparison.rank_limits.begin(), comparison.rank_limits.end());
  return fmt::format("{} to {}, by rank", FormatMemory(*least), FormatMemory(*most));
}

Bytes LimitOf(const Comparison& comparison, int rank) {
  return comparison.memory_limit ? *comparison.memory_limit
                                 : comparison.rank_limits[static_cast<size_t>(rank)];
}

int TightestRank(const Summary& summary, const Comparison& comparison) {
  if (comparison.rank_limits.empty()) return summary.fullest_rank();
  int tightest = 0;
  Bytes most = 0;
  for (int rank = 0; rank < static_cast<int>(summary.peak_bytes.size()); ++rank) {
    const Bytes missing = summary.peak_bytes[static_cast<size_t>(rank)] - LimitOf(comparison, rank);
    if (rank > 0 && missing <= most) continue;
    tightest = rank;
    most = missing;
  }
  return tightest;
}

Bytes MissingBytes(const Summary& summary, const Comparison& comparison) {
  const int rank = TightestRank(summary, comparison);
  return summary.peak_bytes[static_cast<size_t>(rank)] - LimitOf(comparison, rank);
}

TimeNs SumOfStalls(const Summary& summary, StallCategory category) {
  TimeNs sum = 0;
  for (const StallsByCategory& rank : summary.stalls.stalls) {
    sum += rank[static_cast<size_t>(category)];
  }
  return sum;
}

TimeNs MeanStall(const Summary& summary, StallCategory category) {
  return DivideHalfUp(SumOfStalls(summary, category), Ranks(summary));
}

TimeNs MeanBusy(const Summary& summary) {
  const std::vector<TimeNs>& busy = summary.stalls.busy;
  return DivideHalfUp(std::accumulate(busy.begin(), busy.end(), TimeNs{0}), Ranks(summary));
}

double StallShare(const Summary& summary, StallCategory category) {
  if (summary.makespan == 0) return 0;
  return static_cast<double>(SumOfStalls(summary, category)) /
         (static_cast<double>(summary.makespan) * static_cast<double>(Ranks(summary)));
}

std::string GapNumber(const Certificate& certificate) {
  const double percent = 100 * certificate.gap;
  return percent < 9.995 ? fmt::format("{:.2f}", percent) : fmt::format("{:.1f}", percent);
}

std::string Words(StallCategory category) {
  if (category == StallCategory::kOptimizer) return "the tail (step, barrier, sums of gradients)";
  return std::string(Name(category));
}

bool DefersWeightGrads(const Summary& summary) { return summary.peak_waiting_w > 1; }

}  // namespace spiritlevel
