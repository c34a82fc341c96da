// What a block (the embedding, a layer, the head) keeps on a device from F for B, and from B for W.
//
// t tokens, h hidden, a heads, d head_dim, f intermediate, V vocabulary. Where nothing else is said
// a tensor is stored as the model's values are.
#pragma once

#include <variant>

#include "kernels/cuda/model/device_tensor.h"

namespace spiritlevel::cuda {

struct EmbeddingActivation {
  DeviceTensor tokens;  // [1, t] int32, for W
};

// A norm: its input and a number or two a row for B and W, its output for the W that follows.
struct NormActivation {
  DeviceTensor x;           // [t, h]
  DeviceTensor statistics;  // [1 or 2, t] fp32
  DeviceTensor y;           // [t, h]
};

struct AttentionActivation {
  NormActivation norm;
  DeviceTensor qkv;          // [t, q and k and v], q and k rotated; for B
  DeviceTensor out;          // [t, a d]
  DeviceTensor log_sum_exp;  // [sequences a, sequence] fp32; for B
};

struct MlpActivation {
  NormActivation norm;
  DeviceTensor up;   // [t, 2 f; plain: f]; B replaces it by its gradient
  DeviceTensor act;  // [t, f], for W
};

struct LayerActivation {
  AttentionActivation attention;
  MlpActivation mlp;
};

struct HeadActivation {
  NormActivation norm;
  DeviceTensor targets;      // [1, t] int32
  DeviceTensor logits;       // [t, V] fp32; B replaces them by their gradient
  DeviceTensor log_sum_exp;  // [1, t] fp32
};

using BlockActivation = std::variant<EmbeddingActivation, LayerActivation, HeadActivation>;

struct EmbeddingWeightState {
  DeviceTensor tokens;
  DeviceTensor dx;  // [t, h]
};

struct NormWeightState {
  DeviceTensor x;
  DeviceTensor statistics;
  DeviceTensor dy;  // [t, h]
};

// One product: what went in, and the gradient of what came out.
struct LinearWeightState {
  DeviceTensor x;
  DeviceTensor dy;
};

struct LayerWeightState {
  NormWeightState attention_norm;
  LinearWeightState qkv;
  LinearWeightState attention_output;
  NormWeightState mlp_norm;
  LinearWeightState up;
  LinearWeightState down;
};

struct HeadWeightState {
  NormWeightState norm;
  LinearWeightState head;  // the gradient of the logits, rounded to what values are stored as
};

// monostate: done.
using BlockWeightState =
    std::variant<std::monostate, EmbeddingWeightState, LayerWeightState, HeadWeightState>;

Bytes BytesOf(const BlockActivation& block);
Bytes BytesOf(const BlockWeightState& block);

}  // namespace spiritlevel::cuda
