// Event: everything known about one node of a played Program, in one record.
//
// Made on demand out of a Program and a Timeline: a run has millions, and few are looked at. The
// checker and everything that is written for a person reads these, so it can read a measured
// timeline as well as a predicted one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/memory.h"
#include "sim/program.h"
#include "sim/timeline.h"

namespace spiritlevel {

struct Event {
  NodeKind kind = NodeKind::kOp;
  int32_t iteration = 0;
  int32_t rank = 0;
  Op op{};                   // of kOp, kPair, kPart, kDroppedOp; a message's: what produced it
  Op second{};               // kPair only
  int32_t chunk = 0;         // of op.stage on this rank
  int32_t second_chunk = 0;  // kPair only
  Part part{};               // of kPart, which of its op's parts
  // Of the parameters it reads; an optimizer's: that it leaves; a message's: its producer's; all
  // else: of those that lie on the rank. A rollback makes the same version again, right this time.
  int32_t parameter_version = 0;

  TimeNs ready = 0;  // all its inputs are there
  TimeNs issue = 0;  // ready, and its lane free
  TimeNs start = 0;  // issue and the launch delay
  TimeNs end = 0;

  // Live memory of the rank. `during` is what an op's start adds, held until its end. Of sends
  // and receives all zero: they hold no memory of their own here.
  MemoryByCategory before{};
  MemoryByCategory during{};
  MemoryByCategory after{};
  Bytes live = 0;  // the engine's own running total while the node runs; Total(during) must be it

  // kCollective, kReduction, sums of gradients: one id on all its members, and no other collective
  // of the iteration has it. kValidation: the reduction it waits for, of the iteration before;
  // kNone where there is none.
  int32_t collective = kNone;

  // Of an op: the parameters it reads were stepped, but not validated yet; of a message: its
  // producer reads such.
  bool provisional = false;
  // A message of a kDroppedOp, whose result nobody will have used.
  bool dropped = false;

  // Of a sum of gradients: the stage whose they are (op.stage), and which bucket; kNone: all. Of a
  // part: the bucket it fills.
  int32_t gradient_bucket = kNone;

  // Messages. Of a compute node: the input that came last.
  int32_t message = kNone;
  int32_t peer = kNone;  // the rank at the other end
  Bytes bytes = 0;

  // For a model and a runtime to fill in; empty until then.
  std::vector<int64_t> tensor_shape{};
  std::string dtype{};
  std::string optimizer_state{};
};

// Calls `visit` for every event of iterations [0, iterations): rank by rank, the compute lane in
// order, each node followed by the receives it waits for and the sends it feeds, and the last of an
// iteration by the rank's sums of gradients, each lane in order, and its node of the reduction that
// is validated, if there are any.
void ForEachEvent(const Program& program, const Timeline& timeline, int iterations,
                  const std::function<void(const Event&)>& visit);

std::vector<Event> CollectEvents(const Program& program, const Timeline& timeline, int iterations);

}  // namespace spiritlevel
