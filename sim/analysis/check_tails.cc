#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "sim/analysis/check_records.h"

namespace spiritlevel::check {
namespace {

struct ByRankAndIteration {
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return std::tie(a.rank, a.iteration) < std::tie(b.rank, b.iteration);
  }
};

void CheckOptimizers(TimelineRecords& records, FindingList& findings) {
  std::vector<OptimizerRecord>& steps = records.optimizers;
  std::sort(steps.begin(), steps.end(), ByRankAndIteration{});
  // The op that ends last after the step has begun, if any. An op may stand behind the step on its
  // lane, so all ops are asked, not only those before it.
  std::vector<const OpRecord*> late(steps.size(), nullptr);
  for (const OpRecord& op : records.ops) {
    auto step = std::lower_bound(steps.begin(), steps.end(), op, ByRankAndIteration{});
    for (; step != steps.end() && !ByRankAndIteration{}(op, *step); ++step) {
      const OpRecord*& latest = late[static_cast<size_t>(step - steps.begin())];
      if (op.end > step->start && (latest == nullptr || op.end > latest->end)) latest = &op;
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (late[i] == nullptr) continue;
    findings.Add("early_optimizer", [&] {
      return fmt::format(
          "rank {}: the optimizer step of iteration {} starts at {} ns, but {} ends at {} ns",
          steps[i].rank, steps[i].iteration, steps[i].start, ToString(late[i]->op), late[i]->end);
    });
  }
}

using Members = std::vector<CollectiveRecord>::const_iterator;

void CheckCollective(Members begin, Members end, FindingList& findings) {
  const auto by_issue = [](const auto& a, const auto& b) { return a.issue < b.issue; };
  const auto last = std::max_element(begin, end, by_issue);
  for (Members member = begin; member != end; ++member) {
    if (member->end < last->issue) {
      findings.Add("collective", [&] {
        return fmt::format(
            "iteration {}: the collective ends on rank {} at {} ns, before rank {} joins at {} ns",
            member->iteration, member->rank, member->end, last->rank, last->issue);
      });
    } else if (member->end != begin->end) {
      findings.Add("collective", [&] {
        return fmt::format(
            "iteration {}: the collective ends on rank {} at {} ns and on rank {} at {} ns",
            member->iteration, begin->rank, begin->end, member->rank, member->end);
      });
    }
  }
}

void CheckCollectives(TimelineRecords& records, FindingList& findings) {
  std::vector<CollectiveRecord>& all = records.collectives;
  const auto key = [](const CollectiveRecord& c) { return std::tie(c.iteration, c.place); };
  std::sort(all.begin(), all.end(), [&](const CollectiveRecord& a, const CollectiveRecord& b) {
    return std::tie(a.iteration, a.place, a.rank) < std::tie(b.iteration, b.place, b.rank);
  });
  for (Members begin = all.cbegin(); begin != all.cend();) {
    const Members end = std::find_if(
        begin, all.cend(), [&](const CollectiveRecord& c) { return key(c) != key(*begin); });
    CheckCollective(begin, end, findings);
    begin = end;
  }
}

}  // namespace

void CheckTails(TimelineRecords& records, FindingList& findings) {
  CheckOptimizers(records, findings);
  CheckCollectives(records, findings);
}

}  // namespace spiritlevel::check
