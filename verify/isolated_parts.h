// What timing in isolation is made of, whatever is timed: bytes that look like a model's, and who
// computes when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "verify/payload.h"

namespace spiritlevel {

// Small numbers of both signs, as fp32 and as bf16: with zeros or subnormals kernels might take
// another time.
class SmallNumbers {
 public:
  // A new buffer each time, as from another rank; none of 0 bytes.
  Payload Fill(Bytes bytes);

 private:
  void Add();

  uint64_t random_ = 0x9E3779B97F4A7C15ULL;
  std::vector<std::byte> numbers_;
};

// Ranks on different cores can compute at the same time; those on one take turns. `cores` by rank,
// or none.
std::vector<std::vector<int>> TurnsOf(int ranks, const std::vector<int>& cores);

}  // namespace spiritlevel
