#include "tests/kernels/cuda/fake_races.h"

#include <algorithm>

namespace spiritlevel::cuda {
namespace {

uintptr_t Address(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

}  // namespace

void RaceFinder::Join(VectorClock* clock, const VectorClock& other) {
  for (const auto& [stream, number] : other) {
    uint64_t& mine = (*clock)[stream];
    mine = std::max(mine, number);
  }
}

VectorClock& RaceFinder::ClockOf(uint64_t stream) {
  VectorClock& clock = clocks_[stream];
  Join(&clock, host_);
  return clock;
}

std::optional<std::string> RaceFinder::Post(uint64_t stream,
                                            const std::vector<FakeOperand>& operands,
                                            const std::string& words) {
  VectorClock& clock = ClockOf(stream);
  std::optional<std::string> race;
  const uint64_t number = clock[stream] + 1;
  for (const FakeOperand& operand : operands) {
    const Access now{Address(operand.data),
                     Address(operand.data) + operand.bytes,
                     stream,
                     number,
                     operand.written,
                     words};
    for (const Access& before : accesses_) {
      if (before.stream == stream || before.end <= now.begin || now.end <= before.begin) continue;
      if (!before.written && !now.written) continue;
      const auto known = clock.find(before.stream);
      if (known != clock.end() && known->second >= before.number) continue;
      race = "race: " + before.words + " and " + words + " touch the same memory in any order";
    }
  }
  for (const FakeOperand& operand : operands) {
    const Access now{Address(operand.data),
                     Address(operand.data) + operand.bytes,
                     stream,
                     number,
                     operand.written,
                     words};
    // What one stream did to the same place before is behind what it does now.
    std::erase_if(accesses_, [&](const Access& before) {
      return before.stream == stream && before.begin >= now.begin && before.end <= now.end &&
             (now.written || !before.written);
    });
    accesses_.push_back(now);
  }
  clock[stream] = number;
  return race;
}

void RaceFinder::HostSawEverything() {
  for (const auto& [stream, clock] : clocks_) Join(&host_, clock);
}

void RaceFinder::Forget(const void* memory, Bytes bytes) {
  const uintptr_t begin = Address(memory);
  const uintptr_t end = begin + bytes;
  std::erase_if(accesses_, [&](const Access& a) { return a.begin < end && begin < a.end; });
}

}  // namespace spiritlevel::cuda
