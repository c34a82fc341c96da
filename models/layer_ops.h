// The work of a layer, of the embedding and of the head: which kernels F, B and W run, and which
// tensors wait from F for B and from B for W.
//
// Everything follows from the layer's shape; docs/models.md has the tables. Bytes are of one
// micro-batch.
//
//   const BlockWork w = LayerWork(architecture, {.sequence = 4096, .micro_batch = 1}, /*layer=*/0);
//   KeptAfterForward(w);      // bytes
//   KeptAfterInputGrad(w);    // bytes; may be more
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/architecture.h"
#include "models/kernel.h"
#include "sim/op.h"

namespace spiritlevel {

struct BlockShape {
  int64_t sequence = 0;
  int64_t micro_batch = 1;
  DType dtype = DType::kBFloat16;
  // Attention writes its probabilities to memory and keeps them, as it is done without a fused
  // kernel. Otherwise only the log-sum-exp of each row is kept.
  bool stored_attention = false;
  // The gradients of a norm's parameters are formed in W, as PyTorch's split backward does;
  // otherwise in B, as one kernel with its input gradient.
  bool norm_grads_in_w = false;

  int64_t tokens() const { return sequence * micro_batch; }
  Bytes element() const { return SizeOf(dtype); }

  friend bool operator==(const BlockShape&, const BlockShape&) = default;
};

struct NamedKernel {
  std::string name;  // "q, k, v projection"
  Kernel kernel;

  friend bool operator==(const NamedKernel&, const NamedKernel&) = default;
};

enum class NeededBy : uint8_t { kB, kW, kBoth };

// A tensor that one pass leaves for a later one.
struct KeptTensor {
  std::string name;
  Bytes bytes = 0;
  Pass made_by = Pass::kF;  // kF or kB
  NeededBy needed_by = NeededBy::kB;

  friend bool operator==(const KeptTensor&, const KeptTensor&) = default;
};

struct BlockWork {
  std::vector<NamedKernel> forward;
  std::vector<NamedKernel> input_grad;
  std::vector<NamedKernel> weight_grad;
  std::vector<KeptTensor> kept;

  const std::vector<NamedKernel>& kernels(Pass pass) const;  // not of kBW

  friend bool operator==(const BlockWork&, const BlockWork&) = default;
};

BlockWork LayerWork(const Architecture& architecture, const BlockShape& shape, int64_t layer);
BlockWork EmbeddingWork(const Architecture& architecture, const BlockShape& shape);
BlockWork HeadWork(const Architecture& architecture, const BlockShape& shape);  // norm to loss

// From the start of F to the end of B; from there to the end of W.
Bytes KeptAfterForward(const BlockWork& work);
Bytes KeptAfterInputGrad(const BlockWork& work);

// Of what W needs, what B made: with the layer's input it is enough to run W after a second F.
Bytes GradientsForW(const BlockWork& work);

// The input of a layer, which is what full recomputation keeps of it. Also a message between
// stages.
Bytes LayerInputBytes(const Architecture& architecture, const BlockShape& shape);

double FlopsOf(const std::vector<NamedKernel>& kernels);

// Throws InputError unless the shape is one the model can run and its bytes stay below kMaxBytes.
void CheckShape(const Architecture& architecture, const BlockShape& shape);

}  // namespace spiritlevel
