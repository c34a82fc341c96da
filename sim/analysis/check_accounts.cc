#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "sim/analysis/check_timeline.h"

namespace spiritlevel {
namespace {

bool OnComputeLane(const Event& e) {
  return e.kind != NodeKind::kSend && e.kind != NodeKind::kReceive;
}

bool IsBusy(const Event& e) { return RunsOps(e.kind); }

void Compare(std::string_view what, TimeNs stated, TimeNs counted, FindingList& findings) {
  if (stated == counted) return;
  findings.Add("accounts", [&] {
    return fmt::format("{} is {} ns by the accounts and {} ns by the events", what, stated,
                       counted);
  });
}

void CheckRank(size_t rank, const StallReport& report, TimeNs busy, FindingList& findings) {
  Compare(fmt::format("rank {}: busy time", rank), report.busy[rank], busy, findings);
  const StallsByCategory& stalls = report.stalls[rank];
  for (int c = 0; c < kNumStallCategories; ++c) {
    if (stalls[c] >= 0) continue;
    findings.Add("accounts", [&] {
      return fmt::format("rank {}: {} ns of {} stalls", rank, stalls[c],
                         Name(static_cast<StallCategory>(c)));
    });
  }
  const TimeNs idle = std::accumulate(stalls.begin(), stalls.end(), TimeNs{0});
  if (report.busy[rank] + idle == report.makespan) return;
  findings.Add("accounts", [&] {
    return fmt::format("rank {}: busy {} ns + stalls {} ns = {} ns, but the makespan is {} ns",
                       rank, report.busy[rank], idle, report.busy[rank] + idle, report.makespan);
  });
}

}  // namespace

void AccountsChecker::Add(const Event& event) {
  if (!OnComputeLane(event) || event.rank < 0 || event.iteration > first_iteration_) return;
  if (event.iteration < first_iteration_) *this = AccountsChecker();  // an earlier one after all
  first_iteration_ = event.iteration;
  // Before its first op a rank may be launching it or waiting for its input: both count.
  begin_ = std::min({begin_, event.ready, event.start});
  end_ = std::max(end_, event.end);
  const size_t rank = static_cast<size_t>(event.rank);
  if (busy_.size() <= rank) busy_.resize(rank + 1);
  if (IsBusy(event)) busy_[rank] += event.end - event.start;
}

std::vector<Finding> AccountsChecker::Finish(const StallReport& report) const {
  FindingList findings;
  const size_t ranks = report.busy.size();
  if (report.stalls.size() != ranks || ranks == 0) {
    findings.Add("accounts", [&] {
      return fmt::format("busy time of {} ranks, stalls of {}", ranks, report.stalls.size());
    });
    return findings.Take();
  }
  if (busy_.size() > ranks) {
    findings.Add("accounts", [&] {
      return fmt::format("{} ranks run, but the accounts are of {} ranks", busy_.size(), ranks);
    });
  }
  Compare("the makespan", report.makespan, begin_ <= end_ ? end_ - begin_ : 0, findings);
  for (size_t rank = 0; rank < ranks; ++rank) {
    CheckRank(rank, report, rank < busy_.size() ? busy_[rank] : 0, findings);
  }
  return findings.Take();
}

std::vector<Finding> CheckAccounts(std::span<const Event> events, const StallReport& report) {
  AccountsChecker checker;
  for (const Event& event : events) checker.Add(event);
  return checker.Finish(report);
}

}  // namespace spiritlevel
