// What the passes of a stage need of workspace, from its shape alone. Internal to the model.
#pragma once

#include "base/units.h"
#include "kernels/cpu/model/model_shape.h"

namespace spiritlevel::cpu {

struct ScratchSizes {
  Bytes forward = 0;
  Bytes input_grad = 0;
  Bytes weight_grad = 0;  // BW: the larger of the two
};

ScratchSizes ScratchSizesOf(const ModelShape& shape, const StageRange& range);

}  // namespace spiritlevel::cpu
