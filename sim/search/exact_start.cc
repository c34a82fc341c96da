// An order as a solution of the integer program, and back.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "sim/search/exact_model.h"

namespace spiritlevel {

// By rank, with micro-batches that are alike renamed so that they pass in the order of their
// numbers, and a BW as its two halves. Also notes which are fused.
std::vector<std::vector<int>> ExactModel::NodesOf(const Orders& orders) {
  // The first of those alike stands for all; by it, who they are.
  std::vector<int> like(static_cast<size_t>(micro_batches_));
  std::vector<std::vector<int>> members(like.size());
  for (int i = 0; i < micro_batches_; ++i) {
    const int previous = previous_alike_[static_cast<size_t>(i)];
    like[static_cast<size_t>(i)] = previous < 0 ? i : like[static_cast<size_t>(previous)];
    members[static_cast<size_t>(like[static_cast<size_t>(i)])].push_back(i);
  }
  std::map<std::tuple<int, int, Kind>, size_t> seen;      // by stage, of those alike
  std::map<std::pair<int, int>, std::vector<int>> split;  // B's whose W comes later, in order
  std::vector<std::vector<int>> ranks;
  for (const std::vector<Op>& ops : orders) {
    std::vector<int>& ids = ranks.emplace_back();
    for (const Op& op : ops) {
      const int of = like[static_cast<size_t>(op.micro_batch)];
      const auto next = [&](Kind kind) { return seen[{op.stage, of, kind}]++; };
      const auto member = [&](size_t k) { return members[static_cast<size_t>(of)].at(k); };
      if (op.pass == Pass::kF) {
        ids.push_back(Id(op.stage, member(next(kF)), kF));
        continue;
      }
      const bool may_fuse = MayFuse(op.stage, of);
      if (op.pass != Pass::kW) {
        const int i = member(next(kB));
        ids.push_back(Id(op.stage, i, kB));
        const bool fused = op.pass == Pass::kBW && may_fuse;
        if (fused) {
          start_[static_cast<size_t>(FusedColumn(nodes_[size_t(ids.back())]))] = 1;
          ids.push_back(Id(op.stage, i, kW));
        } else {
          split[{op.stage, of}].push_back(i);
        }
      }
      // Where fusing is of no use, B and W one after the other take no longer than BW.
      if (op.pass == Pass::kW || (op.pass == Pass::kBW && !may_fuse)) {
        ids.push_back(Id(op.stage, split[{op.stage, of}].at(next(kW)), kW));
      }
    }
  }
  return ranks;
}

void ExactModel::SetStart(const Orders& start) {
  start_.assign(program_.columns.size(), 0);
  const std::vector<std::vector<int>> ranks = NodesOf(start);
  PlayStart(ranks);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<int>& ids = ranks[rank];
    start_[static_cast<size_t>(first_[rank])] =
        start_[static_cast<size_t>(nodes_[static_cast<size_t>(ids.front())].start)];
    for (size_t i = 0; i < ids.size(); ++i) {
      for (size_t j = i + 1; j < ids.size(); ++j) {
        const Linear before = Before(ids[i], ids[j]);
        if (before.column >= 0) start_[static_cast<size_t>(before.column)] = before.factor > 0;
      }
    }
  }
  start_[static_cast<size_t>(program_.objective)] = ValueOfStart();
}

// Each op as early as it can.
void ExactModel::PlayStart(const std::vector<std::vector<int>>& ranks) {
  std::vector<std::vector<const Edge*>> in(nodes_.size());
  for (const Edge& edge : edges_) in[static_cast<size_t>(edge.after)].push_back(&edge);
  std::vector<double> end(nodes_.size(), -1);
  std::vector<size_t> next(ranks.size(), 0);
  std::vector<double> free(ranks.size(), 0);
  const auto duration = [&](const Node& node) {
    const Linear d = DurationOf(node);
    return d.constant + (d.column < 0 ? 0 : d.factor * start_[static_cast<size_t>(d.column)]);
  };
  const auto play = [&](size_t rank) {
    const auto id = static_cast<size_t>(ranks[rank][next[rank]]);
    double begin = free[rank];
    for (const Edge* edge : in[id]) {
      const double before = end[static_cast<size_t>(edge->before)];
      if (before < 0) return false;
      begin = std::max(begin, before + static_cast<double>(edge->delay));
    }
    start_[static_cast<size_t>(nodes_[id].start)] = begin;
    end[id] = free[rank] = begin + duration(nodes_[id]);
    return true;
  };
  bool any = true;
  while (any) {
    any = false;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (; next[rank] < ranks[rank].size() && play(rank); ++next[rank]) any = true;
    }
  }
  for (const double e : end) SPIRITLEVEL_CHECK(e >= 0, "an exact search starts with a whole order");
}

double ExactModel::ValueOfStart() const {
  double value = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const auto rank = static_cast<size_t>(rank_of(static_cast<int>(i)));
    const Linear d = DurationOf(node);
    double end = start_[static_cast<size_t>(node.start)] + d.constant +
                 (d.column < 0 ? 0 : d.factor * start_[static_cast<size_t>(d.column)]);
    if (problem_.objective == Objective::kSpan) end -= start_[static_cast<size_t>(first_[rank])];
    if (problem_.objective == Objective::kMakespan && problem_.tail == Tail::kNoTail) {
      end += static_cast<double>(Units(OptimizerOf(problem_, static_cast<int>(rank))));
    }
    value = std::max(value, end);
  }
  return std::max(value, program_.columns[static_cast<size_t>(program_.objective)].lower);
}

Orders ExactModel::OrdersOf(const std::vector<double>& solution) const {
  const auto value = [&](int column) { return std::lround(solution[static_cast<size_t>(column)]); };
  Orders orders;
  for (const std::vector<int>& ids : by_rank_) {
    // How many stand before it; where those say nonsense, its start.
    std::vector<std::tuple<long, double, int>> sorted;
    for (const int id : ids) {
      long before = 0;
      for (const int other : ids) {
        if (other == id) continue;
        const Linear b = Before(other, id);
        before += std::lround(b.constant);
        if (b.column >= 0) before += std::lround(b.factor) * value(b.column);
      }
      sorted.emplace_back(before, solution[static_cast<size_t>(nodes_[size_t(id)].start)], id);
    }
    std::sort(sorted.begin(), sorted.end());
    std::vector<Op>& ops = orders.emplace_back();
    for (const auto& [before, start, id] : sorted) {
      const Node& node = nodes_[static_cast<size_t>(id)];
      const bool fused = FusedColumn(node) >= 0 && value(FusedColumn(node)) == 1;
      if (node.kind == kW && fused) continue;
      const Pass pass = node.kind == kF   ? Pass::kF
                        : node.kind == kW ? Pass::kW
                        : fused           ? Pass::kBW
                                          : Pass::kB;
      ops.push_back({.micro_batch = node.micro_batch,
                     .stage = static_cast<uint16_t>(node.stage),
                     .pass = pass});
    }
  }
  return orders;
}

}  // namespace spiritlevel
