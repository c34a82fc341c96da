// Attention on the host, by the arithmetic of the device's kernels. RunOnHost() calls it.
#pragma once

#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

void RunAttentionOnHost(const AttentionForward& call);
void RunAttentionOnHost(const AttentionBackward& call);

}  // namespace spiritlevel::cuda
