// RankWork: what one rank does in the nodes of a Program. The runtime knows order, messages, lanes,
// collectives and clocks; the work knows tensors.
//
// The runtime calls it from one thread, node by node in the order of the rank's compute lane, and
// between two nodes for the collectives of the rank's communication lanes. An op is given what the
// neighbouring stage made, whether that came as a message or was made on the same rank, and returns
// what the next one needs; who that is, and where, is the runtime's business:
//
//   F   input: the stage's input, from the F of the stage before; none for stage 0.
//       returns its output, for the F of the stage behind; nothing where it is the last.
//   B, BW   input: the gradient of the stage's output, from the B or BW of the stage behind; none
//       for the last stage. returns the gradient of its input; nothing for stage 0.
//   W   has no input and returns nothing: what B left for it, the work has kept.
//
// Whatever a function throws ends the run on all ranks, with its words.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/units.h"
#include "sim/program.h"
#include "verify/payload.h"

namespace spiritlevel {

class SideChannel;  // side_channel.h

// Who a work is made for.
struct RankContext {
  const Program& program;
  int rank = 0;
  int replica = 0;  // of data parallelism: each runs the whole Program
  int replicas = 1;
  // Set once the run has failed somewhere. What a work would wait for by itself is then to be given
  // up; a kernel need not look at it.
  const std::atomic<bool>& stopping;
  // Given where ranks have no memory in common.
  SideChannel* side = nullptr;
};

struct OpCall {
  NodeId node = kNone;
  Op op{};
  Part part{};  // input with the first, output from the last
  int iteration = 0;
  // Reads parameters that were stepped and not validated yet; and will be dropped and run again.
  bool provisional = false;
  bool dropped = false;
  TimeNs start = 0;  // on Now()'s clock
  Payload input{};   // the work's to keep or to let go
};

// One rank's part in a collective: the barrier of a tail (kCollective), the reduction that is
// validated (kReduction), a sum of gradients (kBucketSum, kTwinSum, kTiedSum).
struct SumCall {
  NodeId node = kNone;
  NodeKind kind = NodeKind::kReduction;
  int iteration = 0;
  int32_t stage = kNone;   // of a sum of gradients
  int32_t bucket = kNone;  // of a bucket's sum
  // Members are ordered replica by replica, and by rank within each. A bucket's sum has the
  // rank's replicas as members; twins and tied embeddings those of its own replica; the others
  // all ranks of all replicas.
  int member = 0;
  int num_members = 1;
};

struct ValidationCall {
  NodeId node = kNone;
  int iteration = 0;
  // Whether there is a step of the iteration before to judge. There is none in the first iteration,
  // and none behind a rollback, which was right.
  bool judges = false;
  // What the Program was lowered for. Where true, what dropped ops have kept is to be freed now.
  bool rejected = false;
};

struct StepCall {
  NodeId node = kNone;
  int iteration = 0;  // of a rollback: the one that is run again; the step was of the one before
  TimeNs start = 0;
};

class RankWork {
 public:
  virtual ~RankWork() = default;

  virtual Payload RunOp(OpCall& call) = 0;
  // Both ops of an F&B pair; each output is its op's. One after the other, unless overridden.
  virtual std::pair<Payload, Payload> RunPair(OpCall& first, OpCall& second) {
    Payload of_first = RunOp(first);
    return {std::move(of_first), RunOp(second)};
  }

  virtual void StepOptimizer(const StepCall& call) = 0;
  // Takes the step of the iteration before back, and does it right.
  virtual void RollBack(const StepCall& call) = 0;

  // Accepted? A verdict other than the Program's ends the run, agreed by all ranks; what was done
  // since is then the caller's to take back, and a replay is a Program of its own.
  virtual bool Validate(const ValidationCall& call) { return !call.rejected; }

  // What this rank adds to a collective, as soon as all of it is there and before the optimizer
  // step of its iteration: other ranks read these bytes as they are now. Ops that run between this
  // and Combine() do not add to what a sum of gradients is about.
  virtual Payload Contribute(const SumCall& call) = 0;
  // All members' contributions, in the members' order; sums formed in it have the same bits on
  // every rank. Called once all are there and before anything that waits for the collective.
  virtual void Combine(const SumCall& call,
                       std::span<const std::span<const std::byte>> contributions) = 0;

  // The most bytes that lay on this rank since the last call: the runtime asks once behind each
  // node, and writes the answer down as the node's live memory.
  virtual Bytes TakePeakBytes() = 0;

  // The run has failed, here or elsewhere, and no other function will be called in it: let go of
  // everything that waits for a later pass.
  virtual void Abandon() noexcept = 0;

  // Behind the last node: what the caller of the run shall have of this rank. The only way out of a
  // process.
  virtual Payload Finish() { return {}; }
};

// Called on the rank's own thread, in its own process, once that is pinned: what it allocates first
// lies near its core. Who keeps a copy of the pointer has the same work in several runs, unless its
// process ends with the run.
using WorkFactory = std::function<std::shared_ptr<RankWork>(const RankContext&)>;

}  // namespace spiritlevel
