// Op: one pass of one stage for one micro-batch, written "2F0": stage 2, forward, micro-batch 0.
//
// The four passes, with the letters PyTorch uses for them:
//   F   forward                        (F)
//   B   input gradient                 (I)
//   W   weight gradient                (W)
//   BW  both as one op                 (B); the neighbour waits for all of it
//
// F&B, a forward and a backward executed as one overlapped op (DualPipe), is two Ops that stand
// next to each other on their rank, the first with `overlaps_next`; written "(0F7;7BW3)". Both
// start together, end together and release their results at the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spiritlevel {

enum class Pass : uint8_t { kF, kB, kW, kBW };

inline constexpr int kNumPasses = 4;

std::string_view Name(Pass pass);  // "F", "B", "W", "BW"

struct Op {
  int32_t micro_batch = 0;
  uint16_t stage = 0;
  Pass pass = Pass::kF;
  bool overlaps_next = false;

  friend bool operator==(const Op&, const Op&) = default;
};
static_assert(sizeof(Op) == 8, "orders are walked by the million; two ops in 16 bytes");

std::string ToString(const Op& op);  // "2F0"; overlaps_next is not shown

// orders[r] is what rank r runs, first to last. Nothing is promised about it; a Schedule is an
// Orders that was found to be well-formed.
using Orders = std::vector<std::vector<Op>>;

// "0F0 0BW0\n(1F0;1BW1)\n" <-> Orders, one line a rank. Parsing throws InputError with the line.
std::string ToString(const Orders& orders);
Orders ParseOrders(std::string_view text);

}  // namespace spiritlevel
