// ParameterGather: how the replicas of a rank get the parameters that others of them have stepped.
//
// A Program has no node for it, so it is part of the optimizer step: each replica writes what it
// owns to memory that all see, waits for the others, and reads the rest. Nobody can wait for ever:
// a replica comes to its step without anything that others do behind theirs.
//
// Made before processes are forked; for threads and processes of one machine. Where ranks have no
// memory in common, SentParameters is the same with messages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/cpu/model/stage.h"
#include "verify/arena.h"
#include "verify/bell.h"
#include "verify/model_plan.h"
#include "verify/side_channel.h"

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

// By messages: each replica sends what it owns of a stage to all others, and takes what they own.
// Nobody waits for ever here either, and the ranks' lanes go on meanwhile (side_channel.h).
class SentParameters {
 public:
  static constexpr int kTopic = 0;

  // `rank` of so many, of which `replica` is one.
  SentParameters(const TrainingTask& task, int ranks, int rank, int replica, SideChannel& side)
      : task_(task), ranks_(ranks), rank_(rank), replica_(replica), side_(side) {}

  // `step` tells a message of one step from that of another.
  void Send(int stage, int64_t step, const cpu::ParameterStore& parameters);
  // One of another replica, of whichever of the rank's stages: `parameters_of` says where it goes.
  void Receive(int64_t step, const std::function<cpu::ParameterStore&(int stage)>& parameters_of);

 private:
  const TrainingTask& task_;
  int ranks_;
  int rank_;
  int replica_;
  SideChannel& side_;
};

}  // namespace spiritlevel
