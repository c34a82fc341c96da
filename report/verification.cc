#include "report/verification.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace spiritlevel {
namespace {

double Relative(TimeNs value, TimeNs against) {
  return against == 0 ? 0 : static_cast<double>(value - against) / static_cast<double>(against);
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

bool IsRight(const Verification& verification) {
  return std::all_of(verification.schedules.begin(), verification.schedules.end(),
                     [](const VerifiedSchedule& schedule) {
                       const bool rolls_back = !schedule.validation ||
                                               schedule.validation->rollback_equal.value_or(true);
                       return schedule.gradients_equal.value_or(true) && rolls_back &&
                              schedule.findings.empty();
                     });
}

}  // namespace spiritlevel
