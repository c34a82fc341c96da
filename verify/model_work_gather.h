// ParameterGather: how the replicas of a rank get the parameters that others of them have stepped.
//
// A Program has no node for it, so it is part of the optimizer step: each replica writes what it
// owns to memory that all see, waits for the others, and reads the rest. Nobody can wait for ever:
// a replica comes to its step without anything that others do behind theirs.
//
// Made before processes are forked; for threads and processes of one machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "verify/arena.h"
#include "verify/bell.h"
#include "verify/model_plan.h"

namespace spiritlevel {

class ParameterGather {
 public:
  // Two places for each stage: DualPipe has it on two ranks.
  explicit ParameterGather(const TrainingTask& task);

  // `copy` tells the ranks that hold the stage apart. `write` puts what is owned into the stage's
  // bytes, all its parameters in order; `read` takes the rest. Returns early once `stopping`.
  // It is the replica's `time`-th since the beginning or Reset(), from 1.
  void Exchange(int stage, int copy, int replica, int64_t time,
                const std::function<void(std::span<std::byte>)>& write,
                const std::function<void(std::span<const std::byte>)>& read,
                const std::atomic<bool>& stopping);
  void Reset();  // while nobody runs

 private:
  struct Place {
    std::atomic<int64_t> written{0};
    std::atomic<int64_t> read{0};
  };
  static bool WaitFor(const std::atomic<int64_t>& count, int64_t least, Bell& bell,
                      const std::atomic<bool>& stopping);
  static void Add(std::atomic<int64_t>& count, std::span<Bell> bells);

  int replicas_;
  std::vector<Bytes> begin_;  // by stage
  Arena arena_;
  std::span<Place> places_;  // by stage, then copy
  std::span<Bell> bells_;    // by place, then replica
  std::span<std::byte> bytes_;
};

}  // namespace spiritlevel
