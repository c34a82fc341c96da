#include "verify/words.h"

#include <fmt/format.h>

namespace spiritlevel {
namespace {

std::string NameOfComputeNode(const Program& program, NodeId id) {
  const Node& node = program.nodes()[id];
  switch (node.kind) {
    case NodeKind::kPair:
      return fmt::format("({};{})", ToString(node.op), ToString(program.second_op(node)));
    case NodeKind::kPart:
      return fmt::format("part {} of {}", program.part(node).index, ToString(node.op));
    case NodeKind::kCollective:
      return "the barrier";
    case NodeKind::kOptimizer:
      return "the optimizer step";
    case NodeKind::kValidation:
      return "the validation";
    case NodeKind::kRollback:
      return "the rollback";
    default:
      return ToString(node.op);
  }
}

std::string NameOfReduction(const Reduction& reduction) {
  switch (reduction.kind) {
    case NodeKind::kBucketSum:
      return fmt::format("the sum of gradient bucket {} of stage {}", reduction.bucket,
                         reduction.stage);
    case NodeKind::kTwinSum:
      return fmt::format("the sum of the two gradients of stage {}", reduction.stage);
    case NodeKind::kTiedSum:
      return "the sum of the embedding's gradients";
    default:
      return "the reduction that is validated";
  }
}

}  // namespace

std::string NameOf(const LanePlan& plan, const Routes& routes, NodeId node) {
  const Program& program = plan.program();
  if (node < program.num_lane_nodes()) return NameOfComputeNode(program, node);
  if (program.is_reduction(node)) {
    return NameOfReduction(program.reductions()[node - program.reduction_node(0)]);
  }
  if (program.is_batch(node)) {
    return fmt::format(
        "the exchange with {}",
        NameOf(plan, routes, program.batches()[node - program.batch_node(0)].halves.front()));
  }
  const MessageId m = program.message_of(node);
  const Link& link = program.links()[program.messages()[m].link];
  const std::string op = ToString(routes.op_of(m));
  return program.is_send(node) ? fmt::format("the send of {} to rank {}", op, link.to_rank)
                               : fmt::format("the receive of {} from rank {}", op, link.from_rank);
}

std::string NameWithIteration(const LanePlan& plan, const Routes& routes, NodeId node) {
  return fmt::format("{} of iteration {}", NameOf(plan, routes, node), plan.iteration_of(node));
}

}  // namespace spiritlevel
