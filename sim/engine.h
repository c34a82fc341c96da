// The two event engines. Both play a Program out; they share no code and agree to the nanosecond.
#pragma once

#include "sim/program.h"
#include "sim/timeline.h"

namespace spiritlevel {

// Order-driven: fixed orders need no event queue. Runs a rank until a message is missing, then the
// ranks it feeds. For every Program whose outcome does not depend on the time of day.
Timeline SimulateInOrder(const Program& program);

// Queue-driven: always the earliest event next; simultaneous ones by rank, then link, never by
// insertion order or address.
Timeline SimulateByQueue(const Program& program);

}  // namespace spiritlevel
