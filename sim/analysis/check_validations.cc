#include "sim/analysis/check_validations.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

namespace spiritlevel::check {

void ValidationChecker::AddNode(const Event& node, FindingList& findings) {
  const auto rank = static_cast<size_t>(node.rank);
  if (rank >= lanes_.size()) lanes_.resize(rank + 1);
  Lane& lane = lanes_[rank];
  RankIteration& now = all_[{node.iteration, node.rank}];
  const bool keeps_dropped = node.kind == NodeKind::kDroppedOp ||
                             node.kind == NodeKind::kValidation || node.kind == NodeKind::kRollback;
  if (lane.before_dropped && !keeps_dropped) {
    lane.before_dropped.reset();
    findings.Add("rejection", [&] {
      return fmt::format("rank {}: ops of iteration {} are dropped, but there is no rollback",
                         node.rank, lane.last_iteration);
    });
  }
  switch (node.kind) {
    case NodeKind::kOptimizer:
      lane.known = Known::kStepped;
      break;
    case NodeKind::kValidation:
      lane.known = Known::kValidated;
      now.validations.push_back({.start = node.start, .collective = node.collective});
      break;
    case NodeKind::kRollback:
      AddRollback(node, lane, now, findings);
      break;
    case NodeKind::kDroppedOp:
      AddDropped(node, lane, findings);
      break;
    case NodeKind::kOp:
    case NodeKind::kPair:
    case NodeKind::kPart:
      AddOp(node, lane, now, findings);
      break;
    default:
      break;
  }
  lane.last = node.kind;
  lane.last_iteration = node.iteration;
}

void ValidationChecker::AddOp(const Event& op, Lane& lane, RankIteration& now,
                              FindingList& findings) {
  now.runs_ops = true;
  now.last_op_end = std::max(now.last_op_end, op.end);
  lane.newest_op_iteration = op.iteration;
  if (!op.provisional) {
    if (lane.known == Known::kStepped && !now.unmarked) now.unmarked = op.op;
    return;
  }
  if (!now.marked) now.marked = op.op;
  const bool backward = op.kind == NodeKind::kPair || op.op.pass != Pass::kF;
  if (lane.known != Known::kValidated && !backward) return;
  findings.Add("validation", [&] {
    return fmt::format("rank {}: {} of iteration {} reads provisional parameters {}", op.rank,
                       ToString(op.op), op.iteration,
                       backward ? "and is no forward" : "behind their validation");
  });
}

void ValidationChecker::AddDropped(const Event& op, Lane& lane, FindingList& findings) {
  if (!lane.before_dropped) lane.before_dropped = op.before;
  const char* wrong = op.op.pass != Pass::kF                     ? "is no forward"
                      : !op.provisional                          ? "reads no provisional parameters"
                      : lane.known == Known::kValidated          ? "runs behind the validation"
                      : lane.newest_op_iteration == op.iteration ? "runs behind ops that are kept"
                                                                 : nullptr;
  if (wrong == nullptr) return;
  findings.Add("rejection", [&] {
    return fmt::format("rank {}: {} of iteration {} is dropped, but {}", op.rank, ToString(op.op),
                       op.iteration, wrong);
  });
}

void ValidationChecker::AddRollback(const Event& rollback, Lane& lane, RankIteration& now,
                                    FindingList& findings) {
  ++now.rollbacks;
  const bool behind_validation =
      lane.last == NodeKind::kValidation && lane.last_iteration == rollback.iteration;
  const bool frees_all = !lane.before_dropped || *lane.before_dropped == rollback.after;
  const char* wrong = !behind_validation ? "does not stand right behind a validation"
                      : lane.newest_op_iteration == rollback.iteration
                          ? "stands behind ops of that iteration which are not dropped"
                      : !frees_all ? "leaves memory of what is dropped"
                                   : nullptr;
  if (behind_validation) now.validations.back().rolled_back = true;
  lane.before_dropped.reset();
  if (wrong == nullptr) return;
  findings.Add("rejection", [&] {
    return fmt::format("rank {}: the rollback of iteration {} {}", rollback.rank,
                       rollback.iteration, wrong);
  });
}

void ValidationChecker::Finish(FindingList& findings) {
  std::sort(members_.begin(), members_.end(), [](const Event& a, const Event& b) {
    return std::tie(a.iteration, a.collective, a.rank) <
           std::tie(b.iteration, b.collective, b.rank);
  });
  CheckReductions(findings);
  CheckValidations(findings);
  CheckRollbacks(findings);
}

bool ValidationChecker::HasReduction(int32_t iteration) const {
  const auto found = member_of_.lower_bound({iteration, std::numeric_limits<int32_t>::min()});
  return found != member_of_.end() && found->first.first == iteration;
}

TimeNs ValidationChecker::LastOpEnd(int32_t iteration) const {
  TimeNs end = std::numeric_limits<TimeNs>::min();
  for (auto it = all_.lower_bound({iteration, 0}); it != all_.end() && it->first.first == iteration;
       ++it) {
    if (it->second.runs_ops) end = std::max(end, it->second.last_op_end);
  }
  return end;
}

void ValidationChecker::CheckReductions(FindingList& findings) {
  const Event* first = nullptr;
  for (const Event& member : members_) {
    const bool twice = !member_of_.try_emplace({member.iteration, member.rank}, &member).second;
    if (twice) {
      findings.Add("reduction", [&] {
        return fmt::format("rank {} has two reductions in iteration {}", member.rank,
                           member.iteration);
      });
    }
    if (first == nullptr || first->iteration != member.iteration) first = &member;
    CheckMember(member, *first, findings);
  }
  if (members_.empty()) return;
  const int32_t last = all_.empty() ? kNone : all_.rbegin()->first.first;
  const bool may_be_cut = last_tail_ == LastTail::kMayBeCut && !HasReduction(last);
  for (const auto& [key, now] : all_) {
    if (!now.runs_ops || member_of_.contains(key) || (may_be_cut && key.first == last)) continue;
    findings.Add("reduction", [&, &at = key] {
      return fmt::format("rank {} takes no part in the reduction of iteration {}", at.second,
                         at.first);
    });
  }
}

void ValidationChecker::CheckMember(const Event& member, const Event& first,
                                    FindingList& findings) const {
  const TimeNs all_done = LastOpEnd(member.iteration);
  std::string wrong;
  if (member.collective < 0) {
    wrong = "has no id";
  } else if (member.collective != first.collective || member.start != first.start ||
             member.end != first.end) {
    wrong = fmt::format("is number {}, {} to {} ns, but on rank {} number {}, {} to {} ns",
                        member.collective, member.start, member.end, first.rank, first.collective,
                        first.start, first.end);
  } else if (member.end < member.start) {
    wrong = "ends before it starts";
  } else if (member.start < all_done) {
    wrong = fmt::format("starts at {} ns, before the last op has ended at {} ns", member.start,
                        all_done);
  }
  if (wrong.empty()) return;
  findings.Add("reduction", [&] {
    return fmt::format("rank {}: the reduction of iteration {} {}", member.rank, member.iteration,
                       wrong);
  });
}

void ValidationChecker::CheckValidations(FindingList& findings) const {
  if (all_.empty()) return;
  const int32_t first = all_.begin()->first.first;
  // What the first iteration waits for lies before all that is known.
  for (const auto& [key, now] : all_) {
    if (key.first > first) CheckRank(key, now, findings);
  }
}

void ValidationChecker::CheckRank(const Key& key, const RankIteration& now,
                                  FindingList& findings) const {
  const auto [iteration, rank] = key;
  const auto say = [&, i = iteration, r = rank](const std::string& what) {
    findings.Add("validation",
                 [&] { return fmt::format("rank {}, iteration {}: {}", r, i, what); });
  };
  const bool judged = HasReduction(iteration - 1);
  if (!judged) {
    if (now.marked)
      say(ToString(*now.marked) + " is provisional, but nothing judges what it reads");
    if (!now.validations.empty()) say("a validation, but no reduction before it");
    return;
  }
  if (now.unmarked) {
    say(ToString(*now.unmarked) +
        " runs before the validation of its parameters, and is not marked provisional");
  }
  const auto expected = static_cast<size_t>(now.rollbacks) + 1;
  if (now.runs_ops && now.validations.size() != expected) {
    say(fmt::format("{} validations and {} rollbacks", now.validations.size(), now.rollbacks));
  }
  for (const Validation& validation : now.validations) CheckWait(key, validation, findings);
}

void ValidationChecker::CheckWait(const Key& key, const Validation& validation,
                                  FindingList& findings) const {
  const auto member = member_of_.find({key.first - 1, key.second});
  if (member == member_of_.end()) return;  // said already
  const Event& reduction = *member->second;
  if (validation.start < reduction.end) {
    findings.Add("validation", [&] {
      return fmt::format(
          "rank {}: the validation of iteration {} starts at {} ns, before the reduction that it "
          "waits for ends at {} ns",
          key.second, key.first, validation.start, reduction.end);
    });
  }
  if (validation.collective != reduction.collective) {
    findings.Add("validation", [&] {
      return fmt::format("rank {}: the validation of iteration {} names reduction {}, not {}",
                         key.second, key.first, validation.collective, reduction.collective);
    });
  }
}

// All ranks learn the same, so all of them roll back or none.
void ValidationChecker::CheckRollbacks(FindingList& findings) const {
  std::map<int32_t, int> most;
  for (const auto& [key, now] : all_) most[key.first] = std::max(most[key.first], now.rollbacks);
  for (const auto& [key, now] : all_) {
    const int wanted = now.runs_ops ? std::min(most[key.first], 1) : 0;
    if (now.rollbacks == wanted) continue;
    findings.Add("rejection", [&, &at = key, &r = now] {
      return fmt::format("rank {} has {} rollbacks in iteration {}, where others have {}",
                         at.second, r.rollbacks, at.first, wanted);
    });
  }
}

}  // namespace spiritlevel::check
