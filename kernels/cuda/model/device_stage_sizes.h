// DeviceStageSizes: the bytes of a stage on a device, from its shape alone.
//
// Nothing is allocated to find them out; a test holds them equal to what a BufferPool counts. They
// are what was asked for: blocks are rounded up to the pool's granularity beyond that.
#pragma once

#include "base/units.h"
#include "kernels/cpu/model/stage_sizes.h"

namespace spiritlevel::cuda {

struct DeviceStageSizes {
  // With the meaning that cpu::StageSizes gives it. A stage with the head returns `losses` from F
  // as well: they are in forward.after, and not in what the other passes begin and end with.
  cpu::StageSizes stage;
  Bytes losses = 0;         // kCommunication, until the caller drops them
  Bytes squared_norms = 0;  // kWorkspace, while an optimizer of all parameters forms them
};

DeviceStageSizes DeviceSizesOf(const cpu::ModelShape& shape, const cpu::StageRange& range);

// Of W, block by block: what WeightGradOfBlock() frees.
Bytes DeviceWeightStateOfBlock(const cpu::ModelShape& shape, const cpu::StageRange& range,
                               int block);

}  // namespace spiritlevel::cuda
