// The exact solver (sim/search/exact.h) in a process of its own: CBC cannot be told to stop, may
// overrun its time by far, and answers a problem that it cannot hold by ending the program.
#pragma once

#include <atomic>
#include <optional>

#include "sim/search/exact.h"

namespace spiritlevel {

// SolveExactly(), but over after `seconds`, and when `stop` turns true. Nothing where it had no
// answer by then, or could have none. No other thread of this process may run meanwhile.
std::optional<ExactAnswer> SolveExactlyApart(const SearchProblem& problem, double seconds,
                                             const Orders& start, const std::atomic<bool>* stop);

}  // namespace spiritlevel
