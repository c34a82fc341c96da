#include "report/verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace spiritlevel {
namespace {

double Relative(TimeNs value, TimeNs against) {
  return against == 0 ? 0 : static_cast<double>(value - against) / static_cast<double>(against);
}

double RangeOf(const std::vector<TimeNs>& values) {
  if (values.empty()) return 0;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const TimeNs median = MedianOf(values);
  return median == 0 ? 0 : static_cast<double>(*most - *least) / static_cast<double>(median);
}

std::vector<const VerifiedSchedule*> Counted(const Verification& verification) {
  std::vector<const VerifiedSchedule*> counted;
  for (const VerifiedSchedule& schedule : verification.schedules) {
    if (schedule.ran()) counted.push_back(&schedule);
  }
  return counted;
}

std::vector<std::string> NamesBy(const Verification& verification,
                                 const std::function<TimeNs(const VerifiedSchedule&)>& step) {
  std::vector<const VerifiedSchedule*> order = Counted(verification);
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto* a, const auto* b) { return step(*a) < step(*b); });
  std::vector<std::string> names;
  for (const VerifiedSchedule* schedule : order) names.push_back(schedule->schedule);
  return names;
}

}  // namespace

double VerifiedSchedule::step_error() const { return Relative(predicted.step, measured.step); }

double VerifiedSchedule::idle_difference() const {
  return predicted.idle_share - measured.idle_share;
}

double VerifiedSchedule::round_spread() const { return RangeOf(round_steps); }

double VerifiedSchedule::range() const { return RangeOf(steps); }

Bytes VerifiedSchedule::ledger_bytes() const {
  Bytes sum = 0;
  for (const VerifiedRank& rank : memory) sum += rank.peak.ledger;
  return sum;
}

std::optional<double> VerifiedSchedule::resident_ratio() const {
  if (!resident_bytes || ledger_bytes() == 0) return std::nullopt;
  return static_cast<double>(*resident_bytes) / static_cast<double>(ledger_bytes());
}

std::optional<bool> VerifiedSchedule::resident_within_bar() const {
  const std::optional<double> ratio = resident_ratio();
  if (!ratio) return std::nullopt;
  return std::abs(*ratio - 1) <= kResidentBar;
}

bool VerifiedRank::matches() const {
  return peak.live == peak.ledger && (!measured || *measured == peak.most);
}

bool VerifiedSchedule::memory_matches() const {
  return std::all_of(memory.begin(), memory.end(),
                     [](const VerifiedRank& rank) { return rank.matches(); });
}

OrderVerdict JudgeOrder(const Verification& verification) {
  OrderVerdict verdict;
  std::vector<const VerifiedSchedule*> order = Counted(verification);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->measured.step < b->measured.step;
  });
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t k = i + 1; k < order.size(); ++k) {
      if (order[i]->noisy() || order[k]->noisy()) continue;
      if (Relative(order[k]->measured.step, order[i]->measured.step) <= kLeastDifference) continue;
      ++verdict.pairs;
      if (order[i]->predicted.step < order[k]->predicted.step) continue;
      verdict.wrong.emplace_back(order[i]->schedule, order[k]->schedule);
    }
  }
  return verdict;
}

std::vector<std::string> OrderPredicted(const Verification& verification) {
  return NamesBy(verification, [](const VerifiedSchedule& s) { return s.predicted.step; });
}

std::vector<std::string> OrderMeasured(const Verification& verification) {
  return NamesBy(verification, [](const VerifiedSchedule& s) { return s.measured.step; });
}

std::string_view Name(BarVerdict verdict) {
  switch (verdict) {
    case BarVerdict::kNotRun:
      return "not run";
    case BarVerdict::kTooNoisy:
      return "too noisy";
    case BarVerdict::kWithin:
      return "within";
    case BarVerdict::kMissed:
      return "missed";
  }
  return "";
}

BarVerdict JudgeBar(const VerifiedSchedule& schedule, const Verification& verification) {
  if (!schedule.ran()) return BarVerdict::kNotRun;
  if (schedule.noisy()) return BarVerdict::kTooNoisy;
  const bool step =
      std::abs(schedule.step_error()) <= (verification.emulated ? kEmulatedStepBar : kStepBar);
  const bool idle = verification.emulated || std::abs(schedule.idle_difference()) <= kIdleBar;
  return step && idle ? BarVerdict::kWithin : BarVerdict::kMissed;
}

std::string BarInWords(const Verification& verification) {
  if (verification.emulated) return fmt::format("step within {:.0f} %", 100 * kEmulatedStepBar);
  return fmt::format("step within {:.0f} %, idle share within {:.0f} points", 100 * kStepBar,
                     100 * kIdleBar);
}

BarSummary SumUpBars(const Verification& verification) {
  BarSummary summary;
  for (const VerifiedSchedule& schedule : verification.schedules) {
    const BarVerdict verdict = JudgeBar(schedule, verification);
    if (verdict == BarVerdict::kWithin) summary.within.push_back(schedule.schedule);
    if (verdict == BarVerdict::kMissed) summary.missed.push_back(schedule.schedule);
    if (verdict == BarVerdict::kTooNoisy) summary.too_noisy.push_back(schedule.schedule);
    const std::optional<bool> resident = schedule.resident_within_bar();
    if (!resident) continue;
    (*resident ? summary.resident_within : summary.resident_missed).push_back(schedule.schedule);
  }
  return summary;
}

std::vector<std::string> WrongsOf(const VerifiedSchedule& schedule,
                                  const Verification& verification) {
  std::vector<std::string> wrongs;
  const auto add = [&](bool is_wrong, const char* what) {
    if (is_wrong) wrongs.emplace_back(what);
  };
  const std::optional<ValidationCost>& validation = schedule.validation;
  const bool has_failed = !schedule.failures.empty();
  const bool was_compared = schedule.gradients_equal.has_value();
  const bool need_not_be = verification.emulated || verification.interrupted || has_failed;
  add(has_failed, "failed");
  add(!schedule.findings.empty(), "illegal");
  add(schedule.gradients_equal == false, "gradients differ");
  add(schedule.ran() && !was_compared && !need_not_be, "gradients not compared");
  add(validation && validation->rollback_equal == false, "rolled back to other bits");
  add(!schedule.memory_matches() || (validation && !validation->memory_matches), "ledger differs");
  return wrongs;
}

bool IsRight(const Verification& verification) {
  return std::all_of(
      verification.schedules.begin(), verification.schedules.end(),
      [&](const VerifiedSchedule& schedule) { return WrongsOf(schedule, verification).empty(); });
}

}  // namespace spiritlevel
