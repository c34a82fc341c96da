// Calls: what the host asks a device to compute, as values.
//
// A call holds everything that its kernel needs, so one can be launched on a stream (cuda_layer),
// written down and looked at (the tests' fake), or computed on the host by the arithmetic that the
// kernels are made of (host_kernels.h). Names, formulas and layouts are those of kernels/cpu; what
// is said there of a function holds for its call.
//
// Storage is fp32 or bf16, one type for all operands of a call that are not said to be something
// else; arithmetic is fp32. Statistics, losses, moments, master weights and sums of gradients are
// fp32 always. Every kernel gives the same bits each time: sums have one order, and no atomics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "kernels/cuda/view.h"

namespace spiritlevel::cuda {

// --- Products

// C = alpha op(A) op(B) + beta C, all row-major; with beta 0, C is not read. Accumulates in fp32.
// The three uses of a layer Y = X W differ in which operand is transposed and in C's type: a weight
// gradient is added to an fp32 sum.
//
//   forward        C = Y    A = X    B = W
//   input grad     C = dX   A = dY   B = W, transposed
//   weight grad    C = dW   A = X, transposed   B = dY   beta 1
struct Product {
  View a;
  bool transpose_a = false;
  View b;
  bool transpose_b = false;
  View c;
  float alpha = 1;
  float beta = 0;
  // Of fp8 operands: one fp32 number in the device's memory that the operand is multiplied by.
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
};

// --- Elementwise

struct Fill {
  View to;
  float value = 0;
};
struct Convert {  // between types, rounding to nearest, ties to even
  View from;
  View to;
};
struct Add {  // to = a + b; `to` may be either
  View a;
  View b;
  View to;
};
struct AddBias {  // each row of `x` += bias [1, cols]
  View bias;
  View x;
};
struct ColumnSums {  // sums [1, cols], fp32, += those of the columns of x
  View x;
  View sums;
  View workspace;  // fp32, ColumnSumsWorkspace() of them
};
struct SumOfSquares {  // one fp64 number; x is fp32
  View x;
  View sum;        // [1, 1] fp64
  View workspace;  // fp64, SumOfSquaresWorkspace() of them
};
struct SwigluForward {
  View gate;
  View up;
  View y;
};
struct SwigluBackward {  // dgate and dup may be gate and up
  View gate;
  View up;
  View dy;
  View dgate;
  View dup;
};
struct GeluForward {
  View x;
  View y;
};
struct GeluBackward {
  View x;
  View dy;
  View dx;
};
struct Rotate {
  View table;  // [2 sequence, head_dim / 2] fp32: cosines, then sines
  int64_t head_dim = 0;
  bool back = false;
  View x;  // [tokens, heads * head_dim]
};
struct Dropout {
  double probability = 0;
  uint64_t seed = 0;
  int64_t iteration = 0;
  int64_t micro_batch = 0;
  int64_t layer = 0;
  uint8_t place = 0;  // cpu::DropoutSite::Place
  View x;
};

// --- Rows

struct RmsNormForward {
  View x;
  View weight;  // [1, cols]
  float epsilon = 0;
  View y;
  View statistics;  // [1, rows]: 1 / rms
};
struct RmsNormInputGrad {
  View x;
  View weight;
  View statistics;
  View dy;
  View dx;
};
struct RmsNormWeightGrad {
  View x;
  View statistics;
  View dy;
  View dweight;    // [1, cols] fp32, +=
  View workspace;  // fp32, ColumnSumsWorkspace() of them
};
struct LayerNormForward {
  View x;
  View weight;
  View bias;
  float epsilon = 0;
  View y;
  View statistics;  // [2, rows]: means, then 1 / deviation
};
struct LayerNormInputGrad {
  View x;
  View weight;
  View statistics;
  View dy;
  View dx;
};
struct LayerNormWeightGrad {
  View x;
  View statistics;
  View dy;
  View dweight;
  View dbias;
  View workspace;  // fp32, twice ColumnSumsWorkspace()
};
struct EmbeddingForward {
  View tokens;  // [1, rows] int32
  View table;
  View x;
};
struct EmbeddingWeightGrad {  // dtable[token] += dx, in the order of rows
  View tokens;
  View dx;
  View dtable;  // fp32
};
struct CrossEntropyForward {
  View targets;  // [1, rows] int32; -1 does not count
  View logits;   // fp32 or bf16
  View losses;   // [1, rows]
  View log_sum_exp;
};
struct CrossEntropyBackward {  // replaces the logits by `scale` times their gradient
  View targets;
  View log_sum_exp;
  float scale = 0;
  View logits;
};

// --- Attention

struct AttentionShape {
  int64_t batch = 0;  // sequences, one behind the other in the rows
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;
  bool causal = true;
  float scale = 0;  // 0: 1 / sqrt(head_dim)

  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};
struct AttentionForward {
  AttentionShape shape;
  View q;  // [batch sequence, heads head_dim]
  View k;  // [batch sequence, kv_heads head_dim]
  View v;
  View out;
  View log_sum_exp;  // [batch heads, sequence] fp32
};
struct AttentionBackward {  // overwrites dq, dk and dv
  AttentionShape shape;
  View q;
  View k;
  View v;
  View out;
  View log_sum_exp;
  View dout;
  View dq;
  View dk;
  View dv;
  View workspace;  // bytes as AttentionWorkspace() says, fp32
};

// --- Optimizer

// Moments and `exact` (the values that the step changes: master weights, or the parameters where
// they are fp32) are fp32. `stored` gets them rounded; empty where `exact` is the parameter.
struct AdamWStep {
  float rate = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.01f;
  int64_t step = 0;  // from 1
  float clip = 1;
  View gradient;  // fp32, not changed
  View exact;
  View first_moment;
  View second_moment;
  View stored{};
};
struct AdamWUndo {  // of that very step
  AdamWStep step;
};

using Call =
    std::variant<Product, Fill, Convert, Add, AddBias, ColumnSums, SumOfSquares, SwigluForward,
                 SwigluBackward, GeluForward, GeluBackward, Rotate, Dropout, RmsNormForward,
                 RmsNormInputGrad, RmsNormWeightGrad, LayerNormForward, LayerNormInputGrad,
                 LayerNormWeightGrad, EmbeddingForward, EmbeddingWeightGrad, CrossEntropyForward,
                 CrossEntropyBackward, AttentionForward, AttentionBackward, AdamWStep, AdamWUndo>;

std::string_view NameOf(const Call& call);  // "rms_norm_forward"
std::string Describe(const Call& call);     // with its shapes: for messages

// Ends with a check that names what is wrong unless types and shapes fit together: a kernel that
// is launched with others would write where it must not.
void CheckCall(const Call& call);

int64_t SumOfSquaresWorkspace(int64_t elements);          // fp64 numbers
int64_t ColumnSumsWorkspace(int64_t rows, int64_t cols);  // fp32 numbers
Bytes AttentionWorkspace(const AttentionShape& shape);    // of the backward

}  // namespace spiritlevel::cuda
