#include "sim/batch_plan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

constexpr int64_t kNotYet = -1;

}  // namespace

BatchPlan::BatchPlan(const Program& program)
    : program_(program),
      looped_(IsLooped()),
      ranks_(static_cast<size_t>(program.num_ranks())),
      made_(program.messages().size(), kNotYet) {
  NodeId nodes = 0;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    first_.push_back(nodes);
    nodes += End(rank) - program.rank_begin(rank);
    ranks_[rank].next = program.rank_begin(rank);
  }
  start_.assign(static_cast<size_t>(nodes), 0);
  alone_.assign(start_.size(), 0);
}

bool BatchPlan::IsLooped() const {
  const int ranks = program_.num_ranks();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::span<const int> stages = program_.stages_of(rank);
    if (stages.size() < 2) return false;
    for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
      if (stages[chunk] != rank + static_cast<int>(chunk) * ranks) return false;
    }
  }
  return true;
}

// A validation takes no part in exchanges, and runs beside the one that stands around it.
NodeId BatchPlan::SkipValidations(int rank, NodeId node) const {
  while (node < End(rank) && program_.nodes()[node].kind == NodeKind::kValidation) ++node;
  return node;
}

NodeId BatchPlan::TurnEnd(int rank, NodeId begin) const {
  const NodeId next = begin + 1;
  if (!looped_ || next >= End(rank)) return next;
  if (alone_[first_[rank] + begin - program_.rank_begin(rank)] != 0) return next;
  const Node& first = program_.nodes()[begin];
  const Node& second = program_.nodes()[next];
  const bool ops = first.kind == NodeKind::kOp && second.kind == NodeKind::kOp;
  const bool pair = ops && first.op.pass == Pass::kF && second.op.pass == Pass::kBW;
  return pair ? next + 1 : next;
}

// Parts of an op stand at its start, so that what comes of the last stands behind all of them.
BatchPlan::Nominal BatchPlan::DurationOf(const Node& node) const {
  switch (node.kind) {
    case NodeKind::kOp:
      return node.op.pass == Pass::kBW ? 2 : 1;
    case NodeKind::kPair:
      return 3;
    case NodeKind::kPart:
      if (program_.part(node).index > 0) return 0;
      return node.op.pass == Pass::kBW ? 2 : 1;
    default:
      return 0;
  }
}

// Its next turn, if all its inputs are made.
bool BatchPlan::TakeTurn(int rank) {
  RankState& state = ranks_[rank];
  const NodeId begin = SkipValidations(rank, state.next);
  if (begin == End(rank)) return false;
  const NodeId end = TurnEnd(rank, begin);
  Nominal start = state.free;
  for (NodeId id = begin; id < end; ++id) {
    for (const MessageId input : program_.nodes()[id].inputs) {
      if (input == kNone) continue;
      if (made_[input] == kNotYet) return false;
      start = std::max(start, made_[input]);
    }
  }
  // Of an op's later parts the start is that of the op.
  const Node& first = program_.nodes()[begin];
  const bool later_part =
      first.kind == NodeKind::kPart && program_.part(first).index > 0 && first.op.pass == Pass::kBW;
  if (later_part) start = start_[first_[rank] + begin - 1 - program_.rank_begin(rank)];
  Nominal finish = later_part ? state.free : start;
  for (NodeId id = state.next; id < end; ++id) {
    start_[first_[rank] + id - program_.rank_begin(rank)] = start;
    finish += DurationOf(program_.nodes()[id]);
  }
  for (NodeId id = begin; id < end; ++id) {
    const Node& node = program_.nodes()[id];
    for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
      made_[m] = finish;
    }
  }
  state.free = finish;
  state.next = end;
  return true;
}

// A turn of two whose second needs what comes of the first.
bool BatchPlan::SplitTurn() {
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    const NodeId begin = SkipValidations(rank, ranks_[rank].next);
    if (begin == End(rank) || TurnEnd(rank, begin) == begin + 1) continue;
    alone_[first_[rank] + begin - program_.rank_begin(rank)] = 1;
    if (TakeTurn(rank)) return true;
  }
  return false;
}

void BatchPlan::PlayNominally() {
  for (bool more = true; more;) {
    more = false;
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      while (TakeTurn(rank)) more = true;
    }
    if (!more) more = SplitTurn();
  }
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    SPIRITLEVEL_CHECK(SkipValidations(rank, ranks_[rank].next) == End(rank),
                      "a Schedule runs to its end, turn by turn");
  }
}

std::vector<std::vector<PlannedBatch>> BatchPlan::Make() {
  PlayNominally();
  const auto ranks = static_cast<size_t>(program_.num_ranks());
  std::vector<std::vector<std::pair<Nominal, NodeId>>> halves(ranks);  // by stamp
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    for (NodeId id = program_.rank_begin(rank); id < End(rank); ++id) {
      const Node& node = program_.nodes()[id];
      for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
        const int to = program_.links()[program_.messages()[m].link].to_rank;
        halves[static_cast<size_t>(rank)].emplace_back(made_[m], program_.send_node(m));
        halves[static_cast<size_t>(to)].emplace_back(made_[m], program_.receive_node(m));
      }
    }
  }
  std::vector<std::vector<PlannedBatch>> plan(ranks);
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    auto& of_rank = halves[static_cast<size_t>(rank)];
    std::sort(of_rank.begin(), of_rank.end());
    NodeId after = SkipValidations(rank, program_.rank_begin(rank));
    NodeId before = kNone;
    for (size_t i = 0; i < of_rank.size(); ++i) {
      const auto [stamp, half] = of_rank[i];
      if (i == 0 || of_rank[i - 1].first != stamp) {
        while (start_[first_[rank] + after - program_.rank_begin(rank)] < stamp) {
          before = after;
          after = SkipValidations(rank, after + 1);
        }
        plan[static_cast<size_t>(rank)].push_back({.halves = {}, .before = before, .after = after});
      }
      plan[static_cast<size_t>(rank)].back().halves.push_back(half);
    }
  }
  return plan;
}

std::vector<std::vector<PlannedBatch>> BatchPlan::MakeLiterally() {
  std::vector<std::vector<PlannedBatch>> plan(static_cast<size_t>(program_.num_ranks()));
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    std::vector<NodeId> made;
    NodeId before = kNone;
    NodeId begin = SkipValidations(rank, program_.rank_begin(rank));
    while (begin < End(rank)) {
      const NodeId end = TurnEnd(rank, begin);
      PlannedBatch batch{.halves = std::move(made), .before = before, .after = begin};
      made.clear();
      for (NodeId id = begin; id < end; ++id) {
        const Node& node = program_.nodes()[id];
        for (const MessageId input : node.inputs) {
          if (input != kNone) batch.halves.push_back(program_.receive_node(input));
        }
        for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
          made.push_back(program_.send_node(m));
        }
      }
      std::sort(batch.halves.begin(), batch.halves.end());
      if (!batch.halves.empty()) plan[static_cast<size_t>(rank)].push_back(std::move(batch));
      before = end - 1;
      begin = SkipValidations(rank, end);
    }
  }
  return plan;
}

}  // namespace spiritlevel
