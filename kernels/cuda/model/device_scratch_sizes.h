// How much scratch each pass of a stage takes. Internal to the model.
#pragma once

#include "base/units.h"
#include "kernels/cpu/model/model_shape.h"

namespace spiritlevel::cuda {

struct DeviceScratchSizes {
  Bytes forward = 0;
  Bytes input_grad = 0;
  Bytes weight_grad = 0;
};

DeviceScratchSizes DeviceScratchSizesOf(const cpu::ModelShape& shape, const cpu::StageRange& range);

}  // namespace spiritlevel::cuda
