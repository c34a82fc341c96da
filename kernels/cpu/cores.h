// The cores this process may use, and threads pinned to them.
#pragma once

#include <vector>

namespace spiritlevel::cpu {

// By the system's numbers, ascending; what containers and taskset leave.
std::vector<int> UsableCores();

// False where the system does not allow it; the thread then runs where it did.
bool PinThisThread(const std::vector<int>& cores);

// Empty, or the instructions that this build uses and this processor lacks.
const char* MissingInstructions();

// The widest vector instructions that this build uses.
const char* CompiledInstructions();

}  // namespace spiritlevel::cpu
