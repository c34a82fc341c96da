// The kernels' arithmetic, run on the host: tile by tile and block by block as the device's grids
// do it, with the same functions (math/). For tests without a GPU, and as second opinion with one.
#pragma once

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/block.h"

namespace spiritlevel::cuda {

// Views are of host memory. A Product is computed in plain loops. What is written into them does
// not depend on the turns, which products and attention do not take.
void RunOnHost(const Call& call, Turns turns = Turns::kForwards);

}  // namespace spiritlevel::cuda
