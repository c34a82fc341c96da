// ModelSlices: costs as people give them, for one cut of the model; CostsForStages recuts them for
// a schedule.
//
// A schedule with twice the stages halves the passes and the bytes of each, and the sums of its
// gradients. What belongs to a hop, an op or a rank (transfer, launch, optimizer, ...) is not
// divided.
//
//   CostsForStages(slices, 8);   // one stage a rank of 8
//   CostsForStages(slices, 16);  // two: each pass half as long
#pragma once

#include <vector>

#include "base/units.h"
#include "sim/costs.h"

namespace spiritlevel {

// Stands in StageCost::fused_backward and ::overlapped where nobody gave a number: they are then
// the sum of their parts, formed after the division so that closed forms hold to the nanosecond.
inline constexpr TimeNs kDerived = -1;

// Sums of gradients as people give them: of one rank's share of the model where each rank of
// `ranks` holds one (that of `tied_exchange` of the whole embedding). 0: none.
struct SharedSums {
  TimeNs reduction = 0;  // over data-parallel replicas, all of the share
  int buckets = 1;       // equal ones, in which that is done
  TimeNs twin = 0;       // of the two copies of the share (DualPipe)
  TimeNs tied_exchange = 0;

  friend bool operator==(const SharedSums&, const SharedSums&) = default;
};

struct ModelSlices {
  int ranks = 0;
  int micro_batches = 0;
  // Uniform: the one entry of `table` is a rank's share of the model, and `rows` is `ranks`.
  // Otherwise the model is cut into `rows` equal slices, in model order.
  bool uniform = true;
  int rows = 0;
  // One entry for each row, or rows * micro_batches with the micro-batch running fastest.
  std::vector<StageCost> table;
  Costs::Common common;  // without `gradients`, which follow from `sums`
  SharedSums sums{};
};

// Times and bytes are divided with DivideHalfUp. Throws InputError, as the reason why a schedule
// cannot run, unless `stages` is a positive multiple of slices.rows.
Costs CostsForStages(const ModelSlices& slices, int stages);

}  // namespace spiritlevel
