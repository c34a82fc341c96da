// Exchange: what lies between ranks, as one rank's thread sees it. A transport implements it; the
// RankRunner, which runs the compute lane, is the same over all.
#pragma once

#include <atomic>
#include <span>
#include <string_view>

#include "base/units.h"
#include "sim/program.h"
#include "sim/timeline.h"
#include "verify/payload.h"
#include "verify/run.h"

namespace spiritlevel {

// Thrown on a rank's thread once the run has failed, so that it leaves what it does.
struct Stopped {};

// A rank's own part in collectives, done by its thread between nodes and while it waits.
class Servant {
 public:
  virtual ~Servant() = default;
  virtual Payload Contribute(NodeId member) = 0;
  virtual void Combine(NodeId member,
                       std::span<const std::span<const std::byte>> contributions) = 0;
};

struct Outgoing {
  MessageId message = kNone;
  Payload payload{};
};

// All times are Now()'s. All functions that wait or advance lanes throw Stopped.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Waits until all ranks are here; returns when the run begins, the same time on all.
  virtual TimeNs Meet() = 0;
  // Waits until all that a compute node waits for beside its lane is done, and serves meanwhile, at
  // least once. Returns when the last of it was, or 0 where there is nothing.
  virtual TimeNs Wait(NodeId node, Servant& servant) = 0;
  // Of an input of a node that has been waited for.
  virtual TimeNs ArrivalOf(MessageId message) = 0;
  virtual Payload Take(MessageId message) = 0;
  virtual void End(NodeId node, const NodeTimes& times, std::span<Outgoing> outputs) = 0;
  // Of a compute node that is a collective, once it has been waited for: joins at `head` and waits
  // for all others and the sum. Its times, the same on all members.
  virtual NodeTimes JoinAndWait(NodeId node, TimeNs head, Servant& servant) = 0;
  // Behind the last node: serves until no collective needs this rank any more, and waits for all
  // others to be as far.
  virtual void ServeOut(Servant& servant) = 0;
  // Then: it has done all, and this is what came of it.
  virtual void Leave(Payload result) = 0;

  virtual void Fail(FailureKind kind, NodeId node, std::string_view what) noexcept = 0;
  virtual const std::atomic<bool>& stopping() const = 0;
  // For the rank's work; none where ranks have memory in common.
  virtual SideChannel* side_channel() { return nullptr; }
};

}  // namespace spiritlevel
