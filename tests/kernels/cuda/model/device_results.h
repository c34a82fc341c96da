// A training step on the CPU and on a device, and how far its results are apart.
#pragma once

#include "tests/kernels/cuda/model/device_pipeline.h"

namespace spiritlevel::cuda {

// What a training step of two stages leaves behind.
struct Results {
  Doubles losses;    // sums of micro-batches
  Doubles messages;  // up, then down
  NamedValues gradients;
};

Results OnCpu(TinyPipeline* model);
// Of a model in fp32 whose parameters are those of the one in bf16.
Results WithoutRounding(cpu::ModelShape shape);
// Messages are read, and so waited for, only where `with_messages`: otherwise the host is far
// ahead.
Results OnDevice(Layer* layer, const cpu::ModelShape& shape, bool with_messages,
                 Bytes workspace = kLittleWorkspace);

double Cosine(const Doubles& a, const Doubles& b);
// How far `a` is from `b`, in units of b's length.
double Distance(const Doubles& a, const Doubles& b);
Doubles AllOf(const NamedValues& values);

}  // namespace spiritlevel::cuda
