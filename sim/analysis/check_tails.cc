#include "sim/analysis/check_tails.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <tuple>

namespace spiritlevel::check {
namespace {

// The ranks that take part in one iteration, ascending.
using Iteration = std::span<const RankIteration>;

bool RunsOps(const RankIteration& r) { return r.last_op != kNone; }
bool Steps(const RankIteration& r) { return r.steps > 0; }

// Each rank and iteration once, by iteration and rank.
void Merge(std::vector<RankIteration>& all) {
  const auto key = [](const RankIteration& r) { return std::tie(r.iteration, r.rank); };
  std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  size_t kept = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (kept > 0 && key(all[kept - 1]) == key(all[i])) {
      all[kept - 1].last_op = std::max(all[kept - 1].last_op, all[i].last_op);
      all[kept - 1].steps += all[i].steps;
    } else {
      all[kept++] = all[i];
    }
  }
  all.resize(kept);
}

// Runs of equal key in what is sorted by it.
template <class T, class Key>
std::vector<std::span<const T>> GroupBy(const std::vector<T>& sorted, Key key) {
  std::vector<std::span<const T>> groups;
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    while (end < sorted.size() && key(sorted[end]) == key(sorted[begin])) ++end;
    groups.push_back({sorted.data() + begin, end - begin});
  }
  return groups;
}

// Judges once everything is known.
class Tails {
 public:
  Tails(const std::vector<RankIteration>& all, LastTail last_tail, FindingList& findings)
      : iterations_(GroupBy(all, [](const RankIteration& r) { return r.iteration; })),
        findings_(findings) {
    const auto last = std::find_if(iterations_.rbegin(), iterations_.rend(), [](Iteration i) {
      return std::any_of(i.begin(), i.end(), RunsOps);
    });
    if (last_tail == LastTail::kMayBeCut && last != iterations_.rend() &&
        std::none_of(last->begin(), last->end(), Steps)) {
      cut_ = last->front().iteration;
    }
  }

  void CheckSteps() {
    for (const Iteration& iteration : iterations_) {
      for (const RankIteration& r : iteration) CheckSteps(r);
    }
  }

  void CheckCollectives(const std::vector<CollectiveMember>& members) {
    tails_.resize(iterations_.size(), 0);
    const auto key = [](const CollectiveMember& m) { return std::tie(m.iteration, m.id); };
    for (const Members& each : GroupBy(members, key)) {
      if (each.front().id < 0) {
        AddNameless(each);
        continue;
      }
      CheckRanks(each);
      CheckEnds(each);
      CheckPlaces(each);
    }
    CheckThatIterationsEndAlike();
  }

 private:
  using Members = std::span<const CollectiveMember>;  // of one collective, by rank

  // --- optimizer_count

  void CheckSteps(const RankIteration& r) {
    if (r.iteration == cut_ || r.steps == (RunsOps(r) ? 1 : 0)) return;
    findings_.Add("optimizer_count", [&] {
      if (r.steps == 0) {
        return fmt::format("rank {} has no optimizer step in iteration {}", r.rank, r.iteration);
      }
      if (RunsOps(r)) {
        return fmt::format("rank {} has {} optimizer steps in iteration {}", r.rank, r.steps,
                           r.iteration);
      }
      return fmt::format("rank {} has an optimizer step in iteration {}, but no op in it", r.rank,
                         r.iteration);
    });
  }

  // --- collective

  static std::string Name(const CollectiveMember& m) {
    return fmt::format("iteration {}: collective {}", m.iteration, m.id);
  }

  void AddNameless(Members members) {
    for (const CollectiveMember& m : members) {
      findings_.Add("collective", [&] {
        return fmt::format("iteration {}: rank {} has a collective without an id", m.iteration,
                           m.rank);
      });
    }
  }

  void CheckRanks(Members members) {
    for (size_t i = 0; i < members.size(); ++i) {
      const CollectiveMember& m = members[i];
      const bool twice = i > 0 && m.rank == members[i - 1].rank;
      if (!twice && RunsOps(Of(m))) continue;
      findings_.Add("collective", [&] {
        return fmt::format("{} has rank {}{}", Name(m), m.rank,
                           twice ? " twice" : ", which runs no op in this iteration");
      });
    }
  }

  void CheckEnds(Members members) {
    const CollectiveMember& last =
        *std::max_element(members.begin(), members.end(),
                          [](const auto& a, const auto& b) { return a.issue < b.issue; });
    const CollectiveMember& first = members.front();
    for (const CollectiveMember& m : members) {
      if (m.end < last.issue) {
        findings_.Add("collective", [&] {
          return fmt::format("{} ends on rank {} at {} ns, before rank {} joins at {} ns", Name(m),
                             m.rank, m.end, last.rank, last.issue);
        });
      } else if (m.end != first.end) {
        findings_.Add("collective", [&] {
          return fmt::format("{} ends on rank {} at {} ns and on rank {} at {} ns", Name(m),
                             first.rank, first.end, m.rank, m.end);
        });
      }
    }
  }

  const RankIteration& Of(const CollectiveMember& m) const {
    const Iteration iteration = iterations_[IndexOf(m.iteration)];
    return *std::lower_bound(
        iteration.begin(), iteration.end(), m.rank,
        [](const RankIteration& r, int32_t wanted) { return r.rank < wanted; });
  }

  bool IsBehindLastOp(const CollectiveMember& m) const { return m.position > Of(m).last_op; }

  size_t IndexOf(int32_t iteration) const {
    const auto found =
        std::lower_bound(iterations_.begin(), iterations_.end(), iteration,
                         [](Iteration i, int32_t wanted) { return i.front().iteration < wanted; });
    return static_cast<size_t>(found - iterations_.begin());
  }

  // A collective behind a rank's last op is one of all ranks, in the same place on each. Of any
  // other nothing says who ought to be in it, but alone nobody needs one.
  void CheckPlaces(Members members) {
    const CollectiveMember& first = members.front();
    const auto in_tail = [&](const CollectiveMember& m) { return IsBehindLastOp(m); };
    const bool tail = std::any_of(members.begin(), members.end(), in_tail);
    for (const CollectiveMember& m : members) {
      const char* how = HowJoinsDiffer(first, m, tail);
      if (how == nullptr) continue;
      findings_.Add("collective", [&] {
        return fmt::format("{}: ranks {} and {} join it {}", Name(first), first.rank, m.rank, how);
      });
    }
    if (tail) {
      ++tails_[IndexOf(first.iteration)];
      CheckThatAllJoin(members);
    } else if (members.size() == 1 && iterations_[IndexOf(first.iteration)].size() > 1) {
      findings_.Add("collective", [&] {
        return fmt::format("{} has no member but rank {}", Name(first), first.rank);
      });
    }
  }

  // Null: as they should.
  const char* HowJoinsDiffer(const CollectiveMember& a, const CollectiveMember& b,
                             bool tail) const {
    if (!tail) return nullptr;
    if (IsBehindLastOp(a) != IsBehindLastOp(b)) {
      return IsBehindLastOp(b) ? "before and after their last ops"
                               : "after and before their last ops";
    }
    if (a.behind_step != b.behind_step) {
      return b.behind_step ? "before and after their optimizer steps"
                           : "after and before their optimizer steps";
    }
    return a.place == b.place ? nullptr : "in different places among those after their last ops";
  }

  void CheckThatAllJoin(Members members) {
    const CollectiveMember& first = members.front();
    for (const RankIteration& r : iterations_[IndexOf(first.iteration)]) {
      const bool joins = std::binary_search(
          members.begin(), members.end(), CollectiveMember{.rank = r.rank},
          [](const CollectiveMember& a, const CollectiveMember& b) { return a.rank < b.rank; });
      if (joins || !RunsOps(r)) continue;
      findings_.Add("collective", [&] {
        return fmt::format("{}, after the last op of rank {}, is not joined by rank {}",
                           Name(first), first.rank, r.rank);
      });
    }
  }

  void CheckThatIterationsEndAlike() {
    size_t first = iterations_.size();
    for (size_t i = 0; i < iterations_.size(); ++i) {
      const int32_t iteration = iterations_[i].front().iteration;
      const bool runs = std::any_of(iterations_[i].begin(), iterations_[i].end(), RunsOps);
      if (!runs || iteration == cut_) continue;
      first = std::min(first, i);
      if (tails_[i] == tails_[first]) continue;
      findings_.Add("collective", [&] {
        return fmt::format(
            "iteration {} has {} collectives after its last ops, iteration {} has {}",
            iterations_[first].front().iteration, tails_[first], iteration, tails_[i]);
      });
    }
  }

  std::vector<Iteration> iterations_;
  std::vector<int64_t> tails_;  // by iteration: how many collectives stand in its tail
  int32_t cut_ = kNone;         // the iteration that may be without a tail
  FindingList& findings_;
};

}  // namespace

void TailChecker::Add(const Event& node, FindingList& findings) {
  Lane& lane = EnterIteration(node);
  if (node.kind == NodeKind::kOptimizer) {
    AddStep(node, lane, findings);
  } else if (node.kind == NodeKind::kCollective) {
    members_.push_back({.issue = node.issue,
                        .end = node.end,
                        .id = node.collective,
                        .iteration = node.iteration,
                        .rank = node.rank,
                        .position = lane.position,
                        .place = lane.place++,
                        .behind_step = lane.now.steps > 0});
  } else {
    AddOp(node, lane, findings);
  }
}

TailChecker::Lane& TailChecker::EnterIteration(const Event& node) {
  const auto rank = static_cast<size_t>(node.rank);
  if (rank >= lanes_.size()) lanes_.resize(rank + 1);
  Lane& lane = lanes_[rank];
  ++lane.position;
  if (lane.begun && lane.now.iteration == node.iteration) return lane;
  if (lane.begun) left_.push_back(lane.now);
  lane.begun = true;
  lane.now = {.iteration = node.iteration, .rank = node.rank};
  lane.place = 0;
  return lane;
}

void TailChecker::AddOp(const Event& op, Lane& lane, FindingList& findings) {
  lane.now.last_op = lane.position;
  lane.place = 0;
  if (op.iteration > lane.newest_op_iteration) {
    lane.newest_op_iteration = op.iteration;
    lane.newest_op = op.op;
  }
  if (op.iteration > lane.newest_step || lane.named_early) return;
  lane.named_early = true;  // once for each step
  findings.Add("early_optimizer", [&] {
    return fmt::format(
        "rank {}: the optimizer step of iteration {} starts at {} ns, and {} of iteration {} runs "
        "after it, until {} ns",
        op.rank, lane.newest_step, lane.newest_step_start, ToString(op.op), op.iteration, op.end);
  });
}

void TailChecker::AddStep(const Event& step, Lane& lane, FindingList& findings) {
  ++lane.now.steps;
  if (step.iteration < lane.newest_op_iteration) {
    findings.Add("late_optimizer", [&] {
      return fmt::format(
          "rank {}: the optimizer step of iteration {} starts at {} ns, after {} of "
          "iteration {} has run",
          step.rank, step.iteration, step.start, ToString(lane.newest_op),
          lane.newest_op_iteration);
    });
  }
  if (step.iteration <= lane.newest_step) return;
  lane.newest_step = step.iteration;
  lane.newest_step_start = step.start;
  lane.named_early = false;
}

void TailChecker::Finish(FindingList& findings) {
  for (const Lane& lane : lanes_) {
    if (lane.begun) left_.push_back(lane.now);
  }
  Merge(left_);
  std::sort(members_.begin(), members_.end(),
            [](const CollectiveMember& a, const CollectiveMember& b) {
              return std::tie(a.iteration, a.id, a.rank) < std::tie(b.iteration, b.id, b.rank);
            });
  Tails tails(left_, last_tail_, findings);
  tails.CheckSteps();
  tails.CheckCollectives(members_);
}

}  // namespace spiritlevel::check
