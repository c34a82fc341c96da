// GpuPlan: which shapes are measured on a GPU: a sweep for general use, or the very shapes of a
// model's kernels beside a small one.
//
//   MakeGpuPlan(/*quick=*/false);
//   MakeGpuPlan(architecture, {.sequence = 4096, .micro_batch = 1});
#pragma once

#include <vector>

#include "calibrate/plan.h"
#include "models/architecture.h"
#include "models/layer_ops.h"

namespace spiritlevel {

// In bf16. Ordered as MakePlan()'s.
std::vector<PlannedWork> MakeGpuPlan(bool quick);

// All kernels of the model's layers, its embedding and its head, and the step of a layer's
// parameters; fitted, and never left out for want of time. The quick sweep beside them gives what a
// model has only one size of, and shapes that no fit has seen. A windowed attention has no kernel
// of ours and is told from the sweep's.
std::vector<PlannedWork> MakeGpuPlan(const Architecture& model, const BlockShape& shape);

}  // namespace spiritlevel
