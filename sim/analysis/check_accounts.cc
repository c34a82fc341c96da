#include <algorithm>
#include <numeric>
#include <string_view>

#include "sim/analysis/check_timeline.h"

namespace spiritlevel {
namespace {

bool OnComputeLane(const Event& e) {
  return e.kind != NodeKind::kSend && e.kind != NodeKind::kReceive;
}

bool IsBusy(const Event& e) { return e.kind == NodeKind::kOp || e.kind == NodeKind::kPair; }

// Recomputed from the events of the first iteration alone.
struct Recount {
  TimeNs makespan = 0;
  std::vector<TimeNs> busy;
};

Recount CountFirstIteration(std::span<const Event> events, size_t ranks, FindingList& findings) {
  Recount recount{.makespan = 0, .busy = std::vector<TimeNs>(ranks)};
  int32_t first = std::numeric_limits<int32_t>::max();
  for (const Event& e : events) first = std::min(first, e.iteration);
  TimeNs begin = std::numeric_limits<TimeNs>::max();
  TimeNs end = std::numeric_limits<TimeNs>::min();
  for (const Event& e : events) {
    if (e.iteration != first || !OnComputeLane(e)) continue;
    // Before its first op a rank may be launching it or waiting for its input: both count.
    begin = std::min({begin, e.ready, e.start});
    end = std::max(end, e.end);
    if (!IsBusy(e)) continue;
    if (e.rank < 0 || static_cast<size_t>(e.rank) >= ranks) {
      findings.Add("accounts", [&] {
        return fmt::format("rank {} runs {}, but the accounts are of {} ranks", e.rank,
                           ToString(e.op), ranks);
      });
      continue;
    }
    recount.busy[e.rank] += e.end - e.start;
  }
  if (begin <= end) recount.makespan = end - begin;
  return recount;
}

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

std::vector<Finding> CheckAccounts(std::span<const Event> events, const StallReport& report) {
  FindingList findings;
  const size_t ranks = report.busy.size();
  if (report.stalls.size() != ranks || ranks == 0) {
    findings.Add("accounts", [&] {
      return fmt::format("busy time of {} ranks, stalls of {}", ranks, report.stalls.size());
    });
    return findings.Take();
  }
  const Recount recount = CountFirstIteration(events, ranks, findings);
  Compare("the makespan", report.makespan, recount.makespan, findings);
  for (size_t rank = 0; rank < ranks; ++rank) {
    CheckRank(rank, report, recount.busy[rank], findings);
  }
  return findings.Take();
}

}  // namespace spiritlevel
