// Can a Program run to its end? Under ideal posting every Schedule's does; how messages are posted
// can make ranks wait for each other all the same. Judged with Boost.Graph, without an engine.
#pragma once

#include <optional>
#include <string>

#include "sim/program.h"

namespace spiritlevel {

// Nothing, or the cycle in words, a line for each wait:
//
//   deadlocks under nccl-fifo posting:
//     rank 0: send of 0F1 to rank 1 waits for rank 1: receive of 0F1 from rank 0
//     rank 1: receive of 0F1 from rank 0 stands behind rank 1: send of 1B0 to rank 0
//     ...
std::optional<std::string> FindDeadlock(const Program& program);

}  // namespace spiritlevel
