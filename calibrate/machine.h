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

// Of a GPU: its name, and its SMs for cores.
struct MeasuredMachine {
  std::string cpu{};
  int cores = 0;
  int usable_cores = 0;  // that this process may run on
  std::vector<Cache> caches{};
  std::string governor{};  // of the first usable core; empty where the system does not say

  friend bool operator==(const MeasuredMachine&, const MeasuredMachine&) = default;
};

struct Software {
  std::string blas{};
  std::string compiler{};
  std::string instructions{};  // that our own kernels were compiled for

  friend bool operator==(const Software&, const Software&) = default;
};

// What a device's sensors say while it is busy. Of a GPU.
struct SensorReading {
  int clock_mhz = 0;
  int memory_clock_mhz = 0;
  int temperature = 0;  // degrees Celsius
  bool throttled = false;

  friend bool operator==(const SensorReading&, const SensorReading&) = default;
};

MeasuredMachine DescribeMachine();
Software DescribeSoftware();
std::string Today();  // "2024-05-31", in UTC

// Of one core's way to memory; 0 where the system does not say.
Bytes LargestCache(const MeasuredMachine& machine);

}  // namespace spiritlevel
