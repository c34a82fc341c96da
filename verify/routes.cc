#include "verify/routes.h"

#include "base/check.h"

namespace spiritlevel {
namespace {

bool HasOp(NodeKind kind) { return RunsOps(kind) || kind == NodeKind::kDroppedOp; }

}  // namespace

Routes::Routes(const Program& program)
    : num_stages_(program.num_stages()),
      num_micro_batches_(program.num_micro_batches()),
      rank_of_(static_cast<size_t>(num_stages_ * num_micro_batches_), kNone),
      routes_(program.nodes().size()),
      op_of_(program.messages().size()) {
  FindRanks(program);
  for (NodeId id = 0; id < program.num_lane_nodes(); ++id) {
    const Node& node = program.nodes()[id];
    if (!HasOp(node.kind)) continue;
    AddOp(program, id, 0, node.op);
    if (node.kind == NodeKind::kPair) AddOp(program, id, 1, program.second_op(node));
  }
}

void Routes::FindRanks(const Program& program) {
  const auto add = [&](const Op& op, int rank) {
    rank_of_[op.stage * num_micro_batches_ + op.micro_batch] = rank;
  };
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    for (NodeId id = program.rank_begin(rank); id < program.iteration_begin(rank, 1); ++id) {
      const Node& node = program.nodes()[id];
      if (!HasOp(node.kind)) continue;
      add(node.op, rank);
      if (node.kind == NodeKind::kPair) add(program.second_op(node), rank);
    }
  }
}

// A node's messages stand in the order of its ops; the first part of an op has its input, the last
// its output.
void Routes::AddOp(const Program& program, NodeId id, int which, const Op& op) {
  if (op.pass == Pass::kW) return;
  const Node& node = program.nodes()[id];
  const Part part = node.kind == NodeKind::kPart ? program.part(node) : Part{};
  const bool forward = op.pass == Pass::kF;
  const int rank = rank_of_[op.stage * num_micro_batches_ + op.micro_batch];
  Route& route = routes_[id][static_cast<size_t>(which)];
  const auto rank_of = [&](int stage) {
    return stage < 0 || stage >= num_stages_
               ? kNone
               : rank_of_[stage * num_micro_batches_ + op.micro_batch];
  };
  const int from = rank_of(op.stage + (forward ? -1 : 1));
  if (from != kNone && part.index == 0) {
    if (from == rank) {
      route.input_cell = CellOf(forward, op.stage, op.micro_batch);
    } else {
      const bool second = which == 1 && routes_[id][0].input_message != kNone;
      route.input_message = node.inputs[second ? 1 : 0];
      SPIRITLEVEL_CHECK(route.input_message != kNone, "what comes from another rank is a message");
    }
  }
  const int next_stage = op.stage + (forward ? 1 : -1);
  const int to = rank_of(next_stage);
  if (to == kNone || part.index + 1 < part.count) return;
  if (to == rank) {
    route.output_cell = CellOf(forward, next_stage, op.micro_batch);
    return;
  }
  const bool second = which == 1 && routes_[id][0].output_message != kNone;
  route.output_message = node.first_output + (second ? 1 : 0);
  SPIRITLEVEL_CHECK(route.output_message < node.first_output + node.num_outputs,
                    "what goes to another rank is a message");
  op_of_[route.output_message] = op;
}

}  // namespace spiritlevel
