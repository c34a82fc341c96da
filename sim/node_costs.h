// What the nodes of a Program cost, out of what ops cost. Internal to the lowering.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/costs.h"
#include "sim/op.h"
#include "sim/program.h"

namespace spiritlevel {

// Numbers the distinct costs of a Program's nodes as they are asked for.
class CostClasses {
 public:
  explicit CostClasses(const Costs& costs);

  int32_t Of(const Op& op) {
    const size_t i = costs_.varies_by_micro_batch() ? static_cast<size_t>(op.micro_batch) : 0;
    int32_t& id = ids_[(op.stage * micro_batches_ + i) * kNumPasses + static_cast<size_t>(op.pass)];
    if (id == kNone) id = AddOp(op);
    return id;
  }

  int32_t OfPair(const Op& first, const Op& second);
  // Of the part of a W or BW that fills a bucket of its stage. Parts sum to the op.
  int32_t OfPart(const Op& op, const Part& part);
  int32_t Add(const NodeCost& cost);

  std::vector<NodeCost> Take() { return std::move(classes_); }

 private:
  struct SeenPair {
    Op first;
    uint16_t second_stage;
    int32_t id;
  };

  int32_t AddOp(const Op& op);

  const Costs& costs_;
  size_t micro_batches_;
  std::vector<int32_t> ids_;
  std::vector<SeenPair> pairs_;
  std::vector<NodeCost> classes_;
};

}  // namespace spiritlevel
