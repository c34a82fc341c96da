#include "verify/node_calls.h"

namespace spiritlevel {

ValidationCall ValidationAt(const Program& program, NodeId id, int rank) {
  const Node& node = program.nodes()[id];
  const bool is_replayed = program.is_replayed(node.iteration);
  const bool behind_rollback = is_replayed && id + 1 < program.rank_end(rank) &&
                               program.nodes()[id + 1].kind != NodeKind::kRollback;
  return {.node = id,
          .iteration = node.iteration,
          .judges = node.iteration > 0 && !behind_rollback,
          .rejected = is_replayed && !behind_rollback};
}

SumCall SumCallOf(const LanePlan& plan, NodeId member, int replica, int replicas) {
  const Program& program = plan.program();
  const int32_t collective = plan.collective_of(member);
  const auto members = static_cast<int>(program.collectives()[collective].members.size());
  const bool spans = plan.spans_replicas(collective);
  SumCall call{.node = member,
               .kind = plan.kind_of_collective(collective),
               .iteration = plan.iteration_of(member),
               .member = plan.member_of(member) + (spans ? replica * members : 0),
               .num_members = members * (spans ? replicas : 1)};
  if (program.is_reduction(member)) {
    const Reduction& reduction = program.reductions()[member - program.reduction_node(0)];
    call.stage = reduction.stage;
    call.bucket = reduction.bucket;
  }
  return call;
}

}  // namespace spiritlevel
