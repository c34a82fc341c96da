// The Machine of kernels/cuda/math/attention_warp.h without a device: a block's lanes are fibers
// that take turns, and meet where lanes of a device exchange something.
//
// So the very kernels that a device runs are run here, with their indices, masks, barriers and
// copies; each warp runs as far ahead of the others as barriers let it. Only the order of sums
// inside one m16n8k16 is the emulation's own. It ends with a check where lanes that should meet do
// different things or wait for ever, where shared memory is read or written outside its bounds, and
// counts accesses of 8 rows that meet in a bank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/math/attention_warp.h"

namespace spiritlevel::cuda {

// When a copy takes place that was asked for: as soon as it may or as late as it may.
enum class CopyTime { kAtOnce, kWhenAwaited };

class EmulatedBlock;

class EmulatedMachine {
 public:
  EmulatedMachine(EmulatedBlock* block, int lane) : block_(block), lane_(lane) {}

  int lane() const { return lane_ % 32; }
  int warp() const { return lane_ / 32; }
  void SyncBlock() const;
  void SyncWarp() const;
  void CopyLater(unsigned to, const BFloat16* from, bool valid) const;
  void CommitCopies() const;
  template <int kLeft>
  void AwaitCopies() const {
    AwaitCopies(kLeft);
  }
  void LoadMatrices(uint32_t (&r)[4], unsigned at) const;
  void LoadTransposed(uint32_t (&r)[4], unsigned at) const;
  void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) const;
  uint32_t Pair(float low, float high) const;
  float Other(float value, int apart) const;
  void Store(unsigned at, uint32_t pair) const;
  Chunk Load(unsigned at) const;
  float* Numbers(unsigned at) const;
  void StoreGlobal(BFloat16* to, const Chunk& chunk) const;

 private:
  void AwaitCopies(int left) const;

  EmulatedBlock* block_;
  int lane_;
};

// Runs one block after another.
class EmulatedBlock {
 public:
  EmulatedBlock(int lanes, size_t shared_bytes, CopyTime copy_time);
  ~EmulatedBlock();

  void Run(const std::function<void(const EmulatedMachine&)>& kernel);
  int64_t bank_conflicts() const;

 private:
  friend class EmulatedMachine;
  struct State;
  std::unique_ptr<State> state_;
};

// A kernel's whole grid; returns the bank conflicts.
template <typename Kernel>
int64_t RunEmulated(const Kernel& kernel, int blocks, int heads, int batch, CopyTime copy_time) {
  EmulatedBlock block(Kernel::kLanes, Kernel::kSharedBytes, copy_time);
  for (int z = 0; z < batch; ++z) {
    for (int y = 0; y < heads; ++y) {
      for (int x = 0; x < blocks; ++x) {
        block.Run([&](const EmulatedMachine& m) { kernel(m, x, y, z); });
      }
    }
  }
  return block.bank_conflicts();
}

}  // namespace spiritlevel::cuda
