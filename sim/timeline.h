// Timeline: when everything in a Program happened.
//
// Flat arrays, one entry for each compute-lane node, each message and each node of a reduction;
// what is constant for a node is looked up in the Program. event.h makes the full record of one
// event out of both.
#pragma once

#include <vector>

#include "base/units.h"
#include "sim/program.h"
#include "sim/raw_vector.h"

namespace spiritlevel {

struct NodeTimes {
  TimeNs start = 0;
  TimeNs end = 0;
  TimeNs ready = 0;         // its inputs from other ranks are there; with none, its lane is free
  Bytes live = 0;           // on its rank while it runs, its own increase included
  MessageId cause = kNone;  // the input it waited for last; kNone when its lane kept it

  friend bool operator==(const NodeTimes&, const NodeTimes&) = default;
};

struct MessageTimes {
  TimeNs start = 0;    // on its link
  TimeNs arrival = 0;  // usable at the receiver

  friend bool operator==(const MessageTimes&, const MessageTimes&) = default;
};

struct Timeline {
  RawVector<NodeTimes> nodes;        // by compute-lane node
  RawVector<MessageTimes> messages;  // by message
  // By reduction node; `ready` is when it heads its lane, and it holds no memory.
  std::vector<NodeTimes> reductions{};

  friend bool operator==(const Timeline&, const Timeline&) = default;
};

}  // namespace spiritlevel
