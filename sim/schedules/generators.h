// The named schedules: small functions that write flat orders. None looks at times or messages,
// and each assumes a shape that its catalog entry (catalog.h) accepts.
//
// docs/schedules.md gives each order in a table, with its formulas and the paper it is from.
#pragma once

#include "sim/op.h"

namespace spiritlevel {

Orders GPipe(int ranks, int micro_batches);
Orders OneFOneB(int ranks, int micro_batches);
Orders ZbH1(int ranks, int micro_batches);
Orders ZbH2(int ranks, int micro_batches);

// Looped placement: chunk j of rank r is stage j * ranks + r. `group` micro-batches pass through a
// chunk before the next chunk's turn.
Orders Interleaved(int ranks, int micro_batches, int stages_per_rank, int group);
Orders InterleavedZb(int ranks, int micro_batches, int stages_per_rank, int group);

// V placement: rank r holds stages r and 2 * ranks - 1 - r.
Orders ZbV(int ranks, int micro_batches);
Orders VHalf(int ranks, int micro_batches);
Orders VMin(int ranks, int micro_batches);
Orders DualPipeV(int ranks, int micro_batches);

// Bidirectional placement: rank r holds stage r for the first half of the micro-batches and stage
// ranks - 1 - r for the second half.
Orders DualPipe(int ranks, int micro_batches);

}  // namespace spiritlevel
