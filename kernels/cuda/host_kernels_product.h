// Products on the host. Internal to host_kernels.cc.
#pragma once

#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

// Each element's terms in order, in fp32.
void RunProductOnHost(const Product& product);

}  // namespace spiritlevel::cuda
