// Finds work that touches the same memory on two streams, of which one writes, with no event and no
// wait of the host between them. A random order shows such a fault only where it hits it; this
// shows it in every order, by what is known to have happened before what (vector clocks; Mattern,
// "Virtual Time and Global States of Distributed Systems", 1989, section 4).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/cuda/fake_operands.h"

namespace spiritlevel::cuda {

// The number of each stream's pieces of work that are known to be over.
using VectorClock = std::map<uint64_t, uint64_t>;

class RaceFinder {
 public:
  // A race that this work makes, in words.
  std::optional<std::string> Post(uint64_t stream, const std::vector<FakeOperand>& operands,
                                  const std::string& words);
  VectorClock Record(uint64_t stream) { return ClockOf(stream); }
  void Wait(uint64_t stream, const VectorClock& event) { Join(&clocks_[stream], event); }
  // What is posted from now on comes behind it, on every stream.
  void HostSaw(const VectorClock& event) { Join(&host_, event); }
  void HostSawAllOf(uint64_t stream) { Join(&host_, clocks_[stream]); }
  void HostSawEverything();
  void Forget(const void* memory, Bytes bytes);  // it is freed

 private:
  struct Access {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    uint64_t stream = 0;
    uint64_t number = 0;
    bool written = false;
    std::string words;
  };

  static void Join(VectorClock* clock, const VectorClock& other);
  VectorClock& ClockOf(uint64_t stream);

  std::map<uint64_t, VectorClock> clocks_;
  VectorClock host_;
  std::vector<Access> accesses_;
};

}  // namespace spiritlevel::cuda
