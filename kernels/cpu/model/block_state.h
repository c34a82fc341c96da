// What a block (the embedding, a layer, the head) keeps from F for B, and from B for W.
//
// t tokens, h hidden, a heads, d head_dim, f intermediate, V vocabulary, c slots of an expert.
#pragma once

#include <variant>
#include <vector>

#include "kernels/cpu/model/tensor.h"

namespace spiritlevel::cpu {

struct EmbeddingActivation {
  Tensor tokens;  // [1, t], for W
};

// A norm: its input and a number or two a row for B and W, its output for the W that follows.
struct NormActivation {
  Tensor x;           // [t, h]
  Tensor statistics;  // [1 or 2, t]
  Tensor y;           // [t, h]
};

struct AttentionActivation {
  NormActivation norm;
  Tensor qkv;          // [t, q and k and v], q and k rotated; for B
  Tensor out;          // [t, a d]
  Tensor log_sum_exp;  // [sequences a, sequence]; for B
};

// Which token is in which place of which expert.
struct RoutingActivation {
  Tensor probabilities;  // [t, experts]; for B
  Tensor token_of_slot;  // [experts, c]; for B
  Tensor filled;         // [1, experts]: how many slots are
  Tensor x;              // [experts c, h]: the tokens' vectors, for W
};

struct MlpActivation {
  NormActivation norm;
  Tensor up;   // [t or experts c, 2 f; plain: f]; B replaces it by its gradient
  Tensor act;  // [t or experts c, f], for W
  RoutingActivation routing;
};

struct LayerActivation {
  AttentionActivation attention;
  MlpActivation mlp;
};

struct HeadActivation {
  NormActivation norm;
  Tensor targets;      // [1, t]
  Tensor logits;       // [t, V]; B replaces them by their gradient
  Tensor log_sum_exp;  // [1, t]
  Tensor losses;       // [1, t]
};

using BlockActivation = std::variant<EmbeddingActivation, LayerActivation, HeadActivation>;

struct EmbeddingWeightState {
  Tensor tokens;
  Tensor dx;  // [t, h]
};

struct NormWeightState {
  Tensor x;
  Tensor statistics;
  Tensor dy;  // [t, h]
};

// One product: what went in, and the gradient of what came out.
struct LinearWeightState {
  Tensor x;
  Tensor dy;
};

struct LayerWeightState {
  NormWeightState attention_norm;
  LinearWeightState qkv;
  LinearWeightState attention_output;
  NormWeightState mlp_norm;
  LinearWeightState up;
  LinearWeightState down;
  // Of a mixture: the router's product, and how many rows of each expert's part count.
  LinearWeightState router;
  Tensor filled;
};

struct HeadWeightState {
  NormWeightState norm;
  LinearWeightState head;
};

// monostate: done.
using BlockWeightState =
    std::variant<std::monostate, EmbeddingWeightState, LayerWeightState, HeadWeightState>;

Bytes BytesOf(const BlockActivation& block);
Bytes BytesOf(const BlockWeightState& block);

}  // namespace spiritlevel::cpu
