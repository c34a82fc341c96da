// Blocks of lanes, as one program for the device and for the host.
//
// A kernel is a value with `operator()(const Block&, int64_t index) const`: what block `index` of a
// grid does. It is written in phases, each of which is done for all lanes before the next begins:
//
//   block.Each([&](int lane) { ... });                       // a phase
//   block.Reduce(identity, of_lane, combine);                // one number out of one of each lane
//   block.Any([&](int lane) { return ...; });                // whether it holds for one of them
//
// What passes from one phase to another goes through memory: the operands or block.shared(), of
// Kernel::kSharedBytes. On the device (device_grid.h) a lane is a thread. On the host lanes take
// turns, and sums have the same tree, so that host and device make the same bits where their
// arithmetic is the same.
//
// `combine` must be commutative to the bit, and `identity` change nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "kernels/cuda/math/host_device.h"

namespace spiritlevel::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kMostLanes = 512;
inline constexpr int kElementwiseLanes = 256;

// For work on one row by eight elements a lane.
inline int LanesForRow(int64_t cols) {
  const int64_t groups = (cols + 7) / 8;
  const int64_t lanes = (groups + kWarp - 1) / kWarp * kWarp;
  return static_cast<int>(lanes < kWarp ? kWarp : lanes > kMostLanes ? kMostLanes : lanes);
}

struct Plus {
  template <typename T>
  SPIRITLEVEL_HOST_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};

// In which order a host's lanes and blocks take their turns. A kernel must give the same bits in
// any, or on a device, where they run together, it would not.
enum class Turns : uint8_t { kForwards, kBackwards };

class HostBlock {
 public:
  HostBlock(int lanes, std::byte* shared, Turns turns = Turns::kForwards)
      : lanes_(lanes), shared_(shared), turns_(turns) {}

  int lanes() const { return lanes_; }
  void* shared() const { return shared_; }

  template <typename F>
  void Each(const F& f) const {
    for (int turn = 0; turn < lanes_; ++turn) f(LaneOf(turn));
  }

  template <typename F>
  bool Any(const F& f) const {
    bool any = false;
    for (int turn = 0; turn < lanes_; ++turn) any = f(LaneOf(turn)) || any;
    return any;
  }

  // In each warp lanes 16, 8, 4, 2, 1 apart meet; then its sum those of the other warps, the same
  // way.
  template <typename T, typename F, typename Combine>
  T Reduce(T identity, const F& of_lane, const Combine& combine) const {
    T values[kMostLanes];
    for (int turn = 0; turn < lanes_; ++turn) values[LaneOf(turn)] = of_lane(LaneOf(turn));
    T warps[kWarp];
    for (int warp = 0; warp < kWarp; ++warp) {
      warps[warp] = warp * kWarp < lanes_ ? Tree(values + warp * kWarp, combine) : identity;
    }
    return Tree(warps, combine);
  }

 private:
  int LaneOf(int turn) const { return turns_ == Turns::kForwards ? turn : lanes_ - 1 - turn; }

  template <typename T, typename Combine>
  static T Tree(T* values, const Combine& combine) {
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      for (int i = 0; i < apart; ++i) values[i] = combine(values[i], values[i + apart]);
    }
    return values[0];
  }

  int lanes_;
  std::byte* shared_;
  Turns turns_;
};

// Runs a kernel's blocks one after the other.
class HostGrid {
 public:
  explicit HostGrid(Turns turns = Turns::kForwards) : turns_(turns) {}

  template <typename Kernel>
  void operator()(const Kernel& kernel, int64_t blocks, int lanes) const {
    SPIRITLEVEL_CHECK(lanes > 0 && lanes <= kMostLanes && lanes % kWarp == 0, "warps are whole");
    std::vector<std::max_align_t> shared(Kernel::kSharedBytes / sizeof(std::max_align_t) + 1);
    const HostBlock block(lanes, reinterpret_cast<std::byte*>(shared.data()), turns_);
    for (int64_t turn = 0; turn < blocks; ++turn) {
      kernel(block, turns_ == Turns::kForwards ? turn : blocks - 1 - turn);
    }
  }

 private:
  Turns turns_;
};

}  // namespace spiritlevel::cuda
