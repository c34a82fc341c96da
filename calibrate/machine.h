// What a profile says about the machine it was measured on: enough to judge whether it is the same
// kind of machine, nothing that names it or its users.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"

namespace spiritlevel {

struct Cache {
  int level = 0;
  std::string type{};  // "Data", "Instruction", "Unified"
  Bytes bytes = 0;

  friend bool operator==(const Cache&, const Cache&) = default;
};

struct Machine {
  std::string cpu{};
  int cores = 0;
  int usable_cores = 0;  // that this process may run on
  std::vector<Cache> caches{};
  std::string governor{};  // of the first usable core; empty where the system does not say

  friend bool operator==(const Machine&, const Machine&) = default;
};

struct Software {
  std::string blas{};
  std::string compiler{};
  std::string instructions{};  // that our own kernels were compiled for

  friend bool operator==(const Software&, const Software&) = default;
};

Machine DescribeMachine();
Software DescribeSoftware();
std::string Today();  // "2024-05-31", in UTC

// Of one core's way to memory; 0 where the system does not say.
Bytes LargestCache(const Machine& machine);

}  // namespace spiritlevel
