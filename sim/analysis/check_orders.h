// Inside the schedule checker: orders laid flat, with what stands where.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/op.h"

namespace spiritlevel::check {

// An op by its number: ops are numbered rank by rank, in order.
using OpIndex = uint32_t;
inline constexpr OpIndex kNowhere = ~OpIndex{0};

struct FlatOrders {
  std::vector<Op> ops;
  std::vector<OpIndex> rank_begin;  // one more than ranks
  std::vector<int32_t> rank_of;     // by op
  // By op: it and the next are a well-formed F&B pair, which is one op to everything else.
  std::vector<uint8_t> joined;

  int stages = 0;
  int micro_batches = 0;
  // By cell, that is (stage, micro-batch), then by pass: where it stands, the first time.
  std::vector<std::array<OpIndex, kNumPasses>> where;

  int ranks() const { return static_cast<int>(rank_begin.size()) - 1; }

  size_t cell(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(micro_batches) +
           static_cast<size_t>(micro_batch);
  }

  OpIndex find(int stage, int micro_batch, Pass pass) const {
    if (stage < 0 || stage >= stages) return kNowhere;
    return where[cell(stage, micro_batch)][static_cast<size_t>(pass)];
  }

  // The op that makes the gradient of the stage's input: BW, or the B of a split backward.
  OpIndex find_backward(int stage, int micro_batch) const {
    const OpIndex fused = find(stage, micro_batch, Pass::kBW);
    return fused != kNowhere ? fused : find(stage, micro_batch, Pass::kB);
  }

  // The rules of pipeline training, all of them: what `op` needs, kNowhere where nothing.
  std::array<OpIndex, 2> needs(const Op& op) const {
    switch (op.pass) {
      case Pass::kF:
        return {find(op.stage - 1, op.micro_batch, Pass::kF), kNowhere};
      case Pass::kB:
      case Pass::kBW:
        return {find(op.stage, op.micro_batch, Pass::kF),
                find_backward(op.stage + 1, op.micro_batch)};
      case Pass::kW:
        return {find(op.stage, op.micro_batch, Pass::kB), kNowhere};
    }
    return {kNowhere, kNowhere};
  }
};

}  // namespace spiritlevel::check
