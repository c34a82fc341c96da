// Row: one rank's order while a generator writes it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/op.h"

namespace spiritlevel {

class Row {
 public:
  void F(int stage, int micro_batch) { Add(Pass::kF, stage, micro_batch); }
  void B(int stage, int micro_batch) { Add(Pass::kB, stage, micro_batch); }
  void W(int stage, int micro_batch) { Add(Pass::kW, stage, micro_batch); }
  void BW(int stage, int micro_batch) { Add(Pass::kBW, stage, micro_batch); }

  // The op added last and the one added next are an F&B pair.
  void OverlapNext() { ops_.back().overlaps_next = true; }

  std::vector<Op> Take() { return std::move(ops_); }

 private:
  void Add(Pass pass, int stage, int micro_batch) {
    ops_.push_back(
        {.micro_batch = micro_batch, .stage = static_cast<uint16_t>(stage), .pass = pass});
  }

  std::vector<Op> ops_;
};

}  // namespace spiritlevel
