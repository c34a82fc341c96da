#include "sim/batch_plan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spiritlevel {

BatchPlan::BatchPlan(const Program& program)
    : program_(program),
      looped_(IsLooped()),
      ranks_(static_cast<size_t>(program.num_ranks())),
      posted_(2 * program.messages().size(), 0),
      plan_(ranks_.size()) {}

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
  if (begin >= End(rank)) return begin;
  const NodeId next = begin + 1;
  if (!looped_ || next >= End(rank)) return next;
  const Node& first = program_.nodes()[begin];
  const Node& second = program_.nodes()[next];
  const bool ops = first.kind == NodeKind::kOp && second.kind == NodeKind::kOp;
  const bool pair = ops && first.op.pass == Pass::kF &&
                    (second.op.pass == Pass::kB || second.op.pass == Pass::kBW);
  return pair ? next + 1 : next;
}

int BatchPlan::RankOf(NodeId half) const {
  const Link& link = program_.links()[program_.messages()[program_.message_of(half)].link];
  return program_.is_send(half) ? link.from_rank : link.to_rank;
}

NodeId BatchPlan::OtherHalf(NodeId half) const {
  return program_.is_send(half) ? half + 1 : half - 1;
}

std::vector<std::vector<PlannedBatch>> BatchPlan::Make() {
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    RankState& state = ranks_[rank];
    state.next = SkipValidations(rank, program_.rank_begin(rank));
    state.turn_end = TurnEnd(rank, state.next);
  }
  for (int rank = 0; rank < program_.num_ranks(); ++rank) Arrive(rank);
  do {
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      TakeTurn(rank);
    }
  } while (PostReceiveAhead() || SplitTurn());
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    SPIRITLEVEL_CHECK(ranks_[rank].next == End(rank),
                      "a Schedule runs to its end, exchange by exchange");
  }
  return std::move(plan_);
}

// The rank stands before its next turn, and posts what it exchanges there.
void BatchPlan::Arrive(int rank) {
  RankState& state = ranks_[rank];
  state.batch = {.halves = {}, .before = state.last, .after = state.next};
  state.open = 0;
  if (state.next == End(rank)) return;
  for (const NodeId send : std::exchange(state.made, {})) Post(rank, send);
  for (NodeId id = state.next; id < state.turn_end; ++id) {
    for (const MessageId input : program_.nodes()[id].inputs) {
      if (input == kNone || posted_[2 * input + 1] != 0) continue;
      Post(rank, program_.receive_node(input));
    }
  }
  if (state.open == 0) runnable_.push_back(rank);
}

void BatchPlan::Post(int rank, NodeId half) {
  RankState& state = ranks_[rank];
  state.batch.halves.push_back(half);
  posted_[half - program_.num_lane_nodes()] = 1;
  const NodeId other = OtherHalf(half);
  if (posted_[other - program_.num_lane_nodes()] == 0) {
    ++state.open;
    return;
  }
  const int peer = RankOf(other);
  if (--ranks_[peer].open == 0) runnable_.push_back(peer);
}

void BatchPlan::TakeTurn(int rank) {
  RankState& state = ranks_[rank];
  if (!state.batch.halves.empty()) {
    std::sort(state.batch.halves.begin(), state.batch.halves.end());
    plan_[rank].push_back(std::move(state.batch));
  }
  for (NodeId id = state.next; id < state.turn_end; ++id) {
    const Node& node = program_.nodes()[id];
    for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
      state.made.push_back(program_.send_node(m));
    }
  }
  state.last = state.turn_end - 1;
  state.next = SkipValidations(rank, state.turn_end);
  state.turn_end = TurnEnd(rank, state.next);
  Arrive(rank);
}

// Of the sends for which all wait, the first whose receiver stands at an exchange: all that have
// work left do, and one such send there always is, since its data can run without times.
bool BatchPlan::PostReceiveAhead() {
  for (RankState& state : ranks_) {
    if (state.open == 0) continue;
    for (const NodeId half : state.batch.halves) {
      if (!program_.is_send(half)) continue;
      const NodeId receive = OtherHalf(half);
      if (posted_[receive - program_.num_lane_nodes()] != 0) continue;
      Post(RankOf(receive), receive);
      return true;
    }
  }
  return false;
}

// A turn of two whose second needs what comes of the first.
bool BatchPlan::SplitTurn() {
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    if (SplitTurnOf(rank)) return true;
  }
  return false;
}

bool BatchPlan::SplitTurnOf(int rank) {
  RankState& state = ranks_[rank];
  if (state.open == 0 || state.turn_end - state.next < 2) return false;
  state.turn_end = state.next + 1;
  const Node& second = program_.nodes()[state.turn_end];
  for (const MessageId input : second.inputs) {
    if (input == kNone || posted_[2 * input] != 0) continue;
    const NodeId receive = program_.receive_node(input);
    std::erase(state.batch.halves, receive);
    posted_[2 * input + 1] = 0;
    if (--state.open == 0) runnable_.push_back(rank);
  }
  return true;
}

}  // namespace spiritlevel
