// A scenario's model as the kernels of this machine run it.
#pragma once

#include <vector>

#include "models/layer_ops.h"
#include "scenarios/scenario.h"
#include "sim/op.h"
#include "verify/model_plan.h"

namespace spiritlevel {

// The training run of `scenario`, which has a model, cut into `stages`; `groups` are those that
// share a rank. Throws InputError, naming what, for a model that there are no kernels for, and for
// a split that needs a profile where there is none.
TrainingTask TaskOf(const Scenario& scenario, int stages, const StageGroups& groups);

// FLOPs of a pass' matrix products; attention's are not among them.
double GemmFlops(const Scenario& scenario, const cpu::StageRange& stage, Pass pass);

}  // namespace spiritlevel
