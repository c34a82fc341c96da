// SideChannel: what works tell each other beside their Program's messages, where ranks have no
// memory in common. Parameters that one replica has stepped and others need, parts of a norm that a
// stage may want before it is whole.
//
//   side.Send(/*to=*/2, kTopic, bytes);             // returns at once
//   const SideMessage m = side.Receive(kTopic);     // from whoever it comes
//
// Messages of one sender and topic come in the order in which they were sent; else there is no
// order. None is lost, and none outlives its run: the run ends once all have arrived, whether or
// not anybody has asked for them.
//
// Whoever waits here is inside a node, and goes on advancing the lanes of its rank meanwhile:
// whoever needs what is queued there shall not wait as well. Collectives are not served here: a
// work must have contributed to all that those whom it waits for may need.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "verify/payload.h"

namespace spiritlevel {

struct SideMessage {
  int from = 0;  // counted as in SideChannel
  Payload payload{};
};

class SideChannel {
 public:
  static constexpr int kTopics = 2;  // the works' to choose, from 0

  virtual ~SideChannel() = default;

  // Ranks are counted replica by replica. To another one; the bytes are copied.
  virtual void Send(int to, int topic, std::span<const std::byte> bytes) = 0;
  // The next that is there, if one is.
  virtual std::optional<SideMessage> Poll(int topic) = 0;
  // Waits for it. Throws Stopped (exchange.h) once the run has failed, and fails it where nothing
  // comes for too long.
  virtual SideMessage Receive(int topic) = 0;
};

}  // namespace spiritlevel
