// StageSizes: the bytes of a stage, from its shape alone.
//
// Nothing is allocated to find them out; a test holds them equal to what a MemoryMeter counts.
#pragma once

#include "base/units.h"
#include "kernels/cpu/model/model_shape.h"

namespace spiritlevel::cpu {

// A pass, with the messages it takes and returns: `before` it has the states and messages it will
// consume, `after` it what it returned.
struct PassBytes {
  Bytes before = 0;
  Bytes after = 0;
  Bytes peak = 0;

  // Held while it runs above what lies there at its start and at its end.
  Bytes transient() const { return peak - (before > after ? before : after); }

  friend bool operator==(const PassBytes&, const PassBytes&) = default;
};

struct StageSizes {
  // While the stage exists.
  Bytes parameters = 0;  // kParameters
  Bytes constants = 0;   // kWorkspace: tables of the rotation
  Bytes gradients = 0;   // kGradients, of each GradientStore
  Bytes optimizer = 0;   // kOptimizer, of a StageOptimizer of all parameters
  Bytes snapshot = 0;    // kOptimizer, of its snapshot

  // Messages: 0 where the stage has the embedding (input) or the head (output). The gradient that
  // comes back is as large.
  Bytes input = 0;
  Bytes output = 0;

  // After F, under kWaitingForB, the input included. Less than `activation` with recomputation.
  Bytes kept = 0;
  Bytes activation = 0;    // a whole one
  Bytes weight_state = 0;  // after B, under kWaitingForW

  PassBytes forward;
  PassBytes recompute;   // from `kept` to `activation`
  PassBytes input_grad;  // of a whole activation
  PassBytes weight_grad;
  PassBytes fused_backward;  // of a whole activation
  // With Recompute() inside; without recomputation the same as the two above.
  PassBytes input_grad_from_kept;
  PassBytes fused_backward_from_kept;

  friend bool operator==(const StageSizes&, const StageSizes&) = default;
};

StageSizes SizesOf(const ModelShape& shape, const StageRange& range);

// Of W, block by block: what WeightGradOfBlock() frees.
Bytes WeightStateOfBlock(const ModelShape& shape, const StageRange& range, int block);

}  // namespace spiritlevel::cpu
