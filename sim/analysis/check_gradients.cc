#include "sim/analysis/check_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>

namespace spiritlevel::check {
namespace {

bool FillsGradients(Pass pass) { return pass == Pass::kW || pass == Pass::kBW; }

std::string NameOf(const Event& sum) {
  const std::string whose = fmt::format("of stage {} of iteration {}", sum.op.stage, sum.iteration);
  switch (sum.kind) {
    case NodeKind::kBucketSum:
      return fmt::format("rank {}: the sum of gradient bucket {} {}", sum.rank, sum.gradient_bucket,
                         whose);
    case NodeKind::kTwinSum:
      return fmt::format("rank {}: the sum of the two gradients {}", sum.rank, whose);
    default:
      return fmt::format("rank {}: the sum of the embedding's gradients, {}", sum.rank, whose);
  }
}

}  // namespace

TimeNs GradientChecker::Filled::Of(int32_t bucket) const {
  if (bucket == kNone) return std::max(whole_ops, last_part);
  const auto found = buckets.find(bucket);
  return found == buckets.end() ? whole_ops : std::max(whole_ops, found->second);
}

void GradientChecker::AddNode(const Event& node, FindingList& findings) {
  const RankKey rank{node.iteration, node.rank};
  if (node.kind == NodeKind::kOptimizer) {
    tails_[rank].push_back({node.start, "the optimizer step"});
  } else if (node.kind == NodeKind::kCollective) {
    tails_[rank].push_back({node.start, "the collective"});
  }
  if (!RunsOps(node.kind)) return;
  last_op_[rank] = std::max(last_op_[rank], node.end);
  const auto add = [&](const Op& op) {
    if (!FillsGradients(op.pass)) return;
    Filled& filled = filled_[{node.iteration, node.rank, op.stage}];
    if (node.kind != NodeKind::kPart) {
      filled.whole_ops = std::max(filled.whole_ops, node.end);
      return;
    }
    filled.parts = std::max(filled.parts, node.part.count);
    filled.last_part = std::max(filled.last_part, node.end);
    TimeNs& end = filled.buckets[node.gradient_bucket];
    end = std::max(end, node.end);
  };
  add(node.op);
  if (node.kind == NodeKind::kPair) add(node.second);
  if (node.kind == NodeKind::kPart && !FillsGradients(node.op.pass)) {
    findings.Add("part", [&] {
      return fmt::format("rank {}: {} of iteration {} runs in parts, and fills no gradients",
                         node.rank, ToString(node.op), node.iteration);
    });
  }
}

void GradientChecker::AddReduction(const Event& reduction) {
  tails_[{reduction.iteration, reduction.rank}].push_back(
      {reduction.start, "the reduction that is validated"});
}

void GradientChecker::AddPart(const Event& part, TimelineRecords& records, FindingList& findings) {
  const OpKey key{part.iteration, part.rank, part.op.stage, part.op.pass, part.op.micro_batch};
  const auto [found, is_new] = open_.try_emplace(
      key,
      OpRecord{part.start, part.end, part.iteration, part.rank, part.parameter_version, part.op},
      Part{.index = -1, .count = part.part.count});
  auto& [record, last] = found->second;
  if (part.part.index != last.index + 1 || part.part.count != last.count) {
    findings.Add("part", [&, was = last] {
      return fmt::format("rank {}: part {} of {} of {} of iteration {} follows part {} of {}",
                         part.rank, part.part.index, part.part.count, ToString(part.op),
                         part.iteration, was.index, was.count);
    });
  }
  last.index = part.part.index;
  record.end = part.end;
  if (part.part.index + 1 < part.part.count) return;
  records.ops.push_back(record);
  open_.erase(found);
}

void GradientChecker::FinishParts(TimelineRecords& records, FindingList& findings) {
  for (const auto& [key, open] : open_) {
    const auto& [record, last] = open;
    findings.Add("part", [&, &r = record, &p = last] {
      return fmt::format("rank {}: of {} of iteration {}, parts {} to {} are missing", r.rank,
                         ToString(r.op), r.iteration, p.index + 1, p.count - 1);
    });
    records.ops.push_back(record);
  }
}

void GradientChecker::Finish(FindingList& findings) {
  if (sums_.empty()) return;
  CheckBuckets(findings);
  CheckCompleteness(findings);
  CheckTails(findings);
  CheckMembers(findings);
  CheckOrders(findings);
}

void GradientChecker::CheckBuckets(FindingList& findings) {
  for (const Event& sum : sums_) {
    SumsOfStage& of_stage = sums_of_[{sum.iteration, sum.rank, sum.op.stage}];
    const bool twice = sum.kind == NodeKind::kBucketSum
                           ? !of_stage.buckets.try_emplace(sum.gradient_bucket, &sum).second
                           : of_stage.exchange != nullptr;
    if (twice) findings.Add("bucket", [&] { return NameOf(sum) + " is formed twice"; });
    if (sum.kind == NodeKind::kBucketSum) {
      of_stage.buckets_end = std::max(of_stage.buckets_end, sum.end);
    } else {
      of_stage.exchange = &sum;
    }
  }
  for (const Event& sum : sums_) CheckStart(sum, findings);
}

void GradientChecker::CheckStart(const Event& sum, FindingList& findings) const {
  const StageKey key{sum.iteration, sum.rank, sum.op.stage};
  const auto filled = filled_.find(key);
  if (filled == filled_.end()) {
    findings.Add("bucket", [&] { return NameOf(sum) + ", whose gradients nothing has made"; });
    return;
  }
  const bool bucket = sum.kind == NodeKind::kBucketSum;
  const TimeNs made = filled->second.Of(bucket ? sum.gradient_bucket : kNone);
  const TimeNs summed = bucket ? 0 : sums_of_.at(key).buckets_end;
  if (sum.start >= std::max(made, summed) && sum.end >= sum.start) return;
  findings.Add("bucket", [&] {
    if (sum.end < sum.start) return NameOf(sum) + " ends before it starts";
    return fmt::format("{} starts at {} ns, before its gradients are {} at {} ns", NameOf(sum),
                       sum.start, sum.start < made ? "there" : "summed over the replicas",
                       std::max(made, summed));
  });
}

// Where some buckets are summed all must be, and where a stage is once summed between ranks it
// always is; but for an iteration that is cut off before its tail.
void GradientChecker::CheckCompleteness(FindingList& findings) const {
  std::set<int32_t> summed_between_ranks;
  bool any_bucket = false;
  for (const Event& sum : sums_) {
    if (sum.kind == NodeKind::kBucketSum) {
      any_bucket = true;
    } else {
      summed_between_ranks.insert(sum.op.stage);
    }
  }
  std::set<int32_t> ended;  // iterations
  for (const auto& [key, tails] : tails_) ended.insert(key.first);
  for (const auto& [key, filled] : filled_) {
    const auto [iteration, rank, stage] = key;
    if (!ended.contains(iteration)) continue;
    if (any_bucket) CheckThatBucketsAreSummed(key, filled, findings);
    const auto found = sums_of_.find(key);
    const bool summed = found != sums_of_.end() && found->second.exchange != nullptr;
    if (summed || !summed_between_ranks.contains(stage)) continue;
    findings.Add("bucket", [&, i = iteration, r = rank, s = stage] {
      return fmt::format(
          "rank {}: gradients of stage {} of iteration {} are not summed between "
          "ranks",
          r, s, i);
    });
  }
}

// How many there are nothing says but the parts; the least is one.
void GradientChecker::CheckThatBucketsAreSummed(const StageKey& key, const Filled& filled,
                                                FindingList& findings) const {
  const auto found = sums_of_.find(key);
  for (int32_t bucket = 0; bucket < filled.parts; ++bucket) {
    if (found != sums_of_.end() && found->second.buckets.contains(bucket)) continue;
    findings.Add("bucket", [&] {
      const auto [iteration, rank, stage] = key;
      return fmt::format("rank {}: gradient bucket {} of stage {} of iteration {} is not summed",
                         rank, bucket, stage, iteration);
    });
  }
}

void GradientChecker::CheckTails(FindingList& findings) const {
  std::map<RankKey, const Event*> last;  // of its sums, by their end
  for (const Event& sum : sums_) {
    const Event*& latest = last[{sum.iteration, sum.rank}];
    if (latest == nullptr || sum.end > latest->end) latest = &sum;
  }
  for (const auto& [key, sum] : last) {
    const auto tails = tails_.find(key);
    if (tails == tails_.end()) continue;  // cut off, or the tail checker's business
    for (const Tail& tail : tails->second) {
      const auto last_op = last_op_.find(key);
      const bool behind_ops = last_op != last_op_.end() && tail.start >= last_op->second;
      if (!behind_ops || tail.start >= sum->end) continue;
      findings.Add("bucket", [&, &s = *sum] {
        return fmt::format("{} ends at {} ns, after {} has started at {} ns", NameOf(s), s.end,
                           tail.name, tail.start);
      });
    }
  }
}

// Of sums between ranks.
void GradientChecker::CheckMembers(FindingList& findings) const {
  std::map<std::pair<int32_t, int32_t>, std::vector<const Event*>> members;  // iteration, id
  for (const Event& sum : sums_) {
    if (sum.kind != NodeKind::kBucketSum) members[{sum.iteration, sum.collective}].push_back(&sum);
  }
  for (const auto& [key, all] : members) {
    const Event& first = *all.front();
    std::set<int32_t> ranks;
    for (const Event* m : all) {
      ranks.insert(m->rank);
      if (m->kind == first.kind && m->start == first.start && m->end == first.end) continue;
      findings.Add("collective_order", [&] {
        return fmt::format("{} is not at the same time as on rank {}", NameOf(*m), first.rank);
      });
    }
    if (ranks.size() == all.size() && ranks.size() > 1) continue;
    findings.Add("collective_order", [&, &a = all] {
      return fmt::format("{} has {} members on {} ranks", NameOf(first), a.size(), ranks.size());
    });
  }
}

void GradientChecker::CheckOrders(FindingList& findings) const {
  using Id = std::pair<int32_t, int32_t>;         // iteration, collective
  std::map<int32_t, std::vector<Id>> of_rank;     // in the order of its lane
  std::map<Id, std::map<int32_t, size_t>> place;  // by rank
  for (const Event& sum : sums_) {
    if (sum.kind == NodeKind::kBucketSum) continue;
    const Id id{sum.iteration, sum.collective};
    place[id][sum.rank] = of_rank[sum.rank].size();
    of_rank[sum.rank].push_back(id);
  }
  for (const auto& [rank, ids] : of_rank) {
    std::map<int32_t, size_t> reached;  // by rank, the place of the newest that both share
    for (const Id& id : ids) {
      for (const auto& [peer, at] : place.at(id)) {
        if (peer <= rank) continue;
        const auto [newest, is_first] = reached.try_emplace(peer, at);
        if (!is_first && at < newest->second) {
          findings.Add("collective_order", [&, r = rank, p = peer] {
            return fmt::format(
                "ranks {} and {} take part in sums of gradients in different orders: number {} of "
                "iteration {}",
                r, p, id.second, id.first);
          });
        }
        newest->second = std::max(newest->second, at);
      }
    }
  }
}

}  // namespace spiritlevel::check
